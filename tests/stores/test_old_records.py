"""Records that earlier commits wrote still open, verify, are shown, replayed and gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from command_lines import Cli, run_here
from prowess.agent.context.conversation import Conversation
from prowess.agent.context.render import SkillTextRenderer
from prowess.core.events import Envelope, ModelRequested, parse_event
from state_places import state_of

CORPUS = Path(__file__).parents[1] / "corpus"
MADE_BY = sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir())
ENDED = {
    "s-actions": ["answer"],
    "s-answered": ["answer"],
    "s-calls": ["answer", "answer"],
    "s-denied": ["answer"],
    "s-limit": ["limit:turns"],
    "s-offline": ["answer"],
    "s-waits": ["waiting"],
}


@pytest.fixture(params=MADE_BY)
def cli(
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    """The command line in a project whose records that commit wrote, and that were taken over from the corpus."""
    shutil.copytree(CORPUS / request.param, tmp_path / ".agent")
    monkeypatch.chdir(tmp_path)
    cli = Cli(capfd)
    imported = cli.json("runs", "import", ".agent/prowess.db", "--mine", "--yes")["sessions"]
    assert {row["session"]: row["status"] for row in imported} == dict.fromkeys(ENDED, "imported")
    shutil.copytree(tmp_path / ".agent" / "artifacts", state_of(tmp_path) / "artifacts")
    return cli


def runs_of(cli: Cli) -> dict[str, list[dict[str, str]]]:
    """The runs of each session, oldest first."""
    found: dict[str, list[dict[str, str]]] = {}
    for run in reversed(cli.json("runs", "list")["runs"]):
        found.setdefault(run["session"], []).append(run)
    return found


def test_every_run_is_listed_as_it_ended(cli: Cli) -> None:
    assert {session: [run["stop_reason"] for run in runs] for session, runs in runs_of(cli).items()} == ENDED


def test_every_record_is_valid(cli: Cli) -> None:
    assert "7 sessions · 8 runs · all valid" in cli("runs", "verify", "--all") + cli.err


def test_every_line_of_a_run_folder_is_the_line_of_the_log(cli: Cli) -> None:
    for runs in runs_of(cli).values():
        for run in runs:
            shown = [json.loads(line) for line in cli("runs", "show", run["run"], "--events", "--json").splitlines()]
            (folder,) = Path(".agent", "runs").glob(f"*{run['run']}")
            kept = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
            assert shown == kept and kept[-1]["run"] == run["run"]


def test_a_session_is_told_and_its_artifact_read(cli: Cli) -> None:
    assert "世界 😀" in cli("sessions", "show", "s-calls")
    assert cli("artifacts", "get", "out/fib.txt", "--session", "s-calls").split() == "0 1 1 2 3 5 8 13".split()


def test_a_waiting_question_is_found(cli: Cli) -> None:
    (question,) = cli.json("approvals", "list")["waiting"]
    assert (question["session"], question["tool"]) == ("s-waits", "skill_run")


def test_a_session_goes_on(cli: Cli) -> None:
    script = Path("script.json")
    script.write_text(json.dumps([{"text": "As I said before."}]), encoding="utf-8")
    assert cli("run", "And now?", "--session", "s-calls", "--model", f"scripted:{script}") == "As I said before.\n"
    assert len(runs_of(cli)["s-calls"]) == 3
    assert "all valid" in cli("runs", "verify", "--all") + cli.err


def test_a_run_is_replayed_up_to_what_today_words_otherwise(cli: Cli) -> None:
    (run,) = runs_of(cli)["s-actions"]
    answer = run_here(["runs", "replay", run["run"]], cwd=Path.cwd())
    # Guidance is worded otherwise today, and the built-in skill has evals.
    assert answer.out.startswith(("same ", "first difference: request", "first difference: digest")), answer.err


@pytest.mark.parametrize("made_by", MADE_BY)
def test_the_requests_of_a_record_have_the_bytes_that_they_had(made_by: str) -> None:
    """Notes and texts of skills stand where they stood then. The corpus does not hold the skill that was loaded: where
    it was in view its text is missing, and nothing else."""
    sessions: dict[str, list[Envelope]] = {}
    for file in (CORPUS / made_by).glob("runs/*/events.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            envelope = parse_event(json.loads(line))
            sessions.setdefault(envelope.session, []).append(envelope)
    missing: list[int] = []
    for envelopes in sessions.values():
        talk = Conversation(SkillTextRenderer(lambda id, digest: None))
        for envelope in sorted(envelopes, key=lambda envelope: envelope.seq or 0):
            talk.apply_envelope(envelope)
            if isinstance(envelope.event, ModelRequested):
                request = talk.request()
                missing.append(envelope.event.bytes - request.size_bytes)
                assert missing[-1] or request.sha256 == envelope.event.sha256
    in_result, in_system = 3_427, 3_566  # the body in view
    assert sorted(missing) == [0] * 9 + [in_result] * 14 + [in_system]
