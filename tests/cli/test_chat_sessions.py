"""prowess chat: another model, another conversation, answers in Markdown, and an answer that is cut off."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from terminals import Terminal

MARKDOWN = (
    "# Report\n\nIt is **bold** and <b>raw</b>, see [here](https://example.com).\nNext line.\n\n- one\n\n```sh\nls\n"
)


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, name: str, *texts: str) -> str:
        replies = [{"text": text} for text in texts]
        (self.folder / name).write_text(json.dumps(replies), encoding="utf-8")
        return f"scripted:{name}"

    def pipe(self, lines: str, *words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "prowess", "chat", "--root", "skills", *words]
        done = subprocess.run(command, cwd=self.folder, input=lines.encode(), capture_output=True, timeout=GUARD_S)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def terminal(self, *words: str, environ: Mapping[str, str] | None = None, columns: int = 100) -> Terminal:
        words = ("chat", "--root", "skills", *words)
        return Terminal(*words, cwd=self.folder, environ=environ, columns=columns)


@pytest.fixture
def project(tmp_path: Path, make_skill: Any) -> Project:
    make_skill(tmp_path / "skills" / "demo", description="Shows things. Use when asked. " * 10)
    make_skill(tmp_path / "skills" / ("long-" * 12 + "name"), description="报表" * 60 + " Use when asked.")
    (tmp_path / ".agent").mkdir()
    return Project(tmp_path)


def finish(terminal: Terminal) -> str:
    terminal.type("\x04")
    assert terminal.finish() == 0, terminal.plain
    return terminal.plain


# --- another model, another conversation ------------------------------------------------------------------------------


def test_another_model_goes_on_in_the_same_session(project: Project) -> None:
    one = project.script("one.json", "From one.", "never")
    two = project.script("two.json", "From two.")
    lines = f"/model\n/load demo\nfirst\n/model {two}\n/model\nsecond\n/cost\n"
    code, out, err = project.pipe(lines, "--model", one)
    assert code == 0, err
    assert out.startswith(f"model {one}\nFrom one.\nmodel {two}\nFrom two.\n2 requests to the model")
    assert f"From your next message on, the model is {two}." in err
    assert err.count("loaded demo (named by you)") == 2, "a skill stays in use"
    code, out, err = project.pipe(lines, "--model", one, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len({event["session"] for event in events}) == 1
    assert [event["model"] for event in events if event["type"] == "run_started"] == [one, two]


def test_a_wrong_model_leaves_the_one_before(project: Project) -> None:
    one = project.script("one.json", "First.", "Second.")
    code, out, err = project.pipe("first\n/model nope:x\n/model\nsecond\n", "--model", one)
    assert (code, out) == (2, f"First.\nmodel {one}\nSecond.\n") and "[model-unknown]" in err
    (project.folder / "own.toml").write_text('store = "memory:"\n', encoding="utf-8")
    code, _, err = project.pipe("/model offline\n", "--model", one, "--config", "own.toml")
    assert code == 2 and "[store-in-memory]" in err


def test_a_new_conversation_knows_nothing_of_the_one_before(project: Project) -> None:
    one = project.script("one.json", "Answer.")
    code, out, err = project.pipe("/clear\nfirst\n/clear\n/clear\nsecond\n", "--model", one)
    empty = "Nothing was said in this conversation yet.\n"
    assert (code, out) == (0, f"{empty}Answer.\n{empty}Answer.\n"), err
    [before] = [line for line in err.splitlines() if "To return to the one before: prowess chat" in line]
    [now] = [line for line in err.splitlines() if line.startswith("[session s-")]
    listed = subprocess.run(
        [sys.executable, "-m", "prowess", "sessions", "list", "--json"], cwd=project.folder, capture_output=True
    )
    sessions = {row["session"]: row["last_request"] for row in json.loads(listed.stdout)["sessions"]}
    assert sessions == {before.split()[-1]: "first", now.split()[1]: "second"}


# --- an unknown name --------------------------------------------------------------------------------------------------


def test_a_person_is_asked_before_an_unknown_name_is_sent(project: Project) -> None:
    terminal = project.terminal("--model", project.script("one.json", "Sent."))
    place = terminal.wait_for(">")
    for typed, answer in (("/skils", "\r"), ("/\U0001f389", "\x03"), ("/demonstrate this", "n\r"), ("/über x", "y\r")):
        terminal.type(f"{typed}\r")
        place = terminal.wait_for("Send it to the model anyway? [y/N] ", after=place)
        terminal.type(answer)
        place = terminal.wait_for("Sent." if answer == "y\r" else ">", after=place)
    terminal.wait_for(">", after=terminal.wait_for("[answer", after=place))
    shown = finish(terminal)
    assert "No command or skill '/skils'. Did you mean /skills? Send it" in shown
    assert "No command or skill '/über'. Send it" in shown and shown.count("[answer") == 1


# --- the screen -------------------------------------------------------------------------------------------------------


def test_an_answer_is_rendered_on_a_terminal_only(project: Project) -> None:
    model = project.script("one.json", f"| a |\n|---|\n| {'y' * 300} |\n\n&#x202e;\n\n{MARKDOWN}\x1b[2J")
    terminal = project.terminal("--model", model)
    place = terminal.wait_for(">")
    terminal.type("go\r")
    place = terminal.wait_for("[answer", after=terminal.wait_for("Next line.", after=place))
    terminal.wait_for(">", after=place)
    shown = finish(terminal)
    answer = shown[shown.rindex("Report") : shown.index("[answer")]
    assert "It is bold and <b>raw</b>, see here (https://example.com)." in answer and " • one" in answer
    assert "y…" not in shown, "a long word in a table is wrapped"
    assert "\\u{1b}[2J" in answer and "\x1b[2J" not in terminal.shown.decode()
    assert "```" not in answer and "\u202e" not in terminal.shown.decode()
    assert project.pipe("go\n", "--model", model)[1].endswith(f"{MARKDOWN}\x1b[2J\n"), "a pipe gets the text itself"
    plain = project.terminal("--model", model, environ={"NO_COLOR": "1"})
    place = plain.wait_for(">")
    plain.type("go\r")
    plain.wait_for(">", after=plain.wait_for("[answer", after=place))
    assert "It is **bold** and" in finish(plain)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_skills_fit_the_width(project: Project, columns: int) -> None:
    terminal = project.terminal("--model", project.script("one.json"), environ={"COLUMNS": ""}, columns=columns)
    place = terminal.wait_for(">")
    terminal.type("/skills\r")
    place = terminal.wait_for("long-", after=terminal.wait_for("demo", after=place))
    terminal.wait_for(">", after=place)
    lines = finish(terminal).replace("\r", "").splitlines()
    rows = [line for line in lines if line.startswith(("demo ", "long-"))]
    assert len(rows) == 2 and all(row.rstrip().endswith("…") for row in rows)
    widths = [sum(2 if char in "报表" else 1 for char in row.rstrip()) for row in rows]
    assert all(columns - 3 <= width <= columns for width in widths), rows


# --- an answer that is cut off ----------------------------------------------------------------------------------------


class Provider:
    """Server that begins an answer and goes on when it is told; later answers are whole."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.go_on = threading.Event()
        self.url = ""

    def answer(self, send: Any) -> None:
        if len(self.requests) > 1:
            send("All of it.")
            return
        send("Here is **the beginning**")
        self.go_on.wait(GUARD_S)


