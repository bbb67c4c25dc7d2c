"""read_file: texts by path and ref, by lines, bounded and redacted; never through a link, never outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kits import with_kit
from prowess.core.ports import CallGrant
from prowess.core.values import Outcome
from prowess.tools.files.read import ReadFile
from prowess.tools.session_work import SessionWork
from works import call, with_work, within


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    return make_skill(
        tmp_path / "skills" / "demo", files={"references/a.md": "# A\n", "assets/p.bin": b"\x89PNG\r\n\x1a\n\0"}
    ).parent


MAKE = (
    "seq 1 10 > out/n.txt; printf '\\211PNG\\r\\n\\032\\n\\000' > out/p.png; ln -s /etc/passwd out/link; "
    "echo in > work/inputs/i.txt; mkdir out/d; mkfifo out/fifo; yes | head -c 200000 > out/big.txt; : > out/empty"
)


def read(root: Path, name: str, **more: Any) -> Any:
    async def work(kit: Any) -> Any:
        await kit.call("skill_run", {"skill": "demo", "command": MAKE})
        await kit.work.backend.artifacts.save(kit.work.key, "notes@home.txt", b"kept\n")
        return await kit.call("read_file", {"file_name": name, **more})

    return with_kit(root, work, executor="local")


@pytest.mark.parametrize(
    ("name", "more", "content"),
    [
        ("workspace://out/n.txt", {"start_line": 2, "num_lines": 2}, "2\n3\n"),
        ("out/n.txt", {"start_line": 10}, "10\n"),
        ("./out/n.txt", {"num_lines": 1}, "1\n"),
        ("$OUTPUT_DIR/n.txt", {"num_lines": 1}, "1\n"),
        ("inputs/i.txt", {}, "in\n"),
        ("work/inputs/i.txt", {}, "in\n"),
        ("skill://demo/references/a.md", {}, "# A\n"),
        ("skills/demo/references/a.md", {}, "# A\n"),
        ("artifact://notes@home.txt", {}, "kept\n"),
        ("artifact://notes@home.txt@0", {}, "kept\n"),
        ("out/empty", {}, ""),
    ],
)
def test_what_can_be_read(root: Path, name: str, more: dict[str, Any], content: str) -> None:
    outcome = read(root, name, **more)
    assert outcome.status == "ok" and outcome.data["content"] == content, outcome


def test_other_names_for_the_same(root: Path) -> None:
    async def work(kit: Any) -> Any:
        await kit.call("skill_run", {"skill": "demo", "command": MAKE})
        return await kit.call("Read", {"file_path": "out/n.txt", "offset": 3, "limit": 1})

    assert with_kit(root, work, executor="local").data["content"] == "3\n"


@pytest.mark.parametrize("name", ["out/p.png", "skill://demo/assets/p.bin"])
def test_of_what_is_no_text_the_kind_is_told(root: Path, name: str) -> None:
    outcome = read(root, name)
    assert outcome.status == "ok" and outcome.data["content"] is None and outcome.data["size_bytes"] == 9
    assert outcome.data["mime_type"] in ("image/png", "application/octet-stream") and "not text" in outcome.content


def test_a_long_text_goes_on_where_it_was_cut(root: Path) -> None:
    first = read(root, "out/big.txt")
    assert first.data["truncated"] and len(first.data["content"]) <= 65536 and first.data["total_lines"] == 100_000
    assert first.data["num_lines"] == 32_768 and first.data["hint"] == "Go on with start_line 32769."


@pytest.mark.parametrize(
    ("name", "more", "code"),
    [
        ("out/none.txt", {}, "file-not-found"),
        ("out/d", {}, "not-a-plain-file"),
        ("out/link", {}, "not-a-plain-file"),
        ("out/fifo", {}, "not-a-plain-file"),
        ("/etc/passwd", {}, "path-escape"),
        ("../meta.json", {}, "path-escape"),
        ("workspace://../../x", {}, "path-escape"),
        ("host:///etc/passwd", {}, "read-refused"),
        ("skill://demo/../x", {}, "path-escape"),
        ("skill://other/x", {}, "skill-not-loaded"),
        ("skill://demo/none.md", {}, "resource-not-found"),
        ("artifact://none", {}, "artifact-not-found"),
        ("out/n.txt", {"start_line": 99}, "no-such-lines"),
        ("out/n.txt", {"start_line": 0}, "invalid-call"),
        ("$HOME/x", {}, "unknown-variable"),
    ],
)
def test_what_cannot(root: Path, name: str, more: dict[str, Any], code: str) -> None:
    outcome = read(root, name, **more)
    assert (outcome.status, outcome.code) == ("failed", code) and (outcome.hint or code == "invalid-call"), outcome
    assert "root:" not in str(outcome)


def test_a_missing_file_names_the_real_ones(root: Path) -> None:
    assert "out/n.txt" in (read(root, "out/m.txt").hint or "")


# --- inputs/ and what was touched -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "touched"),
    [
        ("inputs/i.txt", "work/inputs/i.txt"),
        ("inputs/out/n.txt", "out/n.txt"),  # there is no such input, and there is such a file
        ("workspace://inputs/out/n.txt", "out/n.txt"),
        ("skill://demo/references/a.md", "skills/demo/references/a.md"),
        ("artifact://notes@home.txt@0", "notes@home.txt"),
        ("out/p.png", "out/p.png"),
    ],
)
def test_what_was_touched_is_told_by_its_plain_name(root: Path, name: str, touched: str) -> None:
    assert read(root, name).data["paths"] == [touched]


@pytest.mark.parametrize("name", ["inputs/none.txt", "inputs/skills/demo/references/a.md", "inputs/inputs/i.txt"])
def test_no_input_and_no_file_either(root: Path, name: str) -> None:
    assert read(root, name).code == "file-not-found"


# --- a SKILL.md is asked for like a skill -----------------------------------------------------------------------------


def asked_for(root: Path, workspace_dir: str, name: str, *, use: tuple[str, ...] = ()) -> tuple[Outcome, list[Any]]:
    asked: list[Any] = []

    async def activate(ref: str, given: CallGrant) -> Outcome:
        asked.append((ref, given.trigger))
        return Outcome(status="ok", content=f"loaded: {ref}")

    skill_at = {f"{root}/demo/SKILL.md": "explicit:demo", str(Path("~/s/SKILL.md").expanduser()): "user:s"}.get

    async def story(work: SessionWork) -> Outcome:
        return await call(
            ReadFile(work, activate=activate, skill_at=skill_at), {"file_name": name}, within(trigger="user")
        )

    return with_work(workspace_dir, story, root, use=use), asked


@pytest.mark.parametrize(
    ("name", "ref"),
    [
        ("skill://demo/SKILL.md", "demo"),
        ("skill://demo/skill.md", "demo"),
        ("skill://acme/pdf/SKILL.md", "acme/pdf"),
        ("skill://project:demo/./SKILL.md", "project:demo"),
        ("skills/demo/SKILL.md", "demo"),
        ("workspace://skills/demo/SKILL.md", "demo"),
        ("$SKILLS_DIR/demo/SKILL.md", "demo"),
        ("/workspace/skills/demo/SKILL.md", "demo"),
        ("ROOT/demo/SKILL.md", "explicit:demo"),
        ("ROOT/x/../demo/SKILL.md", "explicit:demo"),
        ("~/s/SKILL.md", "user:s"),
    ],
)
def test_reading_the_file_of_a_skill_is_asking_for_the_skill(
    root: Path, workspace_dir: str, name: str, ref: str
) -> None:
    outcome, asked = asked_for(root, workspace_dir, name.replace("ROOT", str(root)))
    assert asked == [(ref, "user")] and outcome.content == f"loaded: {ref}"


def test_one_in_use_is_asked_for_by_its_id(root: Path, workspace_dir: str) -> None:
    for name in ("skill://demo/SKILL.md", "skills/demo/SKILL.md"):
        assert asked_for(root, workspace_dir, name, use=("demo",))[1] == [("explicit:demo", "user")]


@pytest.mark.parametrize(
    "name", ["out/SKILL.md", "SKILL.md", "/etc/SKILL.md", "skill://demo/references/a.md", "../SKILL.md", "a\0/SKILL.md"]
)
def test_other_files_are_files(root: Path, workspace_dir: str, name: str) -> None:
    outcome, asked = asked_for(root, workspace_dir, name, use=("demo",))
    assert not asked and "loaded" not in outcome.content


def test_a_resource_of_that_name_is_a_resource(tmp_path: Path, make_skill: Any, workspace_dir: str) -> None:
    root = make_skill(tmp_path / "lib" / "demo", files={"templates/SKILL.md": "a template\n"}).parent
    outcome, asked = asked_for(root, workspace_dir, "skill://demo/templates/SKILL.md", use=("demo",))
    assert not asked and outcome.data["content"] == "a template\n"


def test_without_anybody_to_activate_it_is_read(root: Path, workspace_dir: str) -> None:
    outcome = with_work(
        workspace_dir, lambda work: call(ReadFile(work), {"file_name": "skills/demo/SKILL.md"}), root, use=("demo",)
    )
    assert outcome.data["content"].startswith("---\nname: demo")


def test_what_was_loaded_is_read_also_when_its_source_is_gone(root: Path, workspace_dir: str) -> None:
    async def story(work: SessionWork) -> Outcome:
        (root / "demo" / "references" / "a.md").unlink()
        return await call(ReadFile(work), {"file_name": "skill://demo/references/a.md"})

    assert with_work(workspace_dir, story, root, use=("demo",)).data["content"] == "# A\n"
