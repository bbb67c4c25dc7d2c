"""What a model can call. A tool gets a decided call in its normal form, and keeps to what it was given.

- arguments: the arguments of the tools, as the source documents name them
- ask_user: ask_user
- base: A tool is a schema, a normal form for its arguments, and one coroutine; a set of tools is found by name
- builtin: every tool of ours, in the order in which they are always told
- child_work: the work of a child run
- docstrings: what a docstring says to a model
- file_arguments: the arguments of the file tools and of network_request
- function: @tool
- knowledge_arguments: the arguments of the tools that load, show and search skills, plan and ask
- network_request: network_request
- plan: update_plan
- plan_patch: A plan is replaced as a whole or changed by a patch; what comes of it is a valid plan, or a ToolRetry
  that says why
- profiles: which tools a model is told about, and how much of their schemas
- reach: where a request really goes
- schema: arguments of a model
- session_work: one session's work
- toolset: toolsets around toolsets
"""
