"""What two fresh pairs of eyes found when they first ran skills, so that nobody has to find it again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from test_dependencies import make_wheel

from kits import open_kit, with_kit
from prowess.cli.main import main
from prowess.errors import ConfigError
from prowess.runtime.services.doctor_workspace import DIFFERS

KEYS = "name: {name}\ndescription: x\nrequires:\n  env: [{key}]\n"


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    return make_skill(tmp_path / "skills" / "demo").parent


def run(root: Path, command: str, given: dict[str, Any] | None = None, **args: Any) -> Any:
    call = {"skill": "demo", "command": command, **args}
    return with_kit(root, lambda kit: kit.call("skill_run", call), executor="local", **(given or {}))


@pytest.mark.needs("isolation")
def test_copies_go_by_the_real_names_and_are_whole_or_not_there(root: Path, tmp_path: Path, capfd: Any) -> None:
    config = tmp_path / "config.toml"
    config.write_text('redact = ["hel+o"]\n', encoding="utf-8")
    words = ["exec", "demo", "--root", str(root), "--config", str(config), "--output-dir", str(tmp_path / "res")]
    assert main([*words, "--shell", "--", "echo hello > out/hello.txt"]) == 0
    assert (tmp_path / "res" / "hello.txt").read_text(encoding="utf-8") == "hello\n"
    (tmp_path / "res" / "sub").write_text("in the way", encoding="utf-8")
    assert main([*words, "--shell", "--", "mkdir out/sub; echo 1 > out/sub/x; echo 2 > out/z; echo said"]) == 125
    out, err = capfd.readouterr()
    assert out.endswith("said\n") and "sub/x was not written" in err and "[exit 0" in err, "the run is not lost"
    assert (tmp_path / "res" / "z").read_text(encoding="utf-8") == "2\n"
    assert not [path for path in (tmp_path / "res").iterdir() if path.name.endswith(".part")]


def test_the_doctor_sees_a_folder_that_scripts_cannot_reach(
    tmp_path: Path, capfd: Any, monkeypatch: Any, not_run: Any
) -> None:
    if os.geteuid() != 0:
        not_run("a folder that scripts cannot reach", "without root they are ourselves, and reach it")
        return
    (tmp_path / "closed").mkdir(mode=0o700)
    monkeypatch.setenv("PROWESS_WORKSPACE_DIR", str(tmp_path / "closed" / "ws"))
    assert main(["doctor", "--workspace"]) == 1
    assert "NOTHING CAN RUN" in capfd.readouterr().out


def test_the_doctor_goes_on_where_no_workspace_can_be_made(tmp_path: Path, capfd: Any, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("PROWESS_WORKSPACE_DIR", str(tmp_path / "file" / "ws"))
    assert main(["doctor", "--workspace"]) == 1
    out, err = capfd.readouterr()
    assert "NOTHING CAN RUN" in out and str(tmp_path / "file" / "ws") in out and "[workspace-dir]" in out
    assert "bwrap+seccomp: " in out and "landlock+seccomp: " in out and "0 workspaces" in out, "all else is looked at"
    assert err == ""


def test_the_doctor_says_what_it_means_that_a_script_is_oneself(tmp_path: Path, capfd: Any, not_run: Any) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[workspace]\nexecutor = "local"\n', encoding="utf-8")
    assert main(["doctor", "--workspace", "--config", str(config)]) == 0
    out = capfd.readouterr().out
    told = ("note: A script runs as you: " in out, "not held: as you, a script can change the mode" in out)
    works = "landlock+seccomp: works" in out
    if os.geteuid() == 0:
        not_run("scripts that run as oneself", "as root they are somebody else")
    assert told == ((False, False) if os.geteuid() == 0 else (True, works))


def test_the_doctor_says_what_differs_in_the_words_of_the_page(tmp_path: Path, capfd: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "executors.md").read_text(encoding="utf-8")
    said = {each for differences in DIFFERS.values() for each in differences}
    table = page.partition("| where | what differs |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.split(" | ", 1)[1] for line in table.splitlines()]
    assert len(rows) == len(said) and all(any(row.startswith(each) for row in rows) for each in said)
    config = tmp_path / "config.toml"
    config.write_text('[workspace]\nexecutor = "local"\n', encoding="utf-8")
    main(["doctor", "--workspace", "--config", str(config)])
    out = capfd.readouterr().out
    for name in ("none", *(("landlock+seccomp",) if "landlock+seccomp: works" in out else ())):
        assert f"differs: {' · '.join(DIFFERS[name])}" in out


def test_a_secret_in_the_wrong_place_is_not_repeated(tmp_path: Path, make_skill: Any) -> None:
    root = make_skill(tmp_path / "skills" / "demo", front=KEYS.format(name="demo", key="API_KEY")).parent
    with pytest.raises(ConfigError) as refused:
        run(root, "true", {"settings": {"secrets": {"API_KEY": "sk-live-the-real-value"}}})
    assert "sk-live" not in str(refused.value)

    async def unloaded() -> list[str]:
        settings = {"secrets": {"API_KEY": "file:none"}}
        async with open_kit(root, executor="local", settings=settings, load=None) as kit:
            with pytest.raises(ConfigError):
                await kit.activate("demo")
            return list(kit.work.loaded)

    assert asyncio.run(unloaded()) == [], "what could not be loaded is not loaded"


def test_skills_loaded_at_once_keep_their_secrets(tmp_path: Path, make_skill: Any) -> None:
    for name, key in (("one", "KEY_A"), ("two", "KEY_B")):
        make_skill(tmp_path / "skills" / name, front=KEYS.format(name=name, key=key))
    settings = {"secrets": {"KEY_A": "env:A", "KEY_B": "env:B"}}

    async def story() -> list[str]:
        environ = {"A": "value-of-a", "B": "no"}
        async with open_kit(
            tmp_path / "skills", executor="local", settings=settings, environ=environ, load=None
        ) as kit:
            await asyncio.gather(kit.activate("one"), kit.activate("two"))
            assert kit.unredacted_secrets == ("KEY_B",), "too short to be hidden, and that is known"
            commands = {"one": "printf ${#KEY_A}", "two": "printf ${#KEY_B}"}
            outcomes = [await kit.call("skill_run", {"skill": s, "command": c}) for s, c in commands.items()]
            return [outcome.data["stdout"] for outcome in outcomes]

    assert asyncio.run(story()) == ["10", "2"]


def test_programs_that_nobody_looks_at_leave_no_descriptor(root: Path) -> None:
    async def work(kit: Any) -> tuple[int, int]:
        await kit.call("skill_run", {"skill": "demo", "command": "true"})
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(12):
            started = await kit.call("skill_exec", {"skill": "demo", "command": "true", "yield_ms": 0})
            await kit._programs().get(started.data["session_id"]).watching
        return before, len(os.listdir("/proc/self/fd"))

    before, after = with_kit(root, work, executor="local")
    assert after <= before + 1


def test_whoever_watches_the_output_breaks_nothing(root: Path) -> None:
    def watch(stream: str, data: bytes) -> None:
        raise RuntimeError("broken")

    outcome = run(root, "echo fine", {"on_output": watch})
    assert outcome.data["stdout"] == "fine\n" and "broken" in " ".join(outcome.data["warnings"])


def test_what_a_person_gave_waits_for_a_call_that_works(root: Path, tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("given", encoding="utf-8")

    async def work(kit: Any) -> Any:
        failed = await kit.call("skill_run", {"skill": "demo", "command": "true", "cwd": "/nope"})
        assert failed.code == "path-escape"
        return await kit.call("skill_run", {"skill": "demo", "command": "cat inputs/g.txt"})

    assert with_kit(root, work, executor="local", granted=[(str(tmp_path / "g.txt"), None)]).data["stdout"] == "given"


def test_a_folder_is_not_copied_into_itself(root: Path) -> None:
    assert run(root, "true", inputs=[{"from": "workspace://work"}]).code == "input-refused"


def test_a_policy_that_is_a_fifo_hangs_nobody(root: Path) -> None:
    (root / ".agent").mkdir()
    os.mkfifo(root / ".agent" / "policy.toml")
    assert run(root, "true").status == "ok", "the folder is not trusted: its policy can do nothing but tighten"
    with pytest.raises(ConfigError) as refused:
        run(root, "true", {"environ": {"PROWESS_TRUST": "true"}})
    assert refused.value.code == "policy-unreadable"


def test_python3_and_a_script_is_that_script(tmp_path: Path, make_skill: Any) -> None:
    block = '# /// script\n# dependencies = ["plaindep"]\n# ///\n'
    script = f"{block}import plaindep, sys\nprint(plaindep.SAYS, *sys.argv[1:])\n"
    root = make_skill(tmp_path / "skills" / "demo", files={"scripts/x.py": script}).parent
    make_wheel(tmp_path, "plaindep", "1.0", {"plaindep.py": "SAYS = 'found'\n"})
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path)}
    outcome = run(root, "python3 scripts/x.py a b", {"environ": offline})
    assert outcome.data["stdout"] == "found a b\n", outcome
