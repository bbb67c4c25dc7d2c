"""Command line: argv in, exit code out; text for people, JSON for programs.

- app: builds the parser and imports commands on demand
- approver: asks the person at the terminal to approve calls and to answer the model's questions
- call: one call of the command line with its global options, output and errors
- chat_commands: slash commands of a chat, and what a line asks for
- completion: completes words of the command line for a shell
- eval_view: shows eval runs: a bar, a table, scores and what failed
- inputs: --input options, standard input and files that a person gives
- interrupts: Ctrl-C, which comes between two steps of an event loop
- line_input: reads one line of stdin, which Ctrl-C can end
- live: live view of a run, on stderr
- main: entry point, and the list of the commands
- markdown: prints the answers of a chat
- pack_calls: --to, options and hints that install, update, uninstall, rollback and verify share
- pack_plan: shows what an installation or update will change, and asks
- progress: progress bars
- prompt_input: reads the lines of a chat, with editing, history and completion
- run_result: shows the result of a run and the files that it made
- screen: writes tables, sentences and JSON
- session_options: options that `run` and `chat` share
- timeline: prints a session as a story
"""
