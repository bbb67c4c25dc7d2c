"""skill_run through the kit: from a call to the files it made, with whatever came of it in the result."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kits import open_kit, with_kit
from prowess.core.values import Outcome

PAYLOADS = Path(__file__).parents[1] / "fixtures" / "seed-003"
EXECUTORS = ("local", pytest.param("sandbox", marks=pytest.mark.needs("isolation")))


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    make_skill(
        tmp_path / "skills" / "demo",
        files={
            "scripts/hello.py": "import sys\nprint('hello', *sys.argv[1:])\n",
            "scripts/fail.py": "import sys\nprint('half')\nsys.exit(3)\n",
            "scripts/need.py": "import not_there_at_all\n",
            "scripts/plain.sh": "echo shell $0 $#\n",
            "assets/table.csv": "a,b\n1,2\n",
        },
    )
    return tmp_path / "skills"


def run(root: Path, _executor: str = "local", _given: dict[str, Any] | None = None, **args: Any) -> Outcome:
    return with_kit(
        root, lambda kit: kit.call("skill_run", {"skill": "demo", **args}), executor=_executor, **(_given or {})
    )


# --- the source's own examples ----------------------------------------------------------------------------------------


def payload(number: int) -> dict[str, Any]:
    (path,) = PAYLOADS.glob(f"{number}-*.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_five_payloads_of_the_source(root: Path, executor: str) -> None:
    notes = Path("/tmp/notes.txt")
    there = notes.exists()
    if not there:
        notes.write_text("one\ntwo\nthree\n", encoding="utf-8")
    expected = len(notes.read_text(encoding="utf-8").splitlines())
    try:
        asyncio.run(_five(root, executor, expected))
    finally:
        if not there:
            notes.unlink()


async def _five(root: Path, executor: str, expected: int) -> None:
    async with open_kit(root, executor=executor, settings={"workspace.host_roots": ["/tmp"]}) as kit:
        staged = await kit.call("skill_run", payload(1))
        assert staged.status == "ok", staged
        (file,) = staged.data["output_files"]
        assert (file["name"], file["ref"]) == ("out/lines.txt", "workspace://out/lines.txt")
        assert file["content"].split()[0] == str(expected)
        assert staged.data["staged_inputs"][0]["name"] == "work/inputs/notes.txt"
        assert staged.data["primary_output"]["name"] == "out/lines.txt" and staged.data["artifact_files"] == []

        bare = await kit.call("skill_run", payload(2))
        found = {file["name"]: file for file in bare.data["output_files"]}
        assert "content" not in found["out/a.txt"] and found["out/a.txt"]["size_bytes"] == 3
        assert bare.data["primary_output"] == found["out/a.txt"], "metadata only"

        read = await kit.call("read_file", payload(3))
        assert read.data["content"] == "hi\n" and read.data["total_lines"] == 1

        saved = await kit.call("skill_run", payload(4))
        assert saved.data["artifact_files"] == [{"name": "out/report.txt", "version": 0}]
        assert "content" not in saved.data["output_files"][0]
        artifact = await kit.call("read_file", {"file_name": "artifact://out/report.txt@0"})
        assert artifact.data["content"] == "report\n"

        legacy = await kit.call("skill_run", payload(5))
        assert legacy.data["artifact_files"] == [{"name": "pref/out/report.txt", "version": 0}]
        assert [outcome.status for outcome in (staged, bare, read, saved, legacy)] == ["ok"] * 5


# --- what a run gives back --------------------------------------------------------------------------------------------


def test_the_shape_of_the_contract(root: Path, executor: str) -> None:
    outcome = run(root, executor, command="echo out; echo err >&2; echo x > out/x.txt")
    data = outcome.data
    wanted = (
        "stdout stderr exit_code timed_out duration_ms truncated primary_output output_files artifact_files "
        "staged_inputs warnings isolation"
    )
    assert set(wanted.split()) <= data.keys()
    assert (data["stdout"], data["stderr"], data["exit_code"], data["timed_out"]) == ("out\n", "err\n", 0, False)
    assert data["output_files"] == [
        {
            "name": "out/x.txt",
            "ref": "workspace://out/x.txt",
            "mime_type": "text/plain",
            "size_bytes": 2,
            "truncated": False,
            "content": "x\n",
        }
    ]
    assert data["isolation"]["executor"] == executor and data["isolation"]["uid"] != 0
    assert outcome.content == "out\n[stderr]\nerr\n[file out/x.txt: 2 bytes]\nx"


def test_failing_and_time_out_keep_everything(root: Path, executor: str) -> None:
    failed = run(root, executor, command="echo before; echo part > out/part.txt; exit 7")
    assert (failed.status, failed.code, failed.data["exit_code"]) == ("failed", "command-failed", 7)
    assert failed.data["stdout"] == "before\n" and failed.data["output_files"][0]["content"] == "part\n"
    late = run(root, executor, command="echo before; echo part > out/part.txt; sleep 600", timeout=0.5)
    assert (late.status, late.code, late.data["timed_out"]) == ("failed", "timeout", True)
    assert late.data["stdout"] == "before\n" and late.data["output_files"][0]["content"] == "part\n"
    assert any("0.5 s" in warning for warning in late.data["warnings"])
    killed = run(root, executor, command="kill -9 $$")
    assert killed.data["exit_code"] == 137


def test_a_script_is_found_from_the_skill_whatever_the_folder(root: Path, executor: str) -> None:
    for cwd in (None, "assets", "$WORK_DIR", "${OUTPUT_DIR}", "$WORKSPACE_DIR", "$RUN_DIR"):
        outcome = run(
            root, executor, script="scripts/hello.py", args=["a b", "$HOME", "-x"], **({"cwd": cwd} if cwd else {})
        )
        assert outcome.data["stdout"] == "hello a b $HOME -x\n", (cwd, outcome)
    assert run(root, executor, script="scripts/plain.sh", args=["1", "2"]).data["stdout"].endswith(" 2\n")
    missing = run(root, executor, script="scripts/helo.py")
    assert (missing.status, missing.code) == ("failed", "script-not-found") and "scripts/hello.py" in (
        missing.hint or ""
    )


@pytest.mark.parametrize("cwd", ["..", "../..", "/etc", "$WORK_DIR/../..", "$HOME", "assets/../../..", "$NOWHERE/x"])
def test_leaving_the_workspace_is_an_error_and_nothing_runs(root: Path, cwd: str) -> None:
    outcome = run(root, command="echo ran > $WORK_DIR/ran", cwd=cwd)
    assert outcome.status == "failed" and outcome.code in ("path-escape", "unknown-variable") and outcome.hint
    assert "exit_code" not in outcome.data


def test_every_run_knows_where_it_is(root: Path, executor: str) -> None:
    names = "WORKSPACE_DIR SKILLS_DIR WORK_DIR OUTPUT_DIR RUN_DIR SKILL_NAME SKILL_DIR"
    outcome = run(
        root, executor, command=f"for n in {names}; do eval echo \\$$n; done; pwd; touch $RUN_DIR/x && echo yes"
    )
    *places, here, yes = outcome.data["stdout"].splitlines()
    assert len(places) == 7 and all(places) and here == places[6] and yes == "yes"
    assert places[5] == "demo" and places[2].startswith(places[0])


def test_the_environment_is_built_and_not_inherited(root: Path, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", "canary-value")
    outcome = run(root, executor, command="env", env={"MINE": 1})
    assert "canary" not in outcome.data["stdout"] and "MINE=1\n" in outcome.data["stdout"]


def test_stdin_and_words_arrive_as_they_are(root: Path, executor: str) -> None:
    assert run(root, executor, command="cat", stdin="héllo\n").data["stdout"] == "héllo\n"
    assert run(root, executor, command="cat").data["stdout"] == "", "no input is an end of file, not a hang"


def test_a_long_output_is_cut_in_the_middle_and_whole_in_a_file(root: Path, executor: str) -> None:
    async def work(kit: Any) -> tuple[Outcome, Outcome]:
        made = await kit.call("skill_run", {"skill": "demo", "command": "seq 1 100000; echo end >&2"})
        return made, await kit.call(
            "read_file", {"file_name": made.data["stdout_ref"], "start_line": 50_000, "num_lines": 2}
        )

    made, whole = with_kit(root, work, executor=executor)
    text = made.data["stdout"]
    assert made.data["truncated"] and text.startswith("1\n2\n") and text.endswith("99999\n100000\n")
    assert len(text.encode()) < 17_000 and "bytes left out" in text
    assert whole.data["content"] == "50000\n50001\n" and made.data["stderr"] == "end\n"
    assert any("stdout_ref" in key for key in made.data) and any(
        "workspace://runs/" in w for w in made.data["warnings"]
    )


def test_bytes_that_are_no_text(root: Path, executor: str) -> None:
    outcome = run(root, executor, command=r"printf 'a\377b'; printf '\000\001\002' > out/x.bin", output_files=["out/*"])
    assert outcome.data["stdout"] == "a�b"
    (file,) = outcome.data["output_files"]
    assert "content" not in file and file["mime_type"] == "application/octet-stream" and file["size_bytes"] == 3


def test_what_was_made_before_is_not_made_now(root: Path) -> None:
    async def work(kit: Any) -> list[list[str]]:
        made = []
        for command in ("echo a > out/a; echo b > out/b", "true", "echo c > out/c; echo bb > out/b"):
            outcome = await kit.call("skill_run", {"skill": "demo", "command": command})
            made.append([file["name"] for file in outcome.data["output_files"]])
        return made

    assert with_kit(root, work, executor="local") == [["out/a", "out/b"], [], ["out/b", "out/c"]]


def test_a_glob_that_matches_nothing_is_said(root: Path) -> None:
    outcome = run(root, command="true", output_files=["out/*.pdf", "$OUTPUT_DIR/none"])
    assert outcome.status == "ok" and [w for w in outcome.data["warnings"] if "matches no file" in w]


def test_odd_things_in_out_are_refused_and_cost_nothing_else(root: Path, executor: str) -> None:
    make = (
        "ln -s /etc/passwd out/link; mkfifo out/fifo; ln -s nowhere out/broken; mkdir out/d; echo ok > out/d/good.txt"
    )
    outcome = run(root, executor, command=make, output_files=["out/**"])
    assert [file["name"] for file in outcome.data["output_files"]] == ["out/d/good.txt"]
    said = " ".join(outcome.data["warnings"])
    assert all(name in said for name in ("out/link", "out/fifo", "out/broken"))


def test_artifacts_go_in_and_out_whole(root: Path, executor: str) -> None:
    async def work(kit: Any) -> Any:
        make = "head -c 5000000 /dev/zero > out/big.bin; printf '\\211PNG' > out/p.png"
        one = await kit.call(
            "skill_run", {"skill": "demo", "command": make, "outputs": {"globs": ["out/*"], "save": True}}
        )
        two = await kit.call(
            "skill_run",
            {
                "skill": "demo",
                "inputs": [{"from": "artifact://out/big.bin@0", "to": "work/in.bin"}, {"from": "artifact://out/p.png"}],
                "command": "wc -c < work/in.bin; wc -c < inputs/p.png; echo more >> work/inputs/p.png && echo mine",
            },
        )
        return one, two

    one, two = with_kit(root, work, executor=executor)
    assert one.data["artifact_files"] == [{"name": "out/big.bin", "version": 0}, {"name": "out/p.png", "version": 0}]
    assert two.data["stdout"].split() == ["5000000", "4", "mine"], two


def test_a_pinned_artifact_stays_what_it_was(root: Path) -> None:
    async def work(kit: Any) -> list[str]:
        async def save(text: str) -> None:
            await kit.work.backend.artifacts.save(kit.work.key, "a.txt", text.encode())

        async def read(pin: bool) -> str:
            to = "work/pinned.txt" if pin else "work/newest.txt"
            given = [{"from": "artifact://a.txt", "to": to, "pin": pin}]
            outcome = await kit.call("skill_run", {"skill": "demo", "command": f"cat {to}", "inputs": given})
            return outcome.data["stdout"]

        await save("first")
        seen = [await read(True), await read(False)]
        await save("second")
        return [*seen, await read(True), await read(False)]

    assert with_kit(root, work, executor="local") == ["first", "first", "first", "second"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"from": "host:///etc/hostname"}, "host-not-allowed"),
        ({"from": "artifact://nothing"}, "artifact-not-found"),
        ({"from": "skill://other/x"}, "skill-not-loaded"),
        ({"from": "workspace://../../x"}, "path-escape"),
        ({"from": "skill://demo/SKILL.md", "to": "../x"}, "input-target"),
        ({"from": "skill://demo/SKILL.md", "to": "skills/demo/x"}, "input-target"),
        ({"from": "gopher://x"}, "input-refused"),
        ({"from": "skill://demo/none"}, "input-refused"),
    ],
)
def test_inputs_that_may_not_be_had(root: Path, given: dict[str, Any], code: str) -> None:
    outcome = run(root, command="true", inputs=[given])
    assert (outcome.status, outcome.code) == ("failed", code) and outcome.hint, outcome
    if code == "input-target":
        assert given["to"] in outcome.content and "below work/ or out/" in outcome.content


def test_a_command_without_a_skill_belongs_to_the_only_one(root: Path, make_skill: Any) -> None:
    """As a model that knows another system calls it: `Bash {command}`."""
    make_skill(root / "other")

    async def work(kit: Any) -> None:
        bash = {"command": "echo $SKILL_NAME", "description": "Say which skill it is"}
        for tool, args in (("Bash", bash), ("skill_run", {"skill": "", "script": "scripts/hello.py"})):
            none = await kit.call(tool, args)
            assert none.code == "invalid-call" and "'skill'" in none.content
        await kit.activate("demo")
        assert (await kit.call("Bash", bash)).data["stdout"] == "demo\n"
        program = await kit.call("skill_exec", {"command": "echo $SKILL_NAME", "yield_ms": 5000})
        assert "demo" in program.content
        await kit.activate("other")
        assert (await kit.call("Bash", bash)).code == "invalid-call", "nobody can tell which of two is meant"
        assert (await kit.call("Bash", {**bash, "skill": "other"})).data["stdout"] == "other\n"

    with_kit(root, work, executor="local", load=None)


def test_a_missing_dependency_is_named(root: Path, executor: str) -> None:
    module = run(root, executor, script="scripts/need.py")
    assert module.code == "missing-dependency" and module.data["missing_dependency"]["name"] == "not_there_at_all"
    program = run(root, executor, command="no-such-program --x")
    assert program.data["exit_code"] == 127 and program.data["missing_dependency"]["name"] == "no-such-program"


def test_a_command_list_takes_the_shell_away(root: Path, executor: str) -> None:
    given = {"settings": {"workspace.commands_allow": ["echo", "python3"]}}
    assert run(root, executor, given, command="echo '$HOME' \"a  b\"").data["stdout"] == "$HOME a  b\n"
    assert run(root, executor, given, script="scripts/hello.py").data["stdout"] == "hello\n"
    for command in ("ls", "echo a; ls", "echo $(ls)", "echo a > out/x", "env ls", "bash -c ls"):
        denied = run(root, executor, given, command=command)
        assert denied.status == "denied" and "workspace.commands" in denied.data["rule"], command


def test_lists_from_the_environment(root: Path) -> None:
    denied = run(root, "local", {"environ": {"PROWESS_RUN_DENIED_COMMANDS": "rm, curl"}}, command="rm x")
    assert denied.status == "denied"
    older = run(root, "local", {"environ": {"TRPC_AGENT_SKILL_RUN_ALLOWED_COMMANDS": "echo"}}, command="ls")
    assert older.status == "denied"


def test_secrets_reach_the_script_and_nobody_else(tmp_path: Path, make_skill: Any, executor: str) -> None:
    front = "name: demo\ndescription: x\nrequires:\n  env: [API_KEY]\n"
    root = make_skill(tmp_path / "skills" / "demo", front=front).parent
    settings = {"secrets": {"API_KEY": "env:REAL_KEY", "OTHER": "env:OTHER_KEY"}}
    given = {"settings": settings, "environ": {"REAL_KEY": "s3cret-value-123", "OTHER_KEY": "other-value-456"}}
    show = "echo $API_KEY; echo $API_KEY | base64; echo ${OTHER-none}; echo $API_KEY > out/k.txt; echo $API_KEY >&2"
    outcome = run(root, executor, given, command=show)
    assert "s3cret-value-123" not in str(outcome) and "[secret API_KEY]" in outcome.data["stdout"]
    assert "none" in outcome.data["stdout"] and outcome.data["stderr"] == "[secret API_KEY]\n"
    assert outcome.data["output_files"][0]["size_bytes"] == len("s3cret-value-123") + 1, "a file is as it was written"
    missing = run(root, executor, {"settings": settings}, command="true")
    assert (missing.code, missing.status) == ("requires-missing", "failed") and "API_KEY" in missing.content


def test_no_secret_is_cut_in_two_before_it_is_found(tmp_path: Path, make_skill: Any) -> None:
    front = "name: demo\ndescription: x\nrequires:\n  env: [API_KEY]\n"
    root = make_skill(tmp_path / "skills" / "demo", front=front).parent
    given = {"settings": {"secrets": {"API_KEY": "env:K"}}, "environ": {"K": "alpha-secret-AAAA-1234567890"}}
    outputs = {"globs": ["out/k.txt"], "inline": True, "max_file_bytes": 27}
    outcome = run(root, "local", given, command="printf %s $API_KEY > out/k.txt", outputs=outputs)
    assert "alpha-secret" not in str(outcome) and outcome.data["output_files"][0]["truncated"]


def test_what_cannot_be_collected_is_refused_before_anything_runs(root: Path) -> None:
    outcome = run(root, command="echo ran", output_files=["out/*", "../x"])
    assert (outcome.status, outcome.code, outcome.data) == ("failed", "path-escape", {})
    assert run(root, command="echo x > out/x", outputs={"globs": ["out/*"], "max_file_bytes": 2**63}).status == "ok"


def test_what_a_script_makes_of_its_folders_costs_no_result(root: Path) -> None:
    made = run(root, command="cd out; for i in $(seq 70); do mkdir d; cd d; done; echo deep > x; echo fine")
    assert made.data["stdout"] == "fine\n" and any("deeper than" in warning for warning in made.data["warnings"])
    odd = run(root, command="printf x > $'out/a\\xff.txt'; echo fine")
    assert odd.data["stdout"] == "fine\n" and any("no name in UTF-8" in warning for warning in odd.data["warnings"])


def test_what_a_skill_requires_is_looked_for_first(tmp_path: Path, make_skill: Any, executor: str) -> None:
    front = "name: demo\ndescription: x\nrequires:\n  bins: [bash, no-such-tool]\n  python: '>=3.8'\n"
    root = make_skill(tmp_path / "skills" / "demo", front=front).parent
    outcome = run(root, executor, command="echo ran")
    assert outcome.code == "requires-missing" and "no-such-tool (program)" in outcome.content
    assert "bash" not in outcome.content and "Python" not in outcome.content


@pytest.mark.needs("isolation")
def test_a_program_in_a_box_can_call_itself_by_name(root: Path) -> None:
    serve = "import socket as s; a = s.create_server(('localhost', 0)); s.create_connection(a.getsockname()); print(1)"
    outcome = run(root, "sandbox", command=f'python3 -c "{serve}"; cat /etc/hosts')
    if "bwrap" in outcome.data["isolation"]["mechanism"]:  # Landlock's box makes no sockets
        assert outcome.data["stdout"] == "1\n127.0.0.1 localhost box\n::1 localhost\n", outcome.data["stderr"]


def test_a_skill_is_loaded_before_it_runs(root: Path) -> None:
    outcome = run(root, "local", {"load": None}, command="true")
    assert (outcome.status, outcome.code) == ("failed", "call-again"), "a person would be asked: the model reads first"


def test_allowed_tools_of_the_skill_hold(tmp_path: Path, make_skill: Any) -> None:
    front = "name: demo\ndescription: x\nallowed-tools: Bash(echo:*) Read\n"
    root = make_skill(tmp_path / "skills" / "demo", front=front).parent
    assert run(root, command="echo fine").status == "ok"
    assert run(root, command="ls").status == "denied"


def test_what_was_loaded_is_what_runs(root: Path, executor: str) -> None:
    async def work(kit: Any) -> Outcome:
        (root / "demo" / "scripts" / "hello.py").write_text("print('changed')", encoding="utf-8")
        return await kit.call("skill_run", {"skill": "demo", "script": "scripts/hello.py"})

    assert with_kit(root, work, executor=executor).data["stdout"] == "hello\n"


def test_the_source_is_never_touched(root: Path, executor: str) -> None:
    def look() -> dict[str, bytes]:
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    before = look()
    run(root, executor, command="echo evil >> SKILL.md; rm -f scripts/*; echo x > new; echo y > out/y; mkdir .venv/z")
    assert look() == before


def test_the_record_has_everything(root: Path) -> None:
    async def work(kit: Any) -> list[str]:
        await kit.call("skill_run", {"skill": "demo", "command": "true"})
        return [envelope.event.type async for envelope in kit.recorder._log.read(kit.recorder.key)]

    types = with_kit(root, work, executor="local")
    assert types == [
        "run_started",
        "call_planned",
        "call_decided",
        "skill_loaded",
        "call_acted",
        "call_planned",
        "call_decided",
        "approval_asked",
        "approval_answered",
        "call_acted",
    ]


def test_a_full_quota_ends_the_run_and_says_so(root: Path, executor: str) -> None:
    settings = {"workspace.limits": {"disk": 5_000_000}}
    outcome = run(root, executor, {"settings": settings}, command="head -c 50000000 /dev/zero > work/big; sleep 600")
    assert outcome.status == "failed" and any("more than the limit of 5000000" in w for w in outcome.data["warnings"])


def test_runs_of_one_session_see_the_same_files_and_others_do_not(root: Path, executor: str) -> None:
    async def one(kit: Any) -> Any:
        await kit.call("skill_run", {"skill": "demo", "command": "echo kept > work/kept.txt"})
        return await kit.call("skill_run", {"skill": "demo", "command": "cat work/kept.txt"})

    session = f"test-{os.getpid()}-{executor}"
    assert with_kit(root, one, executor=executor, session=session).data["stdout"] == "kept\n"
    again = run(root, executor, {"session": session}, command="cat work/kept.txt")
    assert again.data["stdout"] == "kept\n", "a session's files are there again"
    assert run(root, executor, command="cat work/kept.txt").status == "failed"


def test_inputs_that_could_not_be_kept_the_same_are_mentioned(root: Path) -> None:
    outcome = run(root, "local", command="rm -r $WORK_DIR/inputs && echo x > $WORK_DIR/inputs")
    assert outcome.data["exit_code"] == 0
    assert any("work/inputs" in each and "not carried" in each for each in outcome.data["warnings"])
