"""A PEP 723 block is read as the specification says, and chooses no source for what it names."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.errors import WorkspaceError
from prowess.workspace.scripts.pep723 import (
    ScriptBlock,
    find_almost_block,
    find_blocks,
    parse_block,
    parse_requirements,
    parse_version,
    python_fits,
)

# The specification's own, word for word.
REFERENCE = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def reference(text: str) -> list[tuple[str, str]]:
    return [
        (found["type"], "".join(line[2:] if line.startswith("# ") else line[1:] for line in lines(found["content"])))
        for found in REFERENCE.finditer(text)
    ]


def lines(content: str) -> list[str]:
    return [f"{line}\n" for line in content.removesuffix("\n").split("\n")]


def block(*dependencies: str, more: str = "") -> str:
    listed = ", ".join(f'"{each}"' for each in dependencies)
    return f"# /// script\n# dependencies = [{listed}]\n{more}# ///\n"


def refusal(text: str) -> WorkspaceError:
    with pytest.raises(WorkspaceError) as refused:
        parse_block(text, name="scripts/x.py")
    assert refused.value.hint
    return refused.value


EVERYDAY = """#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "requests<3",
#   "Rich",
#
# ]
# ///
import requests
"""


def test_an_everyday_block():
    assert parse_block(EVERYDAY) == ScriptBlock(
        dependencies=("requests<3", "rich"), requires_python=">=3.11", ignored=(), line=2
    )


@pytest.mark.parametrize("text", ["", "import os\n", "# /// pyproject\n# x = 1\n# ///\n", "# ///\n# ///\n"])
def test_a_script_without_a_block_has_none(text):
    assert parse_block(text) is None


@pytest.mark.parametrize("convert", [lambda t: t.replace("\n", "\r\n"), lambda t: t.replace("\n", "\r"), str.rstrip])
def test_line_ends_do_not_matter(convert):
    assert parse_block(convert(block("rich"))) == parse_block(block("rich"))


def test_a_key_of_very_many_parts_is_refused_at_once():
    text = f"# /// script\n# {'a.' * 30_000}a = 1\n# ///\n"
    assert "dots in one line" in str(refusal(text)), "the standard parser would need ten seconds"


def test_the_last_line_that_can_close_a_block_does():
    text = "# /// script\n# dependencies = []\n# ///\n# more = 1\n# ///\nx = 1\n# ///\n"
    assert "not valid TOML" in str(refusal(text)), "the text between is content"


PIECES = st.sampled_from(
    [
        "# /// script",
        "# /// other-type",
        "# ///",
        "#",
        "# ",
        "# a = 1",
        "#a",
        " # ///",
        "",
        "x = 1",
        "# /// script ",
        "#///",
        "# /// ",
        "# //// script",
        "# /// scr ipt",
        "# \u2028x",
        "# é",
    ]
)


@given(st.lists(PIECES, max_size=24).map("\n".join), st.sampled_from(["", "\n"]))
def test_blocks_are_what_the_reference_finds(text, end):
    found = list(find_blocks(text + end))
    assert [(type_, content) for _, type_, content in found] == reference(text + end)
    split = (text + end).split("\n")
    assert all(split[line - 1] == f"# /// {type_}" for line, type_, _ in found)


@given(st.text(alphabet="#/ scriptx\n=1[]\"'\x0c\t", max_size=200))
def test_blocks_of_any_text_are_what_the_reference_finds(text):
    assert [(type_, content) for _, type_, content in find_blocks(text)] == reference(text)


@given(
    st.lists(st.sampled_from(["a", "b>=1", "C_d[x]~=2.0", "e; python_version<'4'"]), max_size=5), st.text(max_size=40)
)
def test_whatever_can_be_written_as_toml_is_read_back(dependencies, comment):
    comment = "".join(char for char in comment if char.isprintable())
    text = f"x = 1\n{block(*dependencies, more=f'# # {comment}' + chr(10))}print()\n"
    assert tomllib.loads(reference(text)[0][1])["dependencies"] == dependencies
    found = parse_block(text)
    assert found is not None and len(found.dependencies) == len(set(dependencies))


def test_hours_of_backtracking_are_not_spent():
    """The specification's expression takes time with the square of the lines here."""
    assert list(find_blocks("# /// a\n" * 200_000)) == []
    [(_, type_, content)] = find_blocks("# /// a\n" * 200_000 + "# ///\n")
    assert type_ == "a" and content.count("\n") == 199_999