@contextmanager
def open_provider() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            provider.requests.append(json.loads(data))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            provider.answer(lambda text: self._send({"content": text}))
            if not provider.go_on.is_set() or len(provider.requests) > 1:
                self._send({}, "stop")

        def _send(self, delta: dict[str, str], finish: str | None = None) -> None:
            event = {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}/v1"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield provider
        finally:
            provider.go_on.set()
            server.shutdown()


def test_control_c_keeps_what_was_said(project: Project) -> None:
    with open_provider() as provider:
        terminal = project.terminal("--model", "openai:x", environ={"OPENAI_BASE_URL": provider.url})
        place = terminal.wait_for(">")
        terminal.type("go\r")
        place = terminal.wait_for("Here is **the beginning**", after=place)
        terminal.type("\x03")
        place = terminal.wait_for("Here is the beginning", after=place)
        place = terminal.wait_for(">", after=terminal.wait_for("[cut off · what was said is kept", after=place))
        provider.go_on.set()
        terminal.type("and?\r")
        place = terminal.wait_for("All of it.", after=place)
        terminal.wait_for(">", after=terminal.wait_for("[answer", after=place))
        finish(terminal)
    said = [message["content"] for message in provider.requests[1]["messages"] if message["role"] == "assistant"]
    assert len(said) == 1 and said[0].startswith("Not finished: it was cancelled.")
    assert said[0].endswith("Said until it was cut off:\nHere is **the beginning**")
    command = [sys.executable, "-m", "prowess", "runs", "verify", "--all"]
    checked = subprocess.run(command, cwd=project.folder, capture_output=True, text=True)
    assert "1 session · 2 runs · all valid" in checked.stdout + checked.stderr


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_the_sdk_is_imported_while_a_person_types(project: Project, sdk: str, tmp_path: Path) -> None:
    marker = tmp_path / "imported"
    (tmp_path / "fake" / sdk).mkdir(parents=True)
    code = f"open({str(marker)!r}, 'w').close()\nraise RuntimeError('this SDK is broken')\n"
    (tmp_path / "fake" / sdk / "__init__.py").write_text(code, encoding="utf-8")
    environ = {f"{sdk.upper()}_API_KEY": "k", "PYTHONPATH": str(tmp_path / "fake")}
    terminal = project.terminal("--model", f"{sdk}:x", environ=environ)
    terminal.wait_for(">")
    end = time.monotonic() + GUARD_S
    while not marker.exists():
        assert time.monotonic() < end, "it was never imported"
        terminal.find("what is never shown", after=0, wait_s=0.05)
    assert "broken" not in finish(terminal), "an error waits for the request that needs it"
