"""Which file is meant, and what runs it: chosen by us, as a list of arguments, and the same that policy judges."""

from __future__ import annotations

import os
import posixpath
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prowess
from prowess.errors import PathEscape, WorkspaceError
from prowess.policy.allowed_tools import command_words
from prowess.workspace.scripts.interpreter import INTERPRETERS, Launch, find_script, parse_shebang, plan_script
from prowess.workspace.skill_trees import publish

PYTHON = "/usr/bin/python3"
Make = Callable[..., str]


@pytest.fixture
def tree(tmp_path: Path) -> Make:
    """A skill's tree with these files: path -> content; one whose path ends with `*` is executable."""

    def make(files: Mapping[str, str | bytes]) -> str:
        for path, content in files.items():
            file = tmp_path / "tree" / path.removesuffix("*")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
            if path.endswith("*"):
                file.chmod(0o755)
        return str(tmp_path / "tree")

    return make


@pytest.fixture
def plan(tree: Make) -> Callable[..., Launch]:
    """How this one file would be started."""

    def make(path: str, content: str | bytes = "", *args: str, python: str = PYTHON, **more) -> Launch:
        return plan_script(tree({path: content}), path.removesuffix("*"), args, python=python, **more)

    return make


# --- which file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        "scripts/x.py",
        "./scripts/x.py",
        "scripts//x.py",
        "scripts/./x.py",
        "x.py",
        "./x.py",
        r"scripts\x.py",
        "pdf/scripts/x.py",
        "skills/pdf/scripts/x.py",
        "$SKILL_DIR/scripts/x.py",
        "${SKILL_DIR}/scripts/x.py",
    ],
)
def test_a_script_is_found_from_the_root_of_its_skill(tree, script):
    assert find_script(tree({"scripts/x.py": ""}), script, skill="pdf") == "scripts/x.py"


def test_the_literal_reading_comes_first_and_another_one_is_said(tree):
    path = tree({"x.py": "", "scripts/x.py": "", "scripts/y.py": "", "pdf/scripts/y.py": ""})
    assert find_script(path, "x.py", skill="pdf") == "x.py"
    assert find_script(path, "pdf/scripts/y.py", skill="pdf") == "pdf/scripts/y.py"
    assert plan_script(path, "./scripts/y.py", python=PYTHON).notes == ()
    assert plan_script(path, "y.py", python=PYTHON).notes == ("'y.py' was taken as scripts/y.py.",)


def test_a_skills_name_is_taken_off_only_when_it_is_the_skills(tree):
    with pytest.raises(WorkspaceError) as refused:
        find_script(tree({"scripts/x.py": ""}), "other/scripts/x.py", skill="pdf")
    assert refused.value.code == "script-not-found"


def test_a_folder_that_had_to_make_room_is_found_by_its_own_name(tmp_path, make_skill):
    make_skill(tmp_path / "s" / "pdf", files={"out/make.py": "print(1)", "scripts/x.py": ""})
    skill = prowess.load(prowess.discover(tmp_path / "s"), "pdf")
    path = publish(skill, str(tmp_path / "trees")).path
    assert find_script(path, "out/make.py") == find_script(path, "_shipped/out/make.py") == "_shipped/out/make.py"
    assert "was taken as _shipped/out/make.py" in plan_script(path, "out/make.py", python=PYTHON).notes[0]


@pytest.mark.parametrize(
    "script", ["../x.py", "scripts/../../x", "/etc/passwd", "a\0b", r"..\x", "C:\\x", "$SKILL_DIR/../x", "\udce4\ud800"]
)
def test_nothing_outside_is_a_script(tree, script):
    with pytest.raises(PathEscape):
        find_script(tree({"scripts/x.py": ""}), script)


def test_a_link_out_of_the_skill_is_an_escape(tree, tmp_path):
    path = tree({"scripts/x.py": ""})
    (tmp_path / "secret.py").write_text("", encoding="utf-8")
    os.symlink(tmp_path / "secret.py", Path(path, "scripts", "y.py"))
    os.symlink(tmp_path, Path(path, "scripts", "up"))
    for script in ("scripts/y.py", "y.py", "scripts/up/secret.py"):
        with pytest.raises(PathEscape):
            find_script(path, script)
    os.symlink("x.py", Path(path, "scripts", "z.py"))
    assert find_script(path, "scripts/z.py") == "scripts/x.py", "what was looked at is what runs"


