"""argv to exit code; `screen` for people, JSON for programs.

- app: the command line's parser
- approver: A person at the terminal is asked, and says once, this run, always or no
- call: one call of the command line
- call_text: calls in words
- costs: what a skill costs in tokens, once it is loaded
- find_run: which run is meant
- inputs: files that a person names in a request
- live: A run as a person follows it, on stderr
- main: argv in, exit code out
- prompt_input: where the lines of a chat come from
- run_result: what a run made, for a person
- screen: one screen, two forms
- session_options: what `prowess run` and `prowess chat` can be told
- timeline: A run as a timeline
"""