def test_two_blocks_of_type_script_are_an_error_that_says_where():
    error = refusal(block("a") + "import os\n" + block("b"))
    assert error.code == "block-invalid" and error.message.startswith("scripts/x.py, line 5:")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# /// script\n# dependencies = [\n# ///\n", 1),
        ("import os\n# /// script\n# a = 1\n# b = = 2\n# ///\n", 4),
        ("# /// script\n# a = 1\n# a = 2\n# ///\n", 3),
        ("# /// script\n# a = " + "[" * 5000 + "\n# ///\n", 1),
        ("# /// script\n# a = " + "9" * 5000 + "\n# ///\n", 1),
    ],
)
def test_toml_that_is_none_says_in_which_line(text, line):
    error = refusal(text)
    assert error.code == "block-invalid" and f"line {line}:" in error.message and len(error.message) < 400


@pytest.mark.parametrize(
    "text",
    [
        '# /// script\n# dependencies = "requests"\n# ///\n',
        "# /// script\n# dependencies = [1]\n# ///\n",
        "# /// script\n# dependencies = {}\n# ///\n",
        "# /// script\n# requires-python = 3.11\n# ///\n",
        '# /// script\n# requires-python = "3.11"\n# ///\n',
        '# /// script\n# requires-python = ">=3.11 or bust"\n# ///\n',
        '# /// script\n# requires-python = "~=3"\n# ///\n',
        f'# /// script\n# requires-python = "{">=3," * 126}"\n# ///\n',
        '# /// script\n# requires-python = ">=3.*"\n# ///\n',
        block(""),
        block("a b"),
        block("a=1"),
        block("a>=1 <2"),
        block("a>=1.*"),
        block("a==one"),
        block(f"a; {'(' * 480}"),
        block("a[b"),
        block("a[b,,c]"),
        block("a; os == $HOME"),
        block("a; rm"),
        block("a; python_version"),
        block("a; python_version < '3' and"),
        block("a; (python_version < '3'"),
        block("a; python_version < 3"),
        block("a; unknown == 'x'"),
        block("a; python_version < '3' os_name == 'nt'"),
        block("a; 'x' == 'x'"),
        block("${HOME}"),
        block("ä"),
        block("a" * 501),
        block(*[f"p{n}" for n in range(201)]),
        "# /// script\n" + "# # x\n" * 20_000 + "# ///\n",
    ],
)
def test_what_cannot_be_read_is_said(text):
    assert refusal(text).code == "block-invalid"


@pytest.mark.parametrize(
    "dependency",
    [
        "pkg @ https://example.com/p.whl",
        "pkg@file:///etc/x.whl",
        "git+https://example.com/x.git",
        "https://example.com/p.whl",
        "./local",
        "../local",
        "/abs/p.whl",
        "~/p",
        "p.whl",
        "p-1.0.tar.gz",
        "p (==1.zip)",
        "p==1.zip,",
        "p==1.zip ; python_version > '3'",
        "p===1.whl",
        "p==1.tar.gz,>0",
        "p[x]== 1.ZIP",
        "p >= 1.tgz",
        "sub/folder",
        r"sub\\folder",
        "-r requirements.txt",
        "--index-url=https://example.com",
        "-e .",
        "  -rfile",
        ".",
    ],
)
def test_a_block_names_packages_and_chooses_no_source(dependency):
    error = refusal(block("rich", dependency))
    assert error.code == "dependency-refused" and "only a package can be asked for" in error.message


@pytest.mark.parametrize(
    "settings",
    [
        '# [tool.uv]\n# extra-index-url = ["https://example.com"]\n',
        '# [[tool.uv.index]]\n# url = "https://example.com"\n',
        '# [tool.uv.sources]\n# rich = { git = "https://example.com" }\n',
        '# [tool.uv.pip]\n# find-links = ["x"]\n',
        '# [[tool.pdm.source]]\n# url = "https://example.com"\n',
    ],
)
def test_settings_that_choose_a_source_are_refused_and_not_left_out(settings):
    assert refusal(block("rich", more=settings)).code == "dependency-refused"


