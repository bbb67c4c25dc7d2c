"""Builds the exact request that the model sees from the events of a session.

`Conversation` applies the events of the log, during a run and again on resume. For prefix caching, the neutral request
(tools, then messages) only grows within an epoch, byte for byte. Each epoch begins with an event that gives the reason.
Events do not contain the bodies of skills; these are read from the published tree with their digest.

- conversation: `Conversation`, which turns events into the next request
- items: items of a conversation, in order
- questions: approval questions of a session, and the answers that count
- render: texts for the model: outcomes, given files, plan and budget
- request: the provider-neutral request, its bytes and its hash
- skill_text: texts of loaded skills and their arguments, redacted
- state: the session state: loaded skills and selected docs
- system_prompt: the system prompt: instructions, catalog and guidance
- usage: usage totals of a run
"""

from prowess.agent.context.conversation import Conversation
from prowess.agent.context.request import ModelRequest
from prowess.agent.context.system_prompt import GUIDANCE, LEAN_GUIDANCE, render_system

__all__ = ["GUIDANCE", "LEAN_GUIDANCE", "Conversation", "ModelRequest", "render_system"]
