"""compose: what happened in a session becomes the exact request that the model sees.

`Conversation` folds events, the same ones that the log holds: while a run goes on, and again when it is resumed. Within
an epoch the neutral request (tools, then messages) only grows, byte for byte; each epoch begins with an event that says
why. Bodies of skills are not in the events: they are put in from the tree that their digest pins.
"""

from prowess._compose.conversation import Conversation
from prowess._compose.neutral import Request
from prowess._compose.system import GUIDANCE, LEAN_GUIDANCE, render_system

__all__ = ["GUIDANCE", "LEAN_GUIDANCE", "Conversation", "Request", "render_system"]