def test_other_settings_have_no_effect_and_are_named():
    found = parse_block(block("rich", more='# new-field = 1\n# [tool.uv]\n# exclude-newer = "2024-01-01"\n'))
    assert found is not None and found.ignored == ("new-field", "tool.uv.exclude-newer")
    plain = parse_block(block("rich"))
    assert plain is not None and plain.digest == found.digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["Rich", "requests"], ["requests", "rich"]),
        (["a.b_c"], ["A-B-C", "a-b-c"]),
        (["a >= 1 , < 2"], ["a<2,>=1"]),
        (["a (>=1)"], ["a>=1"]),
        (["a[x, Y_z]"], ["a[y-z,x]"]),
        (["a ; python_version   <  '3.12'"], ["a; python_version < '3.12'"]),
        (["a[]"], ["a"]),
    ],
)
def test_the_same_needs_have_one_digest(one, other):
    first, second = parse_block(block(*one)), parse_block(block(*other))
    assert first is not None and second is not None and first.digest == second.digest


@pytest.mark.parametrize(
    "marker",
    [
        "python_version < '3.12'",
        "(python_version<'3.12')and os_name=='nt'or'linux' in sys_platform",
        "((extra == 'x') or (platform_machine not in 'a b' and (os_name != 'nt')))",
        "platform_version === '1' and python_full_version ~= '3.11.2'",
        "sys_platform == 'and or ( in'",
    ],
)
def test_a_condition_is_kept(marker):
    assert parse_requirements([f"a; {marker}"], "here") == (f"a; {marker}",)


def test_other_needs_have_another_digest():
    texts = [block(), block("a"), block("a>=1"), block("b"), block("a", more='# requires-python = ">=3.11"\n')]
    found = [parse_block(text) for text in texts]
    assert len({each.digest for each in found if each}) == len(texts)


NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True)
CLAUSES = st.lists(st.from_regex(r"(==|>=|<|~=|!=) ?[0-9]{1,3}\.[0-9]{1,3}", fullmatch=True), max_size=3)


@given(NAMES.filter(lambda name: not re.search(r"\.(whl|zip|egg|tar|t\wz|tar\.\w+)$", name, re.I)), CLAUSES)
def test_what_an_installer_is_given_is_read_as_itself(name, clauses):
    first = parse_block(block(f"{name} {','.join(clauses)}"))
    assert first is not None
    [short] = first.dependencies
    again = parse_block(block(short))
    assert again is not None and again.dependencies == (short,) and not short.startswith("-") and " " not in short


@pytest.mark.parametrize(
    ("requires", "version", "fits"),
    [
        ("", "3.11.2", True),
        (">=3.11", "3.11.0", True),
        (">=3.11", "3.9.18", False),
        (">=3.9,<3.12", "3.11.2", True),
        (">=3.9,<3.11", "3.11.2", False),
        ("<4", "3.14.0", True),
        ("==3.11.*", "3.11.7", True),
        ("==3.11.*", "3.12.0", False),
        ("!=3.11.*", "3.11.7", False),
        ("==3.11", "3.11.0", True),
        ("==3.11", "3.11.2", False),
        ("~=3.10", "3.12.1", True),
        ("~=3.10", "4.0.0", False),
        ("~=3.10.2", "3.10.1", False),
        ("~=3.10.2", "3.11.0", False),
        (">3.11", "3.11.7", True),
        ("<=3.11", "3.11.7", False),
        ("===3.11.7", "3.11.7", True),
    ],
)
def test_requires_python_is_compared_as_the_specification_says(requires, version, fits):
    assert python_fits(requires, parse_version(version)) is fits


@pytest.mark.parametrize("text", ["#/// script\n", "# ///script\n", "x\n# /// script\n# a = 1\nimport os\n"])
def test_what_was_meant_as_a_block_is_noticed(text):
    assert parse_block(text) is None and find_almost_block(text) is not None
    assert find_almost_block("# script\n# //\n") is None
