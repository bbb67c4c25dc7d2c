"""prowess runs replay: what was decided is done again, without a model, and where it goes apart is said."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from command_lines import Cli
from kits import yes
from prowess.core.events import Envelope, ErrorRaised, ModelReplied, ModelRequested, ModelRetried
from prowess.core.values import SessionKey
from prowess.errors import ModelError, ModelOverloaded
from prowess.models.scripted import ScriptedModel
from prowess.records.diff import settled
from prowess.runtime.runtime import open_runtime
from prowess.stores.sqlite import SqliteEventLog
from state_places import database_of

SCRIPT = "import sys\nprint('rows:', len(open(sys.argv[1]).read().split()))\n"
LOAD = {"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]}


def run_script(command: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"tool": "skill_run", "args": {"skill": "demo", "command": command, **more}}]}


@pytest.fixture
def project(tmp_path: Path, make_skill: Callable[..., Path]) -> Path:
    skills = tmp_path / ".agent" / "skills"
    make_skill(skills / "demo", files={"scripts/count.py": SCRIPT, "references/a.md": "# A\n"})
    (tmp_path / "notes.txt").write_text("one two three", encoding="utf-8")
    return tmp_path


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path) -> Cli:
    monkeypatch.chdir(project)
    cli = Cli(capfd, "runs")
    cli.prowess("trust", "--yes")
    return cli


def play(cli: Cli, project: Path, replies: list[Any], request: str = "go", *more: str, code: int = 0) -> str:
    """A run, and its id."""
    (project / "script.json").write_text(json.dumps(replies), encoding="utf-8")
    cli.prowess("run", request, "--model", "scripted:script.json", "--yes", "skill_run", *more, code=code)
    return cli.json("list", "--limit", "1")["runs"][0]["run"]


WHOLE: list[dict[str, Any]] = [
    LOAD,
    {
        "calls": [
            {"tool": "skill_read", "args": {"skill": "demo", "path": "references/a.md"}},
            {"tool": "skill_list_docs", "args": {"skill": "demo"}},
        ]
    },
    run_script("python3 scripts/count.py work/inputs/notes.txt"),
    {"text": "3 rows"},
]


def lines_of(project: Path) -> dict[str, list[str]]:
    async def go() -> dict[str, list[str]]:
        async with SqliteEventLog(database_of(project)) as log:
            return {info.key.session: [line async for line in log.lines(info.key)] for info in await log.sessions()}

    return asyncio.run(go())


def runs_of(project: Path) -> list[str]:
    """Newest first."""
    with closing(sqlite3.connect(database_of(project))) as connection:
        rows = connection.execute("SELECT line FROM events WHERE line LIKE '%\"run_started\"%' ORDER BY seq DESC")
        return [json.loads(line)["run"] for (line,) in rows]


@pytest.mark.needs("isolation")
def test_the_same_code_and_skills_do_the_same(cli: Cli, project: Path, workspace_dir: str) -> None:
    run = play(cli, project, WHOLE, "count @notes.txt")
    before, folders = lines_of(project), sorted(os.listdir(os.path.join(workspace_dir, "workspaces")))
    document = cli.json("replay", run)
    assert document["same"] and document["first"] is None and document["notes"] == []
    assert document["events"] == document["replayed"] > 20
    assert cli("replay", run).startswith(f"same  {run}  ")
    assert lines_of(project) == before, "the recorded session is not touched, and there is no other"
    assert sorted(os.listdir(os.path.join(workspace_dir, "workspaces"))) == folders
    assert len(list((project / ".agent" / "runs").iterdir())) == 1


def test_a_changed_skill_is_told(cli: Cli, project: Path) -> None:
    run = play(cli, project, WHOLE, "count @notes.txt")
    script = project / ".agent" / "skills" / "demo" / "scripts" / "count.py"
    script.write_text(SCRIPT + "# changed\n", encoding="utf-8")
    first = cli.json("replay", run, code=1)["first"]
    assert (first["what"], first["type"]) == ("digest", "skill_loaded") and first["seq"] == first["other_seq"]
    assert first["recorded"].startswith("sha256:") and first["recorded"] != first["actual"]
    assert "today:" in cli("replay", run, code=1)
    shutil.rmtree(project / ".agent" / "skills" / "demo")
    assert cli.json("replay", run, code=1)["first"]["what"] == "request", "the catalog comes first"


@pytest.mark.needs("isolation")
def test_another_outcome_is_told(cli: Cli, project: Path) -> None:
    run = play(cli, project, [LOAD, run_script("test ! -e /proc/self/nothing && cat work/state"), {"text": "x"}])
    assert cli.json("replay", run)["same"]
    run = play(cli, project, WHOLE, "count @notes.txt")
    for root, _, names in os.walk(os.environ["PROWESS_WORKSPACE_DIR"]):
        if "notes.txt" in names and root.endswith("work/inputs"):
            os.unlink(os.path.join(root, "notes.txt"))
    document = cli.json("replay", run, code=1)
    assert "notes.txt is not there any more" in document["notes"][0]
    assert document["first"]["what"] == "start"


def test_a_link_in_place_of_an_attachment_is_not_followed(cli: Cli, project: Path) -> None:
    secret = project / "secret.txt"
    secret.write_text("hush hush", encoding="utf-8")
    run = play(cli, project, WHOLE, "count @notes.txt")
    for root, _, names in os.walk(os.environ["PROWESS_WORKSPACE_DIR"]):
        if "notes.txt" in names and root.endswith("work/inputs"):
            os.unlink(os.path.join(root, "notes.txt"))
            os.symlink(secret, os.path.join(root, "notes.txt"))
    assert "is not there any more" in cli.json("replay", run, code=1)["notes"][0]


def test_another_decision_is_told(cli: Cli, project: Path) -> None:
    run = play(cli, project, WHOLE, "count @notes.txt")
    rule = '[[rule]]\ntool = "skill_run"\nverdict = "deny"\nwhy = "not today"\n'
    (project / ".agent" / "policy.toml").write_text(rule, encoding="utf-8")
    document = cli.json("replay", run, code=1)
    assert document["first"]["what"] == "decision" and '"deny"' in document["first"]["actual"]


@pytest.mark.needs("isolation")
def test_answers_of_people_are_the_recorded_ones(cli: Cli, project: Path) -> None:
    settings = '[execution]\nrequire_approval_for = ["skill_run"]\n'
    (project / ".agent" / "config.toml").write_text(settings, encoding="utf-8")
    cli.prowess("trust", "--yes")
    asks = [LOAD, run_script("echo hi")]
    (project / "script.json").write_text(json.dumps(asks), encoding="utf-8")
    cli.prowess("run", "go", "--model", "scripted:script.json", "--session", "s", code=4)
    cli.prowess("approvals", "answer", "c2", "yes", "--session", "s")
    (project / "script.json").write_text(json.dumps([{"text": "x"}]), encoding="utf-8")
    cli.prowess("run", "--resume", "--model", "scripted:script.json", "--session", "s")
    run = cli.json("list", "--limit", "1")["runs"][0]["run"]
    assert cli.json("show", run)["prompts"]["answered"] == 1
    assert cli.json("replay", run)["same"]
    replies = [LOAD, run_script("echo hi"), {"text": "x"}]
    (project / "script.json").write_text(json.dumps(replies), encoding="utf-8")
    cli.prowess("run", "go", "--model", "scripted:script.json", "--on-ask", "deny")
    denied = cli.json("list", "--limit", "1")["runs"][0]["run"]
    assert denied != run and cli.json("replay", denied)["same"], "nobody was there, and that was a no"
    (project / ".agent" / "config.toml").unlink()
    assert cli.json("replay", run, code=1)["first"]["what"] in ("decision", "event")


@pytest.mark.needs("isolation")
def test_what_nobody_was_asked_then_is_denied_now(cli: Cli, project: Path) -> None:
    run = play(cli, project, [LOAD, run_script("echo hi"), {"text": "x"}])
    settings = '[execution]\nrequire_approval_for = ["skill_run"]\n'
    (project / ".agent" / "config.toml").write_text(settings, encoding="utf-8")
    cli.prowess("trust", "--yes")
    first = cli.json("replay", run, code=1)["first"]
    assert first["what"] == "decision" and '"ask"' in first["actual"]


@pytest.mark.needs("isolation")
def test_a_later_run_of_a_session_has_what_came_before(cli: Cli, project: Path) -> None:
    first = play(cli, project, [LOAD, {"text": "loaded"}], "one", "--session", "mine")
    second = play(cli, project, [run_script("echo hi"), {"text": "done"}], "two", "--session", "mine")
    assert first != second and cli.json("replay", first)["same"]
    document = cli.json("replay", second)
    assert document["same"] and "earlier runs" in document["notes"][0]


def test_skills_that_were_named_are_put_to_use_again(cli: Cli, project: Path) -> None:
    for request, more in (("/demo now", ()), ("with $demo", ()), ("go", ("--skill", "demo"))):
        run = play(cli, project, [{"text": "x"}], request, *more)
        assert cli.json("replay", run)["same"], request


@pytest.mark.needs("isolation")
def test_a_run_without_a_model_is_repeated_call_by_call(cli: Cli, project: Path) -> None:
    command = ["python3", "scripts/count.py", "work/inputs/notes.txt"]
    cli.prowess("exec", "demo", "--input", "notes.txt", "--yes", "skill_run", "--", *command)
    run = cli.json("list", "--limit", "1")["runs"][0]["run"]
    assert cli.json("replay", run)["same"]
    (project / ".agent" / "skills" / "demo" / "scripts" / "count.py").write_text(
        "raise SystemExit(3)", encoding="utf-8"
    )
    assert cli.json("replay", run, code=1)["first"]["what"] == "digest"


def test_child_runs_are_repeated_with_their_parent(cli: Cli, project: Path, make_skill: Callable[..., Path]) -> None:
    front = "name: helper\ndescription: Helps. Use when asked.\nrun-mode: subagent\n"
    make_skill(project / ".agent" / "skills" / "helper", front=front)
    replies = [
        {"calls": [{"tool": "skill_load", "args": {"skill": "helper"}}]},
        {"text": "the child's answer"},
        {"text": "done"},
    ]
    run = play(cli, project, replies)
    shown = cli.json("show", run)
    assert len(shown["children"]) == 1 and cli.json("verify", run)["valid"]
    assert cli.json("replay", run)["same"] and cli.json("replay", shown["children"][0])["run"] == run


def test_runs_that_met_a_limit_or_an_error_are_repeated_too(cli: Cli, project: Path) -> None:
    limited = play(cli, project, [LOAD, LOAD, LOAD], "go", "--max-turns", "2", code=1)
    assert cli.json("show", limited)["stop_reason"] == "limit:turns"
    assert cli.json("replay", limited)["same"]
    missing = play(cli, project, [{"calls": [{"tool": "nothing", "args": {"x": 1}}]}, {"text": "x"}])
    assert cli.json("replay", missing)["same"]
    failed = play(cli, project, [LOAD], "go", code=1)
    document = cli.json("replay", failed, code=1)
    assert document["error"]["code"] == "replay-exhausted", "a model that failed cannot fail in the same way again"


def test_a_record_that_cannot_be_repeated_says_so(cli: Cli, project: Path) -> None:
    run = play(cli, project, [{"text": "x"}])
    (folder,) = (project / ".agent" / "runs").iterdir()
    lines = (folder / "events.jsonl").read_text(encoding="ascii").splitlines()
    database_of(project).unlink()
    assert cli.refused("replay", run)["code"] == "run-unknown", "a copy is no record"
    document = cli.json("replay", str(folder))
    assert document["same"] and "is foreign" in document["notes"][0]
    (folder / "events.jsonl").write_text("\n".join(lines[1:]), encoding="ascii")
    assert cli.refused("replay", str(folder))["code"] == "recording-invalid"
    (folder / "events.jsonl").write_text("x\n", encoding="ascii")
    assert cli.refused("replay", str(folder))["code"] == "audit-broken"


# --- runs that were shortened -----------------------------------------------------------------------------------------


def converse(cli: Cli, project: Path, model: ScriptedModel, *requests: str, **options: Any) -> list[str]:
    """Runs of one session in the project's own store, with a model whose window is known; their ids."""

    async def go() -> list[str]:
        with open_runtime(cwd=str(project), environ=os.environ) as runtime:
            async with runtime.open_session(model=model, approver=yes, session="long", **options) as session:
                return [(await session.run(request)).run for request in requests]

    return asyncio.run(go())


