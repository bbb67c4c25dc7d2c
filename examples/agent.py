"""An agent with skills, and every event on the way.

Without a key it is the offline planner, which follows commands written in skills. It prints:

    loaded   python-math
    ran      python3 scripts/fib.py 8 > out/fib.txt
    stopped  answer
    files    ['out/fib.txt']
    0 1 1 2 3 5 8 13
"""

from __future__ import annotations

import prowess
from prowess.events import CallPlanned, Envelope, SkillLoaded


def watch(envelope: Envelope) -> None:
    """Every event comes by here, as soon as it is in the log."""
    event = envelope.event
    if isinstance(event, SkillLoaded):
        print("loaded  ", event.name)
    elif isinstance(event, CallPlanned) and event.call.tool == "skill_run":
        print("ran     ", event.call.args["command"])


# store="memory:" keeps this example from leaving a record; approve is for machines where no sandbox works.
result = prowess.run_sync(
    "the first 8 Fibonacci numbers", on_event=watch, approve=["skill_run"], store="memory:", artifacts="memory:"
)
print("stopped ", result.stop_reason)
print("files   ", [file.name for file in result.files])
print(*result.text.split("\n\n")[0].split())
