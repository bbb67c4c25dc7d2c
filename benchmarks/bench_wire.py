"""Tokens that a model is sent for a call of each tool, beyond what the program, the file or the skill itself says.

    python benchmarks/bench_wire.py

The calls are made through a SkillKit, in order. `o200k_base` counts, with the extra `tokens`. A case that cannot run
on this machine is nan.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import prowess
from prowess._internal.tokens import get_counter
from prowess.core.values import Outcome

LIMIT = 25  # of a result in common cases
Row = tuple[str, float, float | None]


class WireCase(NamedTuple):
    """Call, and the texts in its result that are not ours."""

    title: str
    tool: str
    args: Mapping[str, Any]
    said: tuple[str, ...] = ()
    limit: float | None = LIMIT


REPORT = "# Report\n\n| region | total |\n|---|---|\n| north | 1,204 |\n| south | 877 |\n"
STEPS = "# Forms\n\nRun scripts/fill.py with the form and the values.\n\n## Checkboxes\n\nWrite yes or no.\n"
BODY = "# Totals\n\nRun `python3 scripts/total.py FILE`. Read references/forms.md for forms.\n"
TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: no column total\n'
ABOUT = "Sums the columns of a table. Use when somebody asks for totals."
PAGE = '{"rate": 1.08, "currency": "EUR"}\n'
PLAN = {"goal": "Sum it", "steps": [{"id": "s1", "title": "Load the skill", "status": "in_progress"}]}


def _run(title: str, command: str, *said: str, **more: Any) -> WireCase:
    return WireCase(f"skill_run, {title}", "skill_run", {"skill": "totals", "command": command, **more}, said)


def _fails(title: str, tool: str, **args: Any) -> WireCase:
    return WireCase(f"{tool}, {title}", tool, args, limit=None)


def list_cases(url: str) -> list[WireCase]:
    """Calls in the order in which they are made: later ones need what earlier ones wrote."""
    skill = {"skill": "totals"}
    write = {"path": "out/report.md", "content": REPORT}
    return [
        WireCase("skill_load, besides the body", "skill_load", skill, (BODY,), None),
        WireCase("skill_list_docs, two docs", "skill_list_docs", skill, ("notes.txt references/forms.md",)),
        WireCase(
            "skill_select_docs, besides the doc", "skill_select_docs", {**skill, "docs": ["notes.txt"]}, ("Old.",), 40
        ),
        WireCase("skill_read, a file", "skill_read", {**skill, "path": "references/forms.md"}, (STEPS,)),
        WireCase("skill_search, one hit", "skill_search", {"query": "totals of a table"}, (ABOUT,)),
        _run("prints six tokens", "echo the total is 2081", "the total is 2081"),
        _run("prints nothing", "true"),
        _run("prints and warns", "echo done; echo slow >&2", "done", "slow"),
        _run("writes the main file", f"cat > out/report.md <<'X'\n{REPORT}X", REPORT),
        _run("prints and writes two files", "echo ok; echo 1 > out/a.csv; printf '\\0' > out/b.png", "ok", "1"),
        _run("fails", f"cat >&2 <<'X'\n{TRACE}X\nexit 1", TRACE),
        _run("takes too long", "echo begun; sleep 60", "begun", timeout=0.5),
        WireCase("write_file", "write_file", write),
        WireCase("read_file, a file", "read_file", {"file_name": "out/report.md"}, (REPORT,)),
        WireCase("read_file, one line", "read_file", {"file_name": "out/report.md", "num_lines": 1}, ("# Report",)),
        WireCase("list_dir, three files", "list_dir", {"path": "out"}, ("a.csv b.png report.md",)),
        WireCase("grep, one line", "grep", {"pattern": "north", "path": "out"}, ("| north | 1,204 |",)),
        WireCase("delete_file", "delete_file", {"path": "out/report.md"}),
        WireCase("network_request", "network_request", {"url": url}, (PAGE,)),
        WireCase("update_plan", "update_plan", {"plan": PLAN}),
        WireCase("ask_user", "ask_user", {"question": "Which?"}, ("north",)),
        WireCase(
            "skill_exec, a program that asks",
            "skill_exec",
            {**skill, "command": "printf 'Name? '; read x; echo $x"},
            ("Name?",),
            30,
        ),
        WireCase("skill_write_stdin, and it ends", "skill_write_stdin", {"chars": "Ann", "submit": True}, ("Ann",)),
        WireCase("skill_kill_session", "skill_kill_session", {}),
        _fails("unknown skill", "skill_load", skill="total-sums"),
        _fails("unknown file", "skill_read", skill="totals", path="references/nothing.md"),
        _fails("wrong argument", "skill_run", skill="totals", comand="ls"),
        _fails("unknown file", "read_file", file_name="out/nothing.txt"),
        WireCase("skill_unload", "skill_unload", skill),
    ]


def main() -> None:
    for name, value, limit in measure(report=print):
        print(f"{name:60}{value:8.0f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[Row]:
    """Rows of (name, tokens, limit or None)."""
    count = get_counter(exact=True)
    rows: list[Row] = []
    for case, outcome in make_calls(report):
        ours = float("nan")
        if outcome is not None:
            ours = float(count(outcome.content) - sum(count(text.strip()) for text in case.said))
        rows.append((f"tokens of ours in a result: {case.title}", ours, case.limit))
    return rows


def make_calls(report: Callable[[str], object] = lambda line: None) -> Iterator[tuple[WireCase, Outcome | None]]:
    """Makes the calls, and yields their outcomes; None for one that could not be made on this machine."""
    with tempfile.TemporaryDirectory() as folder, _open_page() as url:
        skills = Path(folder, "skills")
        _write_skill(skills / "totals")
        host = url.removeprefix("http://")
        local = _make_kit(skills, {"tools.enable": ["write_file", "delete_file"]})
        # Apart: Landlock runs no script where a host is allowed, because it cannot forbid the others.
        online = _make_kit(skills, {"tools.enable": ["network_request"], "workspace.network_allow": [host]})
        session_id = ""
        with local, online:
            for case in list_cases(url):
                args = dict(case.args)
                if case.tool in ("skill_write_stdin", "skill_kill_session"):
                    args["session_id"] = session_id
                kit = online if case.tool == "network_request" else local
                outcome = kit.call_sync(case.tool, args)
                session_id = outcome.data.get("session_id", session_id)
                if outcome.data.get("unavailable"):
                    report(f"{case.title}: {outcome.content}")
                    yield case, None
                else:
                    yield case, outcome


def _make_kit(skills: Path, settings: Mapping[str, Any]) -> prowess.SkillKit:
    return prowess.SkillKit(
        str(skills), approve=lambda call, decision: True, ask=_answer, store="memory:", settings=settings
    )


def _write_skill(skill: Path) -> None:
    files = {"SKILL.md": f"---\nname: totals\ndescription: {ABOUT}\n---\n{BODY}", "references/forms.md": STEPS}
    files |= {"notes.txt": "Old.\n", "scripts/total.py": "print(1)\n"}
    for name, text in files.items():
        path = skill / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def _answer(question: str, choices: list[str]) -> str:
    return "north"


@contextmanager
def _open_page() -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


if __name__ == "__main__":
    main()