MUCH = [run_script(f"yes 'word {n}' | head -n 600") for n in range(5)]


def compactions(project: Path) -> list[dict[str, Any]]:
    return [event for line in lines_of(project)["long"] if (event := json.loads(line))["type"] == "compacted"]


@pytest.mark.needs("isolation")
def test_a_run_that_was_shortened_is_shortened_in_the_same_way(cli: Cli, project: Path) -> None:
    (run,) = converse(cli, project, ScriptedModel([LOAD, *MUCH, {"text": "done"}], context_tokens=4_000), "go")
    assert any(each["replaced"] for each in compactions(project))
    document = cli.json("replay", run)
    assert document["same"] and document["notes"] == [], document["first"]
    assert document["events"] == document["replayed"]
    script_of = project / ".agent" / "skills" / "demo" / "scripts" / "count.py"
    script_of.write_text(SCRIPT + "# changed\n", encoding="utf-8")
    first = cli.json("replay", run, code=1)["first"]
    assert (first["what"], first["type"]) == ("digest", "skill_loaded")


def test_a_recording_as_a_model_is_shortened_too_and_can_read_what_was_taken_out(cli: Cli, project: Path) -> None:
    read = {"calls": [{"tool": "read_file", "args": {"file_name": "artifact://outputs/c2.txt@0"}}]}
    (run,) = converse(cli, project, ScriptedModel([LOAD, *MUCH, read, {"text": "done"}], context_tokens=4_000), "go")
    played = cli.prowess("run", "go", "--model", f"replay:{run}", "--yes", "skill_run", "--json")
    again = [json.loads(line) for line in played.splitlines()]
    wanted = [each["replaced"] for each in compactions(project)]
    assert [each["replaced"] for each in again if each["type"] == "compacted"] == wanted and any(wanted)
    acted = [each["outcome"] for each in again if each["type"] == "call_acted"]
    assert acted[-1]["status"] == "ok" and "word 0" in acted[-1]["content"]


