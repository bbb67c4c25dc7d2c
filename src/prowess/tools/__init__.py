"""What a model can call. A tool gets a decided call in its normal form, and keeps to what it was given.

- arguments: the arguments of the tools, as the source documents name them
- ask_user: ask_user
- base: A tool is a schema, a normal form for its arguments, and one coroutine; a set of tools is found by name
- builtin: every tool of ours, in the order in which they are always told
- function: @tool
- network_request: network_request
- plan: update_plan
- profiles: which tools a model is told about, and how much of their schemas
- schema: arguments of a model
- session_work: one session's work
- toolset: toolsets around toolsets
"""