@given(st.text(alphabet=st.sampled_from("./\\ab$SKILL_DIR{}~ -"), max_size=24))
def test_whatever_is_asked_for_is_inside_or_an_error(tmp_path_factory, script):
    root = tmp_path_factory.getbasetemp() / "any-tree"
    (root / "scripts").mkdir(parents=True, exist_ok=True)
    (root / "scripts" / "a").write_text("", encoding="utf-8")
    try:
        found = find_script(str(root), script, skill="b")
    except WorkspaceError as error:
        assert error.hint
    else:
        assert (root / found).is_file() and not found.startswith(("/", "..", "./"))


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("scripts/extrat.py", "There are: scripts/extract.py, "),
        ("extract", "There are: scripts/extract.py, "),
        ("EXTRACT.sh", "There are: scripts/extract.py, "),
        ("scripts/nothing-like-it", "There are: scripts/a.sh, scripts/extract.py, scripts/deep/b.rb"),
        ("scripts", "That is a folder. There are: "),
        ("", "There are: "),
        (".", "There are: "),
        ("scripts/extract.py --all", "Give the file alone; what follows it belongs into args"),
        ("python3 scripts/extract.py", "Give the file alone"),
    ],
)
def test_a_missing_one_lists_what_there_is_the_nearest_first(tree, script, hint):
    path = tree({"scripts/a.sh": "", "scripts/extract.py": "", "scripts/deep/b.rb": "", "references/c.py": ""})
    with pytest.raises(WorkspaceError) as refused:
        find_script(path, script)
    assert refused.value.code == "script-not-found" and (refused.value.hint or "").startswith(hint)
    assert "references" not in str(refused.value) and script in refused.value.message


def test_the_list_is_bounded_and_an_empty_one_is_said(tree, tmp_path):
    with pytest.raises(WorkspaceError) as refused:
        find_script(tree({"SKILL.md": "", "notes.txt": ""}), "scripts/x.py")
    assert refused.value.hint == "This skill has no scripts."
    with pytest.raises(WorkspaceError) as refused:
        find_script(tree({f"s{number:03}.py": "" for number in range(50)}), "scripts/x.py")
    assert (refused.value.hint or "").endswith(" and 30 more")


# --- the first line ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"#!/usr/bin/env python3\n", ("python3",)),
        (b"#!/usr/bin/env -S python3 -u\n", ("python3", "-u")),
        (b"#!/usr/bin/env -Spython3 -u\n", ("python3", "-u")),
        (b"#!/usr/bin/env --split-string=python3 -u\n", ("python3", "-u")),
        (b"#!/usr/bin/env -S uv run --script\n", ("uv", "run", "--script")),
        (b"#!/usr/bin/env -S perl -e 'a b'\n", ("perl", "-e", "a b")),
        (b"#!/usr/bin/env python3 -u\n", ("python3", "-u")),
        (b"#!/usr/bin/env -S FOO=1 python3\n", ("env", "FOO=1", "python3")),
        (b"#!/usr/bin/env -i bash\n", ("env", "-i", "bash")),
        (b"#! /bin/sh -e\n", ("sh", "-e")),
        (b"#!/bin/bash", ("bash",)),
        (b"#!/bin/bash\r\necho\r\n", ("bash",)),
        (b"\xef\xbb\xbf#!/bin/bash\n", ("bash",)),
        (b"#!/opt/homebrew/bin/python3.12\n", ("python3.12",)),
        (b"#!\n", ()),
        (b"#!/usr/bin/env\n", ()),
        (b"#!/usr/bin/env -S 'x\n", ()),
        (b"#!/\n", ()),
        (b"#!/bin/" + b"x" * 2000, ()),
        (b"#!/bin/x" + b" " * 2000 + b"\n", ()),
        (b"#!/bin/a\0b\n", ()),
        (b"#!/bin/\xff\n", ()),
        (b" #!/bin/sh\n", ()),
        (b"", ()),
        (b"\x7fELF\x02\x01", ()),
    ],
)
def test_a_first_line(head, words):
    assert parse_shebang(head[:1025]) == words


@given(st.binary(max_size=200))
def test_any_first_line_is_read_or_is_none(head):
    for data in (head, b"#!" + head):
        words = parse_shebang(data)
        assert all(isinstance(word, str) for word in words) and (not words or "/" not in words[0])


# --- what runs it -----------------------------------------------------------------------------------------------------


def test_python_is_the_workspaces_and_its_output_is_written_at_once(plan):
    launch = plan("scripts/x.py", "print(1)", "-a", "b c")
    assert launch.argv == (PYTHON, "scripts/x.py", "-a", "b c")
    assert (launch.interpreter, launch.why, launch.block, launch.notes) == (PYTHON, "extension", None, ())
    assert launch.env == {"PYTHONUNBUFFERED": "1"}
    assert launch.seen_from("/workspace/skills/pdf") == (PYTHON, "/workspace/skills/pdf/scripts/x.py", "-a", "b c")
    assert launch.seen_from("/s", python="/e/bin/python")[:2] == ("/e/bin/python", "/s/scripts/x.py")