@pytest.mark.needs("isolation")
def test_what_overflowed_then_overflows_again(cli: Cli, project: Path) -> None:
    full = ModelError("too long", code="context-overflow")
    (run,) = converse(cli, project, ScriptedModel([LOAD, *MUCH, full, {"text": "done"}]), "go")
    assert [each["why"] for each in compactions(project)] == ["the context overflowed"]
    assert cli.json("replay", run)["same"]


@pytest.mark.parametrize("summary", ["SUMMARY: two long answers", None, "failed"])
def test_what_was_left_out_is_left_out_again(cli: Cli, project: Path, summary: str | None) -> None:
    long = {"text": "lorem ipsum " * 1500}
    asked = {None: [], "failed": [ModelError("busy", code="model-overloaded")]}.get(summary, [{"text": summary}])
    model = ScriptedModel([long, long, *asked, {"text": "third"}], context_tokens=7_000)
    *_, run = converse(cli, project, model, "one", "two", "three", summarise=summary is not None)
    (compacted,) = compactions(project)
    assert compacted["dropped"] and (summary in (None, "failed") or summary in compacted["summary"])
    document = cli.json("replay", run)
    assert document["same"], document["first"]


@pytest.mark.needs("isolation")
def test_each_run_is_shortened_where_it_was(cli: Cli, project: Path, make_skill: Callable[..., Path]) -> None:
    for name in ("left", "right"):
        front = f"name: {name}\ndescription: Helps. Use when asked.\nrun-mode: subagent\n"
        make_skill(project / ".agent" / "skills" / name, front=front)
    children = [{"calls": [{"tool": "skill_load", "args": {"skill": name}}]} for name in ("left", "right")]
    script = [children[0], {"text": "small"}, children[1], LOAD, *MUCH, {"text": "large"}, LOAD, {"text": "done"}]
    (run,) = converse(cli, project, ScriptedModel(script, context_tokens=4_000), "go")
    assert {each["run"] for each in compactions(project)} == {cli.json("show", run)["children"][1]}
    document = cli.json("replay", run)
    assert document["same"], document["first"]


