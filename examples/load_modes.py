"""How long a loaded skill stays in view: each request of two turns, under every load mode and placement.

Without a key: the model plays a script. It loads a skill, selects a doc of it, and answers; then the user asks again.
Each line is a request, each word a message of it, and `+` what of the skill it holds, or says of it. It prints:

    turn, tool_result
      1 system user
      2 system user assistant tool+body
      3 system user assistant tool+body assistant tool+doc
      4 system user assistant tool+gone assistant tool+gone assistant user
    once, tool_result
      1 system user
      2 system user assistant tool+body
      3 system user assistant tool+body assistant tool+doc+over
      4 system user assistant tool+gone assistant tool+over+gone assistant user
    session, tool_result
      1 system user
      2 system user assistant tool+body
      3 system user assistant tool+body assistant tool+doc
      4 system user assistant tool+body assistant tool+doc assistant user
    turn, system
      1 system user
      2 system system+body user assistant tool
      3 system system+body+doc user assistant tool assistant tool
      4 system user assistant tool+gone assistant tool+gone assistant user
    once, system
      1 system user
      2 system system+body user assistant tool
      3 system system+doc user assistant tool assistant tool+over
      4 system user assistant tool+gone assistant tool+over+gone assistant user
    session, system
      1 system user
      2 system system+body user assistant tool
      3 system system+body+doc user assistant tool assistant tool
      4 system system+body+doc user assistant tool assistant tool assistant user
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import prowess
from prowess.ports import Message
from prowess.testing import ScriptedModel

SKILLS = Path(__file__).parent / "skills"
SKILL, DOC = "api-style-guide", "references/errors.md"
REPLIES: list[dict[str, Any]] = [
    {"calls": [{"tool": "skill_load", "args": {"skill": SKILL}}]},
    {"calls": [{"tool": "skill_select_docs", "args": {"skill": SKILL, "docs": [DOC]}}]},
    {"text": "The answer to the first request."},
    {"text": "The answer to the second."},
]
PLACEMENTS: tuple[Literal["tool_result", "system"], ...] = ("tool_result", "system")
MODES: tuple[Literal["turn", "once", "session"], ...] = ("turn", "once", "session")
SIGNS = {"<skill_content": "+body", "<skill_doc": "+doc", "was shown once": "+over", "after that turn": "+gone"}


def show(message: Message) -> str:
    text = "\n".join(part.text or "" for part in message.parts)
    return message.role + "".join(sign for words, sign in SIGNS.items() if words in text)


for placement in PLACEMENTS:
    for mode in MODES:
        print(f"{mode}, {placement}")
        model = ScriptedModel(REPLIES)
        with tempfile.TemporaryDirectory() as folder:  # for the log, so that the second turn knows the first
            for request in ("How do we report errors?", "Thank you. Anything else?"):
                prowess.run_sync(
                    request,
                    skills=SKILLS,
                    model=model,
                    session="demo",
                    load_mode=mode,
                    placement=placement,
                    store=f"{folder}/log.db",
                    artifacts="memory:",
                    settings={"workspace.dir": folder},
                )
        for number, (messages, _) in enumerate(model.requests, 1):
            print(f"  {number}", *(show(message) for message in messages))
