"""The loop, over ports.

- activation: skills that nobody called for with a tool
- agent: what an agent is, before it does anything
- budget: what a run may still use, what it has used, and what to say when it is used up
- call_policy: what policy wants to know about a call
- call_repair: what a model meant, when it is not what it said; and when to stop it from saying the same wrong thing
  for ever
- child_run: A call that is made by a run of its own
- compaction: compaction, carried out
- loop: un
- model_call: one question to a model, asked again when that can help, and a reply that can be written down
- prompt: what a model is offered of skills and tools
- recorder: what happened is written before anything else happens; when it cannot be written, nothing else does
- session: A session
- task: what somebody wants done, and what came of it
- tool_call: act
- toolkit: kit
- toolkit_options: what a kit is given by whoever opens it
"""