def test_a_shortened_run_that_goes_another_way_is_told(cli: Cli, project: Path) -> None:
    (run,) = converse(cli, project, ScriptedModel([LOAD, *MUCH, {"text": "done"}], context_tokens=4_000), "go")
    rule = '[[rule]]\ntool = "skill_run"\nverdict = "deny"\nwhy = "not today"\n'
    (project / ".agent" / "policy.toml").write_text(rule, encoding="utf-8")
    document = cli.json("replay", run, code=1)
    assert document["first"]["what"] == "decision" and document["error"] is None


def test_a_provider_that_was_asked_again_counts_once() -> None:
    def envelopes(*events: Any) -> list[Envelope]:
        return [Envelope(at="", session="s", run=run, event=event) for run, event in events]

    asked, busy, said = (
        ModelRequested(bytes=1, sha256="a"),
        ErrorRaised(code="busy", message="x"),
        ModelReplied(text="x"),
    )
    again = ErrorRaised(code="busy", message="x", hint="Trying again in 0.5 s (1 of 4).")
    retried = ModelRetried(attempt=1, tries=5, code="busy", message="x", wait_s=0.5)
    for each in (again, retried):  # as it was recorded before, and as it is now
        assert settled(envelopes(("r", asked), ("r", each), ("c", each), ("r", said))) == envelopes(
            ("r", asked), ("r", said)
        )
    tried = envelopes(("r", asked), ("c", asked), ("r", busy), ("c", said), ("r", busy), ("r", asked), ("r", said))
    assert settled(tried) == envelopes(("c", asked), ("c", said), ("r", asked), ("r", said))
    other = envelopes(("r", said), ("r", busy), ("r", asked), ("r", said))
    assert settled(other) == other
    assert SessionKey(session="s") == tried[0].key


