"""list_dir, grep, write_file and delete_file: what is there is told, what may be changed is changed, links lead
nowhere, and nothing that a script left behind can hold them up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prowess import open_runtime
from prowess.core.values import Outcome
from prowess.policy.secrets import Redactor
from prowess.runtime.kit_preview import preview_kit
from prowess.tools.files.grep import Grep
from prowess.tools.files.list import ListDir
from prowess.tools.files.paths import match_glob, shown
from prowess.tools.files.read import ReadFile
from prowess.tools.files.write import DeleteFile, WriteFile
from prowess.tools.session_work import SessionWork
from works import UID, call, open_work, with_work, within

Story = Callable[[SessionWork], Awaitable[Any]]


@pytest.fixture
def skills(tmp_path: Path, make_skill: Any) -> Path:
    make_skill(
        tmp_path / "skills" / "demo",
        files={
            "references/a.md": "# A\nsome needle here\n",
            "references/deep/b.md": "needle\n",
            "scripts/run.py": "print('x')\n",
            "big.txt": "needle\n" * 400_000,
        },
    )
    make_skill(tmp_path / "skills" / "other", files={"references/o.md": "needle\n"})
    return tmp_path / "skills"


@pytest.fixture
def tell(workspace_dir: str, skills: Path) -> Callable[[Story], Any]:
    return lambda story: with_work(workspace_dir, story, skills, use=("demo",))


async def root_of(work: SessionWork) -> Path:
    return Path((await work.workspace())[1].root)


async def fill(work: SessionWork) -> Path:
    """What a script could have left behind."""
    root = await root_of(work)
    (root / "out" / "sub" / "deep").mkdir(parents=True)
    (root / "out" / "n.txt").write_text("one\ntwo needle\nthree\n", encoding="utf-8")
    (root / "out" / "sub" / "a.csv").write_text("a,b\nneedle,2\n", encoding="utf-8")
    (root / "out" / "sub" / "deep" / "c.md").write_text("needle\n", encoding="utf-8")
    (root / "out" / "p.bin").write_bytes(b"needle\0\n")
    (root / "work" / "inputs" / "i.txt").write_text("input\n", encoding="utf-8")
    os.symlink("/etc/passwd", root / "out" / "link")
    os.symlink("/etc", root / "out" / "etc")
    os.mkfifo(root / "out" / "fifo")
    return root


# --- list_dir ---------------------------------------------------------------------------------------------------------


def listed(tell: Any, **args: Any) -> Outcome:
    async def story(work: SessionWork) -> Outcome:
        await fill(work)
        return await call(ListDir(work), args)

    return tell(story)


@pytest.mark.parametrize(
    "path", [{}, {"path": ""}, {"path": "."}, {"path": "workspace://"}, {"path": "$WORKSPACE_DIR"}]
)
def test_the_top_has_the_folders_of_a_workspace(tell: Any, path: dict[str, Any]) -> None:
    outcome = listed(tell, **path)
    assert outcome.status == "ok" and outcome.content == "out/\nruns/\nskills/\nwork/", outcome
    assert outcome.data["paths"] == ["."]


def test_a_folder_is_listed_sorted_with_sizes_and_links_as_links(tell: Any) -> None:
    lines = listed(tell, path="out").content.splitlines()
    assert lines == [
        "etc  -> /etc",
        "fifo  (a FIFO)",
        "link  -> /etc/passwd",
        "n.txt  21",
        "p.bin  8",
        "sub/",
    ]


def test_depth_goes_down_and_no_further(tell: Any) -> None:
    assert "sub/deep/" in listed(tell, path="out", depth=2).content.splitlines()
    assert "sub/deep/c.md  7" not in listed(tell, path="out", depth=2).content.splitlines()
    assert "sub/deep/c.md  7" in listed(tell, path="out", depth=3).content.splitlines()
    every = listed(tell, depth=5).content.splitlines()
    assert {"out/sub/deep/c.md  7", "work/inputs/i.txt  6", "skills/demo/references/a.md  21"} <= set(every)
    assert not any("passwd" in line and "->" not in line for line in every), "a link is not entered"


@pytest.mark.parametrize("depth", [0, 6, "x", -1])
def test_a_depth_that_is_none_is_asked_for_again(tell: Any, depth: Any) -> None:
    assert listed(tell, path="out", depth=depth).code == "invalid-call"


@pytest.mark.parametrize("path", ["skill://demo", "skills/demo", "skill://demo/", "workspace://skills/demo/."])
def test_a_skill_in_use_is_listed_as_it_was_loaded(tell: Any, path: str) -> None:
    lines = listed(tell, path=path).content.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["SKILL.md", "big.txt", "references/", "scripts/"]


def test_other_places_of_a_skill(tell: Any) -> None:
    assert listed(tell, path="skill://demo/references", depth=2).content == "a.md  21\ndeep/\ndeep/b.md  7"
    assert listed(tell, path="skill://demo/references/a.md").content == "a.md  21"
    assert listed(tell, path="skills").content == "demo/"
    assert listed(tell, path="skill://other").code == "skill-not-loaded"
    missing = listed(tell, path="skill://demo/reference")
    assert missing.code == "resource-not-found" and "references" in (missing.hint or "")


def test_a_file_lists_itself_and_a_missing_folder_names_others(tell: Any) -> None:
    assert listed(tell, path="out/n.txt").content == "n.txt  21"
    assert listed(tell, path="inputs").content == "i.txt  6"
    assert listed(tell, path="work/nothing").code == "file-not-found"
    assert "out/sub" in (listed(tell, path="out/sup").hint or "")


def test_a_glob_of_other_systems_lists_what_matches(tell: Any) -> None:
    assert listed(tell, pattern="**/*.md", path="out").content == "sub/deep/c.md  7"
    assert listed(tell, pattern="*.csv").content == "out/sub/a.csv  13"
    assert listed(tell, pattern="*.none").content == "(nothing matches)"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/etc", "path-escape"),
        ("..", "path-escape"),
        ("out/../..", "path-escape"),
        ("out\\..\\..", "path-escape"),
        ("out/link", None),  # shown as what it is
        ("out/etc", None),
        ("out/etc/ssl", "not-a-plain-file"),
        ("a\0b", "path-escape"),
        ("artifact://x", "read-refused"),
        ("host:///etc", "read-refused"),
        ("$HOME", "unknown-variable"),
        ("out/\ud800", "invalid-call"),
        ("x" * 5000, "file-not-found"),
        ("out/" + "d/" * 2000, "file-not-found"),
        ("meta.json", "file-not-found"),
    ],
)
def test_ways_out_lead_nowhere(tell: Any, path: str, code: str | None) -> None:
    outcome = listed(tell, path=path)
    assert outcome.code == code, outcome
    assert "root:" not in outcome.content and (code is not None or "->" in outcome.content)


def test_a_folder_with_many_entries_is_cut_and_says_so(tell: Any) -> None:
    async def story(work: SessionWork) -> Outcome:
        root = await root_of(work)
        for number in range(1200):
            (root / "out" / f"f{number:04}").touch()
        return await call(ListDir(work), {"path": "out"})

    outcome = tell(story)
    lines = outcome.content.splitlines()
    assert len(lines) == 501 and "700 more" in lines[-1] and outcome.data["not_shown"] == 700


def test_names_are_anybodys_text(tell: Any) -> None:
    async def story(work: SessionWork) -> Outcome:
        root = await root_of(work)
        for name in (b"a\nb", b"\x1b[31mred", b"caf\xe9", "ü".encode(), b"-rf", b"x\x7f"):
            (root / "out" / os.fsdecode(name)).touch()
        return await call(ListDir(work), {"path": "out"})

    outcome = tell(story)
    json.dumps(outcome.content, ensure_ascii=False).encode()
    assert set(outcome.content.splitlines()) == {
        r"a\nb  0",
        r"\x1b[31mred  0",
        r"caf\udce9  0",
        "ü  0",
        "-rf  0",
        r"x\x7f  0",
    }


def test_a_deep_tree_and_an_empty_folder(tell: Any) -> None:
    async def story(work: SessionWork) -> tuple[Outcome, Outcome]:
        root = await root_of(work)
        fd = os.open(root / "out", os.O_RDONLY)
        for _ in range(300):  # deeper than a path can say is deeper than anybody asks
            os.mkdir("d", dir_fd=fd)
            below = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(fd)
        return await call(ListDir(work), {"pattern": "*"}), await call(ListDir(work), {"path": "runs"})

    deep, empty = tell(story)
    assert deep.status == "ok" and empty.content == "(empty)"


# --- grep -------------------------------------------------------------------------------------------------------------


def searched(tell: Any, **args: Any) -> Outcome:
    async def story(work: SessionWork) -> Outcome:
        await fill(work)
        return await call(Grep(work), args)

    return tell(story)


def test_lines_that_match_with_file_and_number(tell: Any) -> None:
    outcome = searched(tell, pattern="need.e")
    assert outcome.content.splitlines() == [
        "out/n.txt:2: two needle",
        "out/sub/a.csv:2: needle,2",
        "out/sub/deep/c.md:1: needle",
        "Skipped because they are not text: 1.",
    ]
    assert outcome.data["paths"] == ["out/n.txt", "out/sub/a.csv", "out/sub/deep/c.md"]
    assert outcome.data["matches"] == 3 and not outcome.data["truncated"]


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ({"path": "out/sub"}, ["out/sub/a.csv", "out/sub/deep/c.md"]),
        ({"path": "out/n.txt"}, ["out/n.txt"]),
        ({"glob": "*.md"}, ["out/sub/deep/c.md"]),
        ({"glob": "out/**/*.csv"}, ["out/sub/a.csv"]),
        ({"path": "out", "glob": "sub/*"}, ["out/sub/a.csv"]),
        ({"path": "work"}, []),
        ({"path": "skill://demo/references"}, ["skills/demo/references/a.md", "skills/demo/references/deep/b.md"]),
        ({"path": "skills/demo/references/a.md"}, ["skills/demo/references/a.md"]),
        ({"path": "skills", "glob": "*.md"}, ["skills/demo/references/a.md", "skills/demo/references/deep/b.md"]),
        ({"pattern": "NEEDLE", "-i": True, "path": "out/n.txt"}, ["out/n.txt"]),
    ],
)
def test_where_it_is_looked_for(tell: Any, args: dict[str, Any], names: list[str]) -> None:
    outcome = searched(tell, **{"pattern": "needle", **args})
    assert outcome.status == "ok" and outcome.data["paths"] == names, outcome
    assert names or "Nothing matches" in outcome.content


def test_large_files_are_named_as_skipped(tell: Any) -> None:
    outcome = searched(tell, pattern="needle", path="skill://demo")
    assert outcome.data["skipped"] == ["skills/demo/big.txt"] and "skills/demo/big.txt" in outcome.content


def test_there_may_be_more_than_asked_for(tell: Any) -> None:
    outcome = searched(tell, pattern=".", path="out", max_results=2)
    assert outcome.data["matches"] == 2 and outcome.data["truncated"] and "more than these 2" in outcome.content
    exactly = searched(tell, pattern="needle", path="out", max_results=3)
    assert exactly.data["matches"] == 3 and not exactly.data["truncated"]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("(", "position 0"), ("a{2,1}", "position"), ("*", "nothing to repeat"), ("(?P<1>x)", "position")],
)
def test_what_is_no_pattern_is_said_with_its_position(tell: Any, pattern: str, words: str) -> None:
    outcome = searched(tell, pattern=pattern)
    assert outcome.code == "invalid-call" and words in outcome.content


@pytest.mark.parametrize("pattern", ["", "(" * 1900 + ")" * 90, "x" * 2001, "a{99999999999999999999}"])
def test_patterns_beyond_all_measure(tell: Any, pattern: str) -> None:
    assert searched(tell, pattern=pattern).code == "invalid-call"


def processes() -> set[str]:
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            continue
        if f"PPid:\t{os.getpid()}\n" in status:
            found.add(pid)
    return found


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.01)


def test_a_pattern_that_takes_for_ever_is_given_up(tell: Any) -> None:
    async def story(work: SessionWork) -> tuple[Outcome, bool]:
        root = await root_of(work)
        (root / "out" / "a.txt").write_text("x found\n", encoding="utf-8")
        (root / "out" / "b.txt").write_text("a" * 60 + "!\n", encoding="utf-8")
        before = processes()
        outcome = await call(Grep(work, timeout_s=0.8), {"pattern": "x found|(a+)+$", "path": "out"})
        return outcome, processes() == before

    outcome, is_reaped = tell(story)
    assert outcome.status == "failed" and outcome.code == "grep-timeout" and outcome.data["truncated"]
    assert "out/a.txt:1: x found" in outcome.content and "in out/b.txt" in outcome.content and outcome.hint
    assert is_reaped, "the process that matched is gone"


def test_a_search_that_is_cancelled_leaves_no_process(tell: Any) -> None:
    async def story(work: SessionWork) -> bool:
        root = await root_of(work)
        (root / "out" / "b.txt").write_text("a" * 60 + "!\n", encoding="utf-8")
        before = processes()
        task = asyncio.ensure_future(call(Grep(work), {"pattern": "(a+)+$", "path": "out"}))
        await asyncio.to_thread(until, lambda: processes() != before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return processes() == before

    assert tell(story)


def test_long_lines_show_the_match_and_control_characters_are_written_out(tell: Any) -> None:
    async def story(work: SessionWork) -> Outcome:
        root = await root_of(work)
        (root / "out" / "l.txt").write_text(
            "x" * 5000 + "NEEDLE" + "y" * 5000 + "\n\x1b[31mNEEDLE\tz\n", encoding="utf-8"
        )
        return await call(Grep(work), {"pattern": "NEEDLE"})

    first, second = tell(story).content.splitlines()
    text = first.removeprefix("out/l.txt:1: ")
    assert len(text) <= 300 and "NEEDLE" in text and text[0] == text[-1] == "…"
    assert second == "out/l.txt:2: \\x1b[31mNEEDLE\tz"


def test_a_secret_cannot_be_guessed_at(tell: Any) -> None:
    async def story(work: SessionWork) -> list[Outcome]:
        root = await root_of(work)
        (root / "out" / "s.txt").write_text("token=hunter2-hunter2\n", encoding="utf-8")
        given = within(redaction=Redactor({"TOKEN": "hunter2-hunter2"}))
        return [await call(Grep(work), {"pattern": pattern}, given) for pattern in ("token=h", "token=")]

    guess, plain = tell(story)
    assert guess.data["matches"] == 0 and plain.data["matches"] == 1 and "hunter2" not in plain.content


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/etc", "path-escape"),
        ("../..", "path-escape"),
        ("out/link", "not-a-plain-file"),
        ("out/etc", "not-a-plain-file"),
        ("out/etc/passwd", "not-a-plain-file"),
        ("out/fifo", "not-a-plain-file"),
        ("out/none", "file-not-found"),
        ("nowhere", "file-not-found"),
        ("skill://other", "skill-not-loaded"),
        ("skill://demo/none.md", "resource-not-found"),
        ("a\0b", "path-escape"),
    ],
)
def test_grep_follows_nothing_out(tell: Any, path: str, code: str) -> None:
    outcome = searched(tell, pattern="root|.", path=path)
    assert outcome.code == code and "root:" not in outcome.content, outcome


def test_a_hard_link_to_somebody_elses_file_is_not_read(tell: Any, not_run: Callable[[str, str], None]) -> None:
    if UID is None:
        not_run("hard links to somebody else's file", "whoever is not root cannot make one")
        return

    async def story(work: SessionWork) -> tuple[Outcome, Outcome]:
        root = await root_of(work)
        secret = root.parent / "secret"
        secret.write_text("root only\n", encoding="utf-8")
        os.link(secret, root / "out" / "mine.txt")
        return await call(Grep(work), {"pattern": "root"}), await call(ReadFile(work), {"file_name": "out/mine.txt"})

    grep, read = tell(story)
    assert grep.data["matches"] == 0 and "Could not be read: out/mine.txt" in grep.content
    assert read.code == "not-a-plain-file"


# --- write_file and delete_file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("out/a/b/c.txt", "out/a/b/c.txt"),
        ("./work//x.txt", "work/x.txt"),
        ("workspace://out/w.txt", "out/w.txt"),
        ("$OUTPUT_DIR/v.txt", "out/v.txt"),
        ("inputs/i.txt", "work/inputs/i.txt"),
        ("out/ü \n.txt", "out/ü \n.txt"),
        ("out/" + "n" * 255, "out/" + "n" * 255),
    ],
)
def test_a_file_is_written_where_scripts_find_it(tell: Any, path: str, name: str) -> None:
    async def story(work: SessionWork) -> None:
        outcome = await call(WriteFile(work), {"path": path, "content": "tëxt\n"})
        assert outcome.status == "ok", outcome
        made = [(each["name"], each["size_bytes"]) for each in outcome.data.pop("output_files", ())]
        assert made == ([(name, 6)] if name.startswith("out/") else [])
        assert outcome.data == {"path": shown(name), "size_bytes": 6, "replaced": False, "paths": [shown(name)]}
        file = await root_of(work) / name
        assert file.read_text(encoding="utf-8") == "tëxt\n"
        owner = os.geteuid() if UID is None else UID
        assert file.stat().st_uid == owner == file.parent.stat().st_uid and file.stat().st_mode & 0o777 == 0o644
        assert os.listdir(file.parent).count(file.name) == 1 and not [
            n for n in os.listdir(file.parent) if n[:4] == ".new"
        ]

    tell(story)


def test_a_file_is_replaced_and_stays_what_it_was(tell: Any) -> None:
    async def story(work: SessionWork) -> None:
        file = await root_of(work) / "out" / "run.sh"
        file.write_text("old", encoding="utf-8")
        file.chmod(0o755)
        outcome = await call(WriteFile(work), {"file_path": "out/run.sh", "contents": "new"})
        assert outcome.data["replaced"] and file.read_text(encoding="utf-8") == "new"
        assert file.stat().st_mode & 0o777 == 0o755

    tell(story)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("report.md", "write-refused"),
        ("out", "write-refused"),
        ("out/", "write-refused"),
        ("out/d/", "write-refused"),
        (".", "write-refused"),
        ("runs/x", "write-refused"),
        ("skills/demo/SKILL.md", "write-refused"),
        ("skill://demo/SKILL.md", "write-refused"),
        ("artifact://x", "write-refused"),
        ("../meta.json", "path-escape"),
        ("out/../../meta.json", "path-escape"),
        ("out\\..\\..\\x", "path-escape"),
        ("/etc/passwd", "host-not-allowed"),
        ("host:///etc/passwd", "host-not-allowed"),
        ("~/x", "host-not-allowed"),
        ("out/link", "not-a-plain-file"),
        ("out/etc/x", "not-a-plain-file"),
        ("out/fifo", "not-a-plain-file"),
        ("out/sub", "not-a-plain-file"),
        ("out/n.txt/x", "not-a-plain-file"),
        ("out/a\0b", "path-escape"),
        ("out/\ud800", "invalid-call"),
        ("out/" + "n" * 256, "write-failed"),
        ("$HOME/x", "unknown-variable"),
    ],
)
def test_where_nothing_is_written(tell: Any, path: str, code: str) -> None:
    async def story(work: SessionWork) -> None:
        root = await fill(work)
        outcome = await call(WriteFile(work), {"path": path, "content": "x"})
        assert outcome.code == code, outcome
        assert os.readlink(root / "out" / "link") == "/etc/passwd"

    tell(story)
    assert Path("/etc/passwd").read_bytes() != b"x"  # what is installed meanwhile may add users to it


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"file_path": "out/a", "old_string": "a", "new_string": "b"}, "read_file"),
        ({"path": "out/a", "edits": []}, "content"),
        ({"path": "out/a"}, "'content' is required"),
        ({"path": "out/a", "content": "\ud800"}, "surrogate"),
        ({"path": "out/a", "content": "ü" * (2 << 20) + "x"}, "at most 4194304"),
        ({"path": "out/a", "content": "x" * ((4 << 20) + 1)}, "content"),
        ({"path": "", "content": ""}, "path"),
        ({"path": "out/a", "content": {"a": 1}}, "content"),
    ],
)
def test_arguments_that_are_asked_for_again(tell: Any, args: dict[str, Any], words: str) -> None:
    outcome = tell(lambda work: call(WriteFile(work), args))
    assert outcome.code == "invalid-call" and words in outcome.content, outcome.content[:300]


def test_a_folder_of_this_machine_only_when_the_decision_names_it(tell: Any, tmp_path: Path) -> None:
    opened, closed = tmp_path / "opened", tmp_path / "closed"
    opened.mkdir()
    closed.mkdir()
    os.symlink(closed, opened / "way-out")
    os.symlink(opened, tmp_path / "alias")
    given = within({"roots": [str(tmp_path / "alias")]})

    async def story(work: SessionWork) -> None:
        write, delete = WriteFile(work), DeleteFile(work)
        outcome = await call(write, {"path": f"{opened}/new/a.txt", "content": "x"}, given)
        assert outcome.status == "ok" and (opened / "new" / "a.txt").read_text(encoding="utf-8") == "x", outcome
        for path in (
            f"{closed}/a",
            f"{opened}/way-out/a",
            f"{opened}/../closed/a",
            f"{opened}x/a",
            "/etc/x",
            f"{opened}/..",
        ):
            assert (
                await call(write, {"path": path, "content": "x"}, given)
            ).code == "host-not-allowed" or path.endswith("..")
        assert not list(closed.iterdir())
        missing = await call(delete, {"path": f"{opened}/new/b.txt"}, given)
        assert missing.code == "file-not-found" and "a.txt" in (missing.hint or "")
        assert (await call(delete, {"path": f"{opened}/new/a.txt"})).code == "host-not-allowed"
        assert (await call(delete, {"path": f"{opened}/new/a.txt"}, given)).status == "ok"
        assert not (opened / "new" / "a.txt").exists()

    tell(story)


def test_a_file_is_deleted_and_a_folder_never(tell: Any) -> None:
    async def story(work: SessionWork) -> None:
        root = await fill(work)
        delete = DeleteFile(work)
        outcome = await call(delete, {"path": "out/n.txt"})
        assert outcome.status == "ok" and outcome.data["paths"] == ["out/n.txt"] and not (root / "out/n.txt").exists()
        again = await call(delete, {"path": "out/n.txt"})
        assert again.code == "file-not-found" and "out/" in (again.hint or "")
        assert (await call(delete, {"path": "out/sub"})).code == "is-a-folder"
        assert (await call(delete, {"path": "out/etc/passwd"})).code == "not-a-plain-file"
        assert (await call(delete, {"path": "out/etc"})).status == "ok", "the link, and not what it leads to"
        assert "passwd" in os.listdir("/etc") and "etc" not in os.listdir(root / "out")
        assert (await call(delete, {"path": "out/fifo"})).status == "ok"
        assert (await call(delete, {"path": "work"})).code == "write-refused"

    tell(story)


def test_a_folder_that_becomes_a_link_meanwhile_is_noticed(tell: Any, tmp_path: Path) -> None:
    """Somebody swaps a folder for a link, again and again, while we write there."""
    outside = tmp_path / "outside"
    outside.mkdir()

    async def story(work: SessionWork) -> set[str | None]:
        root = await root_of(work)
        (root / "out" / "real").mkdir()
        over = threading.Event()

        def swap() -> None:
            real, aside = root / "out" / "real", root / "out" / "aside"
            while not over.is_set():
                with contextlib.suppress(OSError):  # the one who writes may have made it anew
                    os.rename(real, aside)
                    os.symlink(outside, real)
                    os.unlink(real)
                    os.rename(aside, real)
                if aside.exists():
                    shutil.rmtree(aside, ignore_errors=True)

        swapper = threading.Thread(target=swap)
        swapper.start()
        codes: set[str | None] = set()
        try:
            for _ in range(400):
                codes.add((await call(WriteFile(work), {"path": "out/real/x", "content": "x"})).code)
        finally:
            over.set()
            swapper.join()
        return codes

    codes = tell(story)
    assert not list(outside.iterdir()), codes
    assert codes <= {None, "not-a-plain-file", "write-failed"}


def test_a_socket_is_told(tell: Any) -> None:
    async def story(work: SessionWork) -> None:
        root = await root_of(work)
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.getcwd()
            os.chdir(root / "out")  # the path of a socket is short
            try:
                listener.bind("s")
            finally:
                os.chdir(here)
        assert (await call(WriteFile(work), {"path": "out/s", "content": ""})).code == "not-a-plain-file"
        assert "s  (a socket)" in (await call(ListDir(work), {"path": "out"})).content

    tell(story)


# --- the set ----------------------------------------------------------------------------------------------------------


def test_what_deletes_or_reaches_out_is_there_only_when_switched_on(skills: Path) -> None:
    def file_tools(enable: list[str]) -> dict[str, bool]:
        with open_runtime(cwd=str(skills), environ={}, flags={"tools.enable": enable}) as runtime:
            specs = {spec.name: spec.read_only for spec in preview_kit(runtime).calls.tools.specs()}
        names = list(specs)
        return {name: specs[name] for name in names[names.index("read_file") :]}

    always = {"read_file": True, "list_dir": True, "grep": True, "write_file": False}
    assert file_tools([]) == file_tools(["write_file", "grep"]) == always
    every = file_tools(["network_request", "delete_file"])
    assert list(every) == [*always, "delete_file", "network_request"]
    assert every == {**always, "delete_file": False, "network_request": False}


def test_one_spelling_is_what_policy_judges(workspace_dir: str) -> None:
    async def story(work: SessionWork) -> None:
        tool = WriteFile(work)
        root = await root_of(work)
        for path in ("out/x", "./out//x", "workspace://out/./x", "$OUTPUT_DIR/x", "/workspace/out/x", f"{root}/out/x"):
            assert tool.normalise({"path": path, "content": "."})["path"] == "out/x", path
        assert ListDir(work).normalise({}) == {"path": "."} and Grep(work).normalise({"pattern": "x"})["path"] == "."

    with_work(workspace_dir, story)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*.md", "a.md", True),
        ("*.md", "x/y/a.md", True),
        ("*.md", "a.mdx", False),
        ("x/*.md", "x/a.md", True),
        ("x/*.md", "x/y/a.md", False),
        ("**/*.md", "a.md", True),
        ("x/**", "x/y/z", True),
        ("x/**/z", "x/z", True),
        ("**/y/**", "x/y/z", True),
        ("[ab].txt", "b.txt", True),
        ("**", "anything", True),
        ("/", "a", False),
    ],
)
def test_globs(pattern: str, name: str, fits: bool) -> None:
    assert match_glob(pattern, name) is fits


def test_a_glob_with_many_stars_takes_no_longer() -> None:
    assert not match_glob("*a" * 200 + "b", "a" * 255)
    assert not match_glob("**/" * 300 + "b", "/".join("a" * 60))


@given(st.text(max_size=40))
@settings(max_examples=200)
def test_what_is_shown_is_one_line_that_can_be_sent(text: str) -> None:
    clean = shown(text)
    assert clean.isprintable() and clean.encode() and len(clean.splitlines()) <= 1 if text else clean == ""


def test_searching_twice_at_once(workspace_dir: str, skills: Path) -> None:
    async def run() -> list[Outcome]:
        async with open_work(workspace_dir, skills, use=("demo",)) as work:
            await fill(work)
            return list(await asyncio.gather(*(call(Grep(work), {"pattern": "needle"}) for _ in range(8))))

    assert {outcome.data["matches"] for outcome in asyncio.run(run())} == {3}
