"""compose: what happened in a session becomes the exact request that the model sees.

`Conversation` folds events, the same ones that the log holds: while a run goes on, and again when it is resumed. Within
an epoch the neutral request (tools, then messages) only grows, byte for byte; each epoch begins with an event that says
why. Bodies of skills are not in the events: they are put in from the tree that their digest pins.

- conversation: A session's events, folded into the request that comes next
- items: what a conversation is made of, in the order in which it happened
- render: what a model reads of an event
- request: the request in no provider's words, and its bytes
- skill_text: what the model is shown of a loaded skill, rendered from the content that its digest pins, without secret
- state: which skills a session has loaded, and which of their docs
- system_prompt: the constant part of a request
- usage: what a request has used so far, and how usage adds up
"""

from prowess.agent.context.conversation import Conversation
from prowess.agent.context.request import ModelRequest
from prowess.agent.context.system_prompt import GUIDANCE, LEAN_GUIDANCE, render_system

__all__ = ["GUIDANCE", "LEAN_GUIDANCE", "Conversation", "ModelRequest", "render_system"]