def test_a_run_whose_provider_was_busy_is_the_same_run(cli: Cli, project: Path) -> None:
    busy = ModelOverloaded("busy", code="model-overloaded", retry_after_s=0.0)
    (run,) = converse(cli, project, ScriptedModel([LOAD, busy, {"text": "done"}]), "go")
    assert "Trying again" in cli("show", run)
    assert cli.json("replay", run)["same"]


def test_a_repetition_approves_nothing(tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again what was taken back; and in a folder that nobody trusts a log's yes is nobody's."""
    from prowess.cli.main import main
    from prowess.policy.approvals import load_approvals

    state = str(tmp_path / "home" / ".prowess")
    monkeypatch.setenv("PROWESS_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    make_skill(project / "skills" / "demo", files={"scripts/a.sh": "echo ran\n"})
    (project / ".agent").mkdir()
    script = project / "script.json"
    script.write_text(
        '[{"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]},'
        ' {"calls": [{"tool": "skill_run", "args": {"skill": "demo", "command": "bash scripts/a.sh"}}]}]',
        encoding="utf-8",
    )
    monkeypatch.chdir(project)
    words = ["--root", "skills", "--executor", "local", "--session", "s"]
    assert main(["run", "go", "--model", f"scripted:{script}", *words]) == 4
    assert main(["approvals", "answer", "c2", "always", "--session", "s"]) == 0
    script.write_text('[{"text": "done"}]', encoding="utf-8")
    assert main(["run", "--resume", "--model", f"scripted:{script}", *words]) == 0
    assert len(load_approvals(state).rows) == 1
    assert main(["approvals", "revoke", "1", "--yes"]) == 0
    assert not (project / ".agent" / "runs").exists(), "nobody made this a project, and nobody trusts it"
    main(["runs", "export", runs_of(project)[0], "--to", "copies"])
    (copy,) = (project / "copies").iterdir()
    for run in (runs_of(project)[0], str(copy)):
        main(["runs", "replay", run, "--root", "skills", "--executor", "local"])
    assert load_approvals(state).rows == (), "what was taken back stays so"


# --- runs that were cut off -------------------------------------------------------------------------------------------


def cut_off(
    cli: Cli, project: Path, *words: str, by: signal.Signals, after: tuple[str, int] = ("call_decided", 2)
) -> str:
    """A run, ended once it has printed so many events of a type; its id."""
    kind, number = after
    slept = run_script("sleep 60")
    (project / "script.json").write_text(json.dumps([LOAD, slept, {"text": "x"}]), encoding="utf-8")
    command = [sys.executable, "-m", "prowess", "run", "go", "--model", "scripted:script.json", "--yes", "skill_run"]
    with subprocess.Popen([*command, *words, "--json"], stdout=subprocess.PIPE, text=True, cwd=project) as process:
        assert process.stdout is not None
        seen = (line for line in process.stdout if json.loads(line)["type"] == kind)
        assert len(list(itertools.islice(seen, number))) == number
        process.send_signal(by)
        process.stdout.read()
    assert process.returncode in (130, -by)
    return cli.json("list", "--limit", "1")["runs"][0]["run"]


@pytest.mark.parametrize(("by", "how"), [(signal.SIGKILL, "never ended"), (signal.SIGINT, "was cancelled")])
def test_a_run_that_was_cut_off_is_repeated_as_far_as_it_goes(
    cli: Cli, project: Path, by: signal.Signals, how: str
) -> None:
    run = cut_off(cli, project, by=by)
    approved = ("--yes", "skill_run")  # without isolation the record may end before or after the approval
    document = cli.json("replay", run, *approved)
    assert document["same"] and document["error"] is None and how in document["notes"][0]
    assert cli("replay", run, *approved).startswith(f"same as far as it goes  {run}  ")
    script = project / ".agent" / "skills" / "demo" / "scripts" / "count.py"
    script.write_text(SCRIPT + "# changed\n", encoding="utf-8")
    document = cli.json("replay", run, *approved, code=1)
    assert document["first"]["what"] == "digest" and document["error"] is None


def test_a_run_that_was_cut_off_after_its_approval_needs_the_approval_again(cli: Cli, project: Path) -> None:
    run = cut_off(cli, project, "--executor", "local", by=signal.SIGINT, after=("approval_answered", 1))
    document = cli.json("replay", run, code=1)
    assert document["first"]["type"] == "approval_answered"
    assert document["notes"][-1].endswith("Add --yes skill_run.")
    assert cli.json("replay", run, "--yes", "skill_run")["same"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """For anybody: scripts may run as somebody else."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def test_a_command_that_was_cut_off_is_not_run_again(cli: Cli, project: Path, open_folder: Path) -> None:
    mark = open_folder / "mark"
    play(cli, project, [LOAD, run_script(f"echo x >> {mark}"), {"text": "x"}], "go", "--executor", "local")
    assert mark.read_text(encoding="utf-8") == "x\n"
    (folder,) = (project / ".agent" / "runs").iterdir()
    lines = (folder / "events.jsonl").read_text(encoding="ascii").splitlines(keepends=True)
    types = [json.loads(line)["type"] for line in lines]
    for end in range(1, len(lines)):
        (folder / "events.jsonl").write_text("".join(lines[:end]), encoding="ascii")
        mark.unlink(missing_ok=True)
        document = cli.json("replay", str(folder), "--executor", "local", "--yes", "skill_run")
        assert document["same"] and document["replayed"] == end, types[end - 1]
        assert mark.exists() == (types[:end].count("call_acted") > 1), "it had ended by then"


def test_calls_made_at_the_same_time_and_child_runs_are_cut_off_too(
    cli: Cli, project: Path, make_skill: Callable[..., Path]
) -> None:
    front = "name: helper\ndescription: Helps. Use when asked.\nrun-mode: subagent\n"
    make_skill(project / ".agent" / "skills" / "helper", front=front)
    child = {"calls": [{"tool": "skill_load", "args": {"skill": "helper"}}]}
    reads = {"calls": WHOLE[1]["calls"][::-1]}  # the first one has ended before the second begins, or not
    play(cli, project, [LOAD, reads, child, LOAD, reads, {"text": "the child's answer"}, {"text": "done"}])
    (folder,) = (project / ".agent" / "runs").iterdir()
    lines = (folder / "events.jsonl").read_text(encoding="ascii").splitlines(keepends=True)
    for end in range(1, len(lines)):
        (folder / "events.jsonl").write_text("".join(lines[:end]), encoding="ascii")
        document = cli.json("replay", str(folder))
        assert document["same"] and document["replayed"] == end, lines[end - 1]


def test_a_record_that_stops_has_not_ended(cli: Cli, project: Path) -> None:
    whole, stops = (play(cli, project, [LOAD, {"text": "x"}]) for _ in range(2))
    (folder,) = (project / ".agent" / "runs").glob(f"*{stops}")
    lines = (folder / "events.jsonl").read_text(encoding="ascii").splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(lines[:-2]), encoding="ascii")
    assert cli.json("diff", str(folder), whole, code=1)["first"]["recorded"] == "nothing: the record ends here"
    assert cli.json("diff", whole, str(folder), code=1)["first"]["actual"] == "nothing: the record ends here"


