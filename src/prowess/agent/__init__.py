"""The agent: its loop, tool calls, requests and record. It reaches models, stores and executors through ports.

- activation: activating skills that a text, the caller or a file name asks for
- agent: `AgentSpec`, `Limits`, `Task` and `Result` of a run
- approvals: `ApprovalBook`, a person's answers, earlier ones and new ones
- budget: the limits of a run and of the context window, and the report when a limit is reached
- call_groups: the calls of one reply; read-only neighbours are made at the same time
- call_outcomes: decisions and outcomes that follow from an answer, an error or an interruption
- call_policy: `CallPolicy`, the facts about a call and the decision of policy
- call_repair: calls that name a skill instead of a tool, repeated failures, and cut-off calls
- child_run: calls that a child run carries out
- compaction: shortening a request that comes near the context limit
- foreign_calls: calls of a model that is not ours, each with an id of its own
- implicit_load: loading the skill of a call that names one which is not loaded
- loop: `run`, the loop of turns
- model_call: one request to a model, with retries
- notes: `Notes`, what the model has to be told with the next request
- observers: telling events to observers, which may be slow or fail
- output: `OutputForm`, the form of an answer, and the texts that tell a model about it
- output_check: checking an answer against its form, and asking again
- prompt: the system prompt and the tools that a model is offered
- recorder: writing events to the log without secrets, and then applying them to the conversation
- run_error: the error of a result without an answer
- session: `Session`, one conversation over many runs
- skill_loader: loading, finding and unloading the skills of a run
- tool_call: `ToolCallRunner`, which decides, executes and records one call
- toolkit: `Toolkit`, skills and tools for an agent or another framework
- toolkit_options: options of a `Toolkit`
"""