@pytest.mark.parametrize("extension", [*INTERPRETERS, ".ts", ".mts"])
def test_what_runs_is_what_policy_judges(plan, extension):
    """Command lists are asked about `interpreter script args`; where policy knows interpreters, ours is one of them."""
    script = f"scripts/x{extension}"
    judged = {words[0] for words in command_words({"script": script, "args": ["a"]})} - {script}
    launch = plan(script, "", "a")
    assert launch.why == "extension" and launch.argv[-2:] == (script, "a")
    assert posixpath.basename(launch.interpreter) in judged or not judged


def test_every_extension_that_policy_knows_has_an_interpreter_here():
    for extension in ".py .sh .bash .js .mjs .cjs .rb .pl .php .lua .r .R".split():
        judged = {words[0] for words in command_words({"script": f"x{extension}"})} - {f"./x{extension}"}
        assert {way[0] for way in INTERPRETERS[extension]} == judged


@pytest.mark.parametrize(
    ("path", "content", "way", "why"),
    [
        ("s/x.sh", "echo", ("bash",), "extension"),
        ("s/x.sh", "#!/bin/sh -e\n", ("sh", "-e"), "extension"),
        ("s/x.sh", "#!/usr/bin/env bash\n", ("bash",), "extension"),
        ("s/x.bash", "#!/bin/bash -eu\n", ("bash", "-eu"), "extension"),
        ("s/x.py", "#!/usr/bin/env -S python3 -W error\n", (PYTHON, "-W", "error"), "extension"),
        ("s/x.py", "#!/usr/bin/env -S uv run --script\n", (PYTHON,), "extension"),
        ("s/x.ps1", "", ("pwsh", "-NoProfile", "-File"), "extension"),
        ("s/x.ts", "", ("node", "--experimental-strip-types"), "extension"),
        ("s/x.ts", "#!/usr/bin/env -S deno run --allow-read\n", ("deno", "run", "--allow-read"), "shebang"),
        ("s/x", "#!/usr/bin/env python3\n", (PYTHON,), "shebang"),
        ("s/x", "#!/usr/bin/python3 -u\n", (PYTHON, "-u"), "shebang"),
        ("s/x", "#!/usr/bin/env -S uv run --script\n", (PYTHON,), "shebang"),
        ("s/x", "#!/usr/bin/env -S awk -f\n", ("awk", "-f"), "shebang"),
        ("s/x.unknown", "\ufeff#!/bin/sh\n", ("sh",), "shebang"),
        ("s/x", "#!/usr/bin/python2\n", ("python2",), "shebang"),
        ("s/x*", b"\x7fELF\x02", (), "executable"),
        ("s/x*", "echo hi\n", (), "executable"),
    ],
)
def test_the_way_a_script_is_run(plan, path, content, way, why):
    launch = plan(path, content)
    assert (launch.way, launch.why, launch.notes) == (way, why, ())


@pytest.mark.parametrize(
    ("path", "content", "note"),
    [
        ("s/x.sh", "#!/bin/zsh\n", "The first line of s/x.sh asks for zsh; its extension says bash"),
        ("s/x.sh", "#!/bin/bash\r\necho\r\n", "s/x.sh has Windows line ends"),
        ("s/x.py", "#!/bin/bash\n", "asks for bash; its extension says Python"),
        ("s/x.py", "#!/usr/bin/env python3.12\n", f"s/x.py asks for python3.12; it is run by {PYTHON}."),
        ("s/x.py", "#!/usr/bin/env -S uv run --with rich\n", "is not installed; a PEP 723 block is"),
        ("s/x.py", "#/// script\n# dependencies = ['rich']\n# ///\n", "s/x.py, line 1: this looks like the beginning"),
        ("s/x.py", "# /// script\n# dependencies = []\nimport os\n", "looks like the beginning of a PEP 723 block"),
        (
            "s/x.py",
            '# /// script\n# dependencies = []\n# [tool.uv]\n# exclude-newer = "2024-01-01"\n# ///\n',
            "has no effect here: tool.uv.exclude-newer",
        ),
    ],
)
def test_what_is_not_taken_as_it_was_written_is_said(plan, path, content, note):
    launch = plan(path, content)
    assert len(launch.notes) == 1 and note in launch.notes[0]
    assert launch.interpreter in (PYTHON, "bash")


def test_a_block_makes_an_environment_of_its_own(plan):
    block = '# /// script\n# dependencies = ["rich"]\n# ///\n'
    for path, head in (
        ("s/x.py", ""),
        ("s/x.py", "#!/usr/bin/env -S uv run --script\n"),
        ("s/y", "#!/usr/bin/python3\n"),
    ):
        launch = plan(path, head + block)
        assert launch.why == "block" and launch.block is not None and launch.block.dependencies == ("rich",)
        assert launch.seen_from("/s", python="/e/python") == ("/e/python", f"/s/{path}")
    assert plan("s/z.sh", block).block is None, "a block is Python's"
    assert plan("s/w.py", f"\ufeff{block}").block is not None