# --- options of the recorded command ----------------------------------------------------------------------------------


def test_roots_executor_and_instructions_are_those_of_the_run(
    cli: Cli, project: Path, make_skill: Callable[..., Path]
) -> None:
    make_skill(project / "other" / "demo", files={"scripts/a.sh": "echo other\n"})
    words = ("--root", "other", "--executor", "local", "--instructions", "--root")
    run = play(cli, project, [LOAD, run_script("bash scripts/a.sh"), {"text": "x"}], "go", *words)
    assert cli.json("replay", run, code=1)["first"]["actual"] == "call_acted waiting approval-needed", (
        "a yes of then is not one of now"
    )
    document = cli.json("replay", run, "--yes", "skill_run")
    assert document["same"] and document["notes"] == ["As in the recorded run: --root other --executor local"]
    document = cli.json("replay", run, "--root", ".agent/skills", code=1)
    assert document["notes"][0] == "As in the recorded run: --executor local", "what was said now counts"
    shutil.move(project / "other", project / "away")
    assert "'other' is not there now" in cli.json("replay", run, code=1)["notes"][0]


def test_what_is_allowed_without_isolation_is_asked_about_in_a_replay(
    cli: Cli, project: Path, open_folder: Path
) -> None:
    rule = '[[rule]]\ntool = "skill_run"\nverdict = "allow"\nwhy = "fine"\n'
    (project / ".agent" / "policy.toml").write_text(rule, encoding="utf-8")
    cli.prowess("trust", "--yes")
    mark = open_folder / "mark"
    run = play(cli, project, [LOAD, run_script(f"echo x >> {mark}"), {"text": "x"}], "go", "--executor", "local")
    assert cli.json("show", run)["prompts"]["asked"] == 0 and mark.exists()
    mark.unlink()
    document = cli.json("replay", run, code=1)
    first = document["first"]
    assert first["what"] == "decision" and '"ask"' in first["actual"] and not mark.exists()
    assert "Add --yes skill_run." in document["notes"][-1], "nobody was there, and that is said"


