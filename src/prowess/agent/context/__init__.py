"""Builds the exact request that the model sees from the events of a session.

`Conversation` applies the events of the log, during a run and again on resume. For prefix caching, the neutral request
(tools, then messages) only grows within an epoch, byte for byte. Each epoch begins with an event that gives the reason.
Events do not contain the bodies of skills; these are read from the published tree with their digest.

- conversation: `Conversation`, which turns events into the next request
- render: texts for the model: outcomes, given files, skills and their arguments, plan and budget
- request: `RequestDraft`, the items of a conversation and their request, its bytes and its hash
- state: items, session state, approval questions, usage totals
"""

from prowess.agent.context.conversation import Conversation
from prowess.agent.context.request import ModelRequest

__all__ = ["Conversation", "ModelRequest"]