def test_a_block_that_cannot_be_used_is_an_error_that_names_the_script(plan):
    with pytest.raises(WorkspaceError) as refused:
        plan("s/x.py", '# /// script\n# dependencies = ["-r x"]\n# ///\n')
    assert refused.value.code == "dependency-refused" and refused.value.message.startswith("s/x.py, line 1:")


def test_only_what_is_there_is_chosen(plan):
    assert plan("s/x.sh", "", interpreters=["sh", "perl"]).way == ("sh",)
    other = plan("s/y.sh", "#!/bin/bash\n", interpreters=["sh"])
    assert other.way == ("sh",) and "asks for bash" in other.notes[0]
    assert plan("s/z.ts", "", interpreters=["deno"]).way == ("deno", "run", "--allow-all")


@pytest.mark.parametrize(
    ("path", "content", "more", "named"),
    [
        ("s/x.rb", "", {"interpreters": ["sh"]}, "ruby"),
        ("s/x.sh", "", {"interpreters": []}, "bash or sh"),
        ("s/x.ts", "", {"interpreters": ["sh"]}, "node or tsx or bun or deno"),
        ("s/x", "#!/usr/bin/awk -f\n", {"interpreters": ["sh"]}, "awk"),
        ("s/x.py", "", {"python": ""}, "python3"),
        ("s/x", "#!/usr/bin/python3\n", {"python": ""}, "python3"),
    ],
)
def test_an_interpreter_that_is_not_there_is_named(plan, path, content, more, named):
    with pytest.raises(WorkspaceError) as refused:
        plan(path, content, **more)
    assert refused.value.code == "interpreter-missing" and f"run by {named}, which" in refused.value.message
    assert "requires: {bins:" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("s/x.txt", "hello", "Nothing says how"),
        ("s/x", "", "Nothing says how"),
        ("s/x.PY", "print()", "Nothing says how"),
        ("s/x", "#!" + "x" * 3000, "Nothing says how"),
        ("s/x", b"\x7fELF\x02", "not executable"),
        ("s/x.exe*", b"MZ\x90\0", "a program for Windows"),
        ("s/x*", b"\xcf\xfa\xed\xfe\x07", "a program for macOS"),
    ],
)
def test_when_nothing_says_how_to_run_it_the_error_says_what_to_do(plan, path, content, said):
    with pytest.raises(WorkspaceError) as refused:
        plan(path, content)
    assert refused.value.code == "script-no-interpreter" and said in refused.value.message and refused.value.hint


def test_a_file_is_a_file_whatever_its_name(tree):
    path = tree({"-c.sh": "echo started", "-c*": b"#!/bin/sh\necho started\n", "run*": b"\x7fELF"})
    assert plan_script(path, "-c.sh", python=PYTHON).argv == ("bash", "./-c.sh")
    assert plan_script(path, "run", python=PYTHON).argv == ("./run",), "and not looked for on the PATH"
    for script in ("-c.sh", "-c"):
        argv = plan_script(path, script, ["id; echo no"], python=PYTHON).argv
        answer = subprocess.run(argv, cwd=path, capture_output=True, text=True, check=True)
        assert answer.stdout == "started\n"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("s/x.py", "import sys; print(sys.argv[1:])"),
        ("s/x", "#!/usr/bin/env -S python3 -u\r\nimport sys; print(sys.argv[1:])\r\n"),
        ("s/x.js", "console.log(JSON.stringify(process.argv.slice(2)).replaceAll('\"', \"'\").replaceAll(',', ', '))"),
        ("s/x.pl", "print '[', join(', ', map { \"'$_'\" } @ARGV), ']', \"\\n\""),
        ("s/x.sh", 'printf "[\'%s\', \'%s\']\\n" "$1" "$2"'),
        ("s/x*", '#!/bin/sh -e\nfalse || printf "[\'%s\', \'%s\']\\n" "$1" "$2"'),
    ],
)
def test_the_plan_really_runs_and_no_shell_reads_the_arguments(tree, not_run, path, content):
    folder = tree({path: content})
    launch = plan_script(folder, path.removesuffix("*"), ["$(id)", "a;b"], python=sys.executable)
    if shutil.which(launch.interpreter) is None:
        not_run(path, f"there is no {launch.interpreter}")
        return
    answer = subprocess.run(launch.seen_from(folder), capture_output=True, text=True, check=True, cwd="/")
    assert answer.stdout == "['$(id)', 'a;b']\n"