@pytest.mark.needs("isolation")
def test_a_yes_of_the_command_line_is_said_again_in_a_replay(cli: Cli, project: Path) -> None:
    rule = '[[rule]]\ntool = "skill_run"\nverdict = "ask"\nwhy = "careful"\n'
    (project / ".agent" / "policy.toml").write_text(rule, encoding="utf-8")
    cli.prowess("trust", "--yes")
    run = play(cli, project, [LOAD, run_script("echo x"), {"text": "x"}])
    document = cli.json("replay", run, code=1)
    assert document["first"]["actual"] == "call_acted waiting approval-needed"
    assert "Add --yes skill_run." in document["notes"][-1]
    assert cli.json("replay", run, "--yes", "skill_run")["same"]


def test_a_record_in_a_folder_that_nobody_trusts_names_no_roots(
    cli: Cli, project: Path, make_skill: Callable[..., Path]
) -> None:
    make_skill(project / "other" / "demo")
    run = play(cli, project, [LOAD, {"text": "x"}], "go", "--root", "other")
    assert cli.json("replay", run)["same"]
    cli.prowess("trust", "--revoke", ".", "--yes")
    assert "--root other, which is not taken" in cli.json("replay", run, code=1)["notes"][0]
    assert cli.json("replay", run, "--root", "other")["same"]


def test_a_command_is_repeated_with_the_executor_that_it_was_given(cli: Cli, project: Path) -> None:
    words = ["exec", "demo", "--executor", "local", "--yes", "skill_run", "--json", "--", "echo", "hi"]
    session = json.loads(cli.prowess(*words))["session"]
    [run] = [row["run"] for row in cli.json("list")["runs"] if row["session"] == session]
    document = cli.json("replay", run, "--yes", "skill_run")
    assert document["same"] and document["notes"] == ["As in the recorded run: --executor local"]
