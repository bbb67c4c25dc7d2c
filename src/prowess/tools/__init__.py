"""Tools that a model can call. A tool gets a call that policy has allowed, with normalised arguments.

- arguments: argument classes of the built-in tools
- ask_user: the ask_user tool, which asks the user a question
- base: the `Tool` protocol
- builtin: the list of all built-in tools, and the profiles (default, lean, full) that select those a model is told
- context_files: the files of a session for a function that takes a ToolContext
- docstring: the summary and the parameters in a docstring
- function: the `@tool` decorator, which makes a tool from a Python function
- network_request: the network_request tool, which makes one HTTP request
- plain_arguments: the arguments of skill_load and skill_run, read without pydantic where they are plain
- plan: the update_plan tool, with plan parsing and patching
- result_text: lines of ours in a result, which foreign text cannot imitate
- schema: JSON Schema for arguments, and tolerant parsing of arguments
- session_work: the loaded skills and the workspace of one session
- toolset: `Tools`, which finds a tool by name, and wrappers (Only, Prefixed, Renamed, Joined)
"""
