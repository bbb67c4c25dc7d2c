"""argv to exit code; `screen` for people, JSON for programs.

- app: the command line's parser
- approver: A person at the terminal is asked, and says once, this run, always or no
- artifact_files: files on their way in and out, as a person names them
- ask: A question of the model, put to the person at the terminal; where nobody is, nobody answers
- call: one call of the command line
- call_text: calls in words
- completion: what could be meant by what was typed so far
- costs: what a skill costs in tokens, once it is loaded
- ending: what is said when a run has ended
- find_run: which run is meant
- history: what was typed before, for the arrow keys
- inputs: files that a person names in a request
- live: A run as a person follows it, on stderr
- main: argv in, exit code out
- prompt_input: where the lines of a chat come from
- question: the question before a call
- run_result: what a run made, for a person
- screen: one screen, two forms
- session_options: what `prowess run` and `prowess chat` can be told
- session_story: A session as a person reads it
- timeline: A run as a timeline
- watch: what a surface sees of a run while it goes on
"""
