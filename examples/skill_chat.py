"""A chat with skills: each line is a request of one session, and scripts run where --executor says.

    you> the first 8 Fibonacci numbers
    [loaded python-math]
    [python3 scripts/fib.py 8 > out/fib.txt]
    0
    1
    ...
    you> how many primes are there up to 100?
    [loaded python-math]
    [python3 scripts/primes.py 100 --count]
    25
    ...

That is printed when nobody types: two requests of its own, without a key, with the offline planner. On a terminal, or
with lines on standard input, it is your chat; an empty line or Ctrl-D ends it. On a terminal you are asked before a
script runs that nothing isolates. Some ways to start it:

python examples/skill_chat.py
python examples/skill_chat.py --executor local
python examples/skill_chat.py --executor container      # needs Docker or Podman, see docs/executors.md
OPENAI_API_KEY=... python examples/skill_chat.py --model openai:gpt-5 --skills ./skills
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator

import prowess
from prowess.events import CallPlanned, Envelope, SkillLoaded
from prowess.ports import Decision, ToolCall

SAMPLE = ("the first 8 Fibonacci numbers", "how many primes are there up to 100?")


def main() -> int:
    parser = argparse.ArgumentParser(description="A chat with skills.")
    parser.add_argument("--executor", choices=["auto", "local", "sandbox", "container"], default="auto")
    parser.add_argument("--model", default="offline", help="offline, openai:NAME or anthropic:NAME")
    parser.add_argument("--skills", action="append", default=[], metavar="DIR", help="default: those of this machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:  # the session and its files, gone when the chat ends
        os.chmod(folder, 0o711)  # as root, scripts run as a user of their own
        try:
            agent = prowess.Agent(
                options.model,
                skills=options.skills or "default",
                # Without a terminal nobody can be asked, so it has to be said before; python-math ships with Prowess.
                approve=agree if sys.stdin.isatty() else ["skill_run"],
                on_event=watch,
                executor=options.executor,
                store=f"{folder}/chat.db",
                settings={"workspace.dir": f"{folder}/workspaces"},
            )
        except prowess.ProwessError as error:  # such as: no folder of this name
            parser.error(str(error))
        return asyncio.run(chat(agent))


async def chat(agent: prowess.Agent) -> int:
    failed = 0
    for line in requests():
        try:
            result = await agent.run(line, session="chat")
        except prowess.ProwessError as error:  # such as: no container engine here
            print(f"{error.message} {error.hint or ''} [{error.code}]")
            failed += 1
        else:
            print(result.text)
            failed += not result.ok
    return 1 if failed else 0


def requests() -> Iterator[str]:
    if sys.stdin.isatty():
        while line := read("you> "):
            yield line
        return
    for line in [line.strip() for line in sys.stdin if line.strip()] or SAMPLE:
        print("you>", line)
        yield line


def agree(call: ToolCall, decision: Decision) -> bool:
    return read(f"run {call.args.get('command') or call.args}? [y/N] ").lower() in ("y", "yes")


def read(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        return ""


def watch(envelope: Envelope) -> None:
    event = envelope.event
    if isinstance(event, SkillLoaded):
        print(f"[loaded {event.name}]")
    elif isinstance(event, CallPlanned) and event.call.tool == "skill_run":
        print(f"[{event.call.args.get('command') or event.call.args}]")


if __name__ == "__main__":
    sys.exit(main())
