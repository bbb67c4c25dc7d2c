"""What the specification's reference library says, we say: the same verdict, the same words, the same output.

The library itself is asked, about thousands of generated heads. Left out are what we mean to do otherwise (a fence is a
line of its own) and keys with a meaning of their own in old YAML (`<<`, `=` and the empty one).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import skills_ref
from click.testing import CliRunner
from skills_ref.cli import main as reference_main
from skills_ref.parser import parse_frontmatter
from skills_ref.prompt import to_prompt
from skills_ref.validator import validate

import prowess
from prowess.cli.main import main
from prowess.runtime.check import check
from prowess.skills.discover import discover
from prowess.skills.render import render_catalog

# --- verdicts -------------------------------------------------------------------------------------------------------

_NAMES = [
    *("pdf", "PDF", "a--b", "-a", "a-", "x_y", "a b", "", '"pdf"', "'pdf'", "pdf # c", "007", "~", ".", "true"),
    *("pdf\t", "技能", "café", "ａ", "İ", "ß", "ǅ", "½", "²", "x\u0301", "x" * 64, "x" * 65, "\u200bpdf"),
]
_VALUES = [
    *("foo bar", "foo: bar", '"foo: bar"', "[a, b]", "{a: b}", "[]", "{}", "|\n  text\n  more", ">\n  folded\n  text"),
    *("|-\n  a", ">+\n  a\n\n", "|2\n   a", "&a x", "*a", "!!str x", "!x y", "@x", "`x`", "%x", "foo # bar", "# c"),
    *("true", "yes", "No", "null", "~", "1.0", "1_000", "0o14", ".inf", "2026-01-01", "", '""', "''", "- x", "?", "a:"),
    *("\n  - a\n  - b", "\n- a\n- b", "\n  - a: b\n    c: d", "\n  - - a", "\n  a: b\n  c: d", "\n  a:\n    b: c"),
    *("\n  a: b\n  a: c", "\n    deep: x\n  less: y", "\n  # c\n  a: b", "\n  a: |\n    t", "\n  ? k\n  : v"),
    *("\n  1: 2", "a\n  continued", "a\n\n  b", '"a\n  b"', '"a\nb"', '"a\\\n  b"', '"unterminated', '"a" b', "'a' b"),
    *("it's", "'a''b'", '"esc \\n x"', '"\\x41"', '"\\q"', "x:y", "http://a.b/c", "a,b", "a]", "a}", "{", "[", '"'),
    *("'", "a\tb", "a \t", "\ttab", '"a\tb"', "|\n  a\tb", "|\t\n  a", "\n  \ta: b", "é", "😀", "<b>", "\x07", "\x85"),
    *("\u2028", "x" * 500, "x" * 501, "x" * 1024, "x" * 1025, "... ", "a ... b", "a -- b"),
]
_KEYS = [
    *("license", "compatibility", "metadata", "allowed-tools", "version", "description", "name", "x", '"license"'),
    *("~", "? license", "license ", "li cense", "1", "x:y", "-x", "'metadata'"),
]
_LINES = [
    *("# comment", "", "   ", "  x: y", "-", "- a", "...", "%YAML 1.2", "}", "]", '"', "foo", "\tfoo: bar", " name: z"),
    *("!!map", "? a", "&a", "foo:bar", "x: y: z", "# c\t", "\t# c"),
]


def _generated(chance: random.Random) -> tuple[str, bytes]:
    """A folder's name and a SKILL.md."""
    name = chance.choice(_NAMES) if chance.random() < 0.3 else "pdf"
    lines = [f"name: {name}"] if chance.random() < 0.95 else []
    if chance.random() < 0.95:
        lines.append(f"description: {chance.choice(_VALUES) if chance.random() < 0.4 else 'Does x. Use when y.'}")
    lines += [f"{chance.choice(_KEYS)}: {chance.choice(_VALUES)}" for _ in range(chance.choice([0, 0, 1, 1, 2]))]
    if chance.random() < 0.15:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(_LINES))
    if chance.random() < 0.2:
        chance.shuffle(lines)
    opening = chance.choice([*["---"] * 9, "--- ", "---\t"])
    closing = chance.choice([*["---"] * 9, "--- ", "---\t"]) + chance.choice(["\nbody\n", "\n", ""])
    text = "\n".join([opening, *lines, closing]).replace("\n", chance.choice(["\n", "\n", "\r\n", "\r"]))
    plain = name.strip("\"'")
    return chance.choice(["pdf", plain if plain not in ("", ".") else "pdf"]), text.encode()


@pytest.mark.parametrize("part", range(3))
def test_generated_heads_get_the_verdict_of_the_reference_library(part: int, tmp_path: Path) -> None:
    chance = random.Random(f"reference {part}")
    verdicts = {True: 0, False: 0}
    for number in range(800):
        folder, data = _generated(chance)
        skill = tmp_path / str(number) / folder
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_bytes(data)
        _assert_same(skill, data)
        verdicts[_is_valid(skill)] += 1
    assert min(verdicts.values()) > 100, "both verdicts are well represented"


def _assert_same(skill: Path, what: object) -> None:
    try:
        theirs = validate(skill)
    except (ValueError, AttributeError) as error:  # it crashes on some bytes, which is no "valid" either
        theirs = [f"Invalid YAML in frontmatter: {error}"]
    [report] = check([str(skill)], profile="spec")
    ours = [finding.message for finding in report.findings]
    if theirs and theirs[0].startswith("Invalid YAML in frontmatter"):
        assert ours and ours[0].startswith("Invalid YAML in frontmatter"), (what, theirs)
    else:
        assert ours == theirs, what
    assert report.valid == (not theirs)


def _is_valid(skill: Path) -> bool:
    [report] = check([str(skill)], profile="spec")
    return report.valid


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no front matter",
        b"---",
        b"---\n",
        b"---\nname: pdf",
        b"---\n---\n",
        b"---\n\n---\n",
        b"---\n# only a comment\n---\n",
        b"\xef\xbb\xbf---\nname: pdf\ndescription: d\n---\n",
        b"\n---\nname: pdf\ndescription: d\n---\n",
        b"---\nname: pdf\ndescription: caf\xe9\n---\n",
        b"---\nname: pdf\ndescription: a\x00b\n---\n",
        b"---\n- a\n---\n",
        b"---\nname: pdf\ndescription: d\n---\nbody with --- in it\n",
    ],
)
def test_odd_files_get_the_verdict_of_the_reference_library(data: bytes, tmp_path: Path) -> None:
    skill = tmp_path / "pdf"
    skill.mkdir()
    (skill / "SKILL.md").write_bytes(data)
    _assert_same(skill, data)


def test_where_we_mean_to_differ(tmp_path: Path) -> None:
    """The reference library cuts a value at '---'; the specification ends the front matter with a line of its own."""
    skill = tmp_path / "pdf"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: pdf\ndescription: Splits at --- marks\n---\n", encoding="utf-8")
    assert validate(skill) == []
    assert "Splits at\n" in to_prompt([skill])
    assert "Splits at --- marks\n" in render_catalog(discover(tmp_path))


# --- read-properties, to-prompt -------------------------------------------------------------------------------------

_SKILLS = {
    "plain": "name: plain\ndescription: Does one thing.",
    "all-fields": "name: all-fields\ndescription: d\nlicense: MIT\ncompatibility: unix\nallowed-tools: Bash(git:*)",
    "metadata": "name: metadata\ndescription: d\nmetadata:\n  version: 1.10\n  date: 2024-01-31\n  on: off",
    "nested-metadata": "name: nested-metadata\ndescription: d\nmetadata:\n  a:\n    b: c\n  d:\n    - e",
    "text-metadata": "name: text-metadata\ndescription: d\nmetadata: x",
    "empty-metadata": "name: empty-metadata\ndescription: d\nmetadata:",
    "tool-list": "name: tool-list\ndescription: d\nallowed-tools:\n  - Read\n  - Write",
    "license-map": "name: license-map\ndescription: d\nlicense:\n  a: b\n  c: d",
    "empty-license": "name: empty-license\ndescription: d\nlicense:",
    "extra-fields": "name: extra-fields\ndescription: d\nversion: 1",
    "wrong-name": "name: 'Not The Folder'\ndescription: d",
    "blanks": 'name: "  blanks "\ndescription: "  d  "',
    "unicode": "name: unicode\ndescription: 从 — 😀 “quotes”",
    "escapes": "name: <b>&\ndescription: a < b & c > d \"e\" 'f'",
    "folded": "name: folded\ndescription: >\n  one\n  two\n\n  three",
    "literal": "name: literal\ndescription: |\n  one\n    two\n",
    "no-name": "description: d",
    "no-description": "name: no-description",
    "empty-description": "name: empty-description\ndescription: '  '",
    "list-description": "name: list-description\ndescription:\n  - a",
    "not-a-mapping": "- a",
    "nothing": "",
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for folder, front in _SKILLS.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "SKILL.md").write_text(f"---\n{front}\n---\n\nBody.\n", encoding="utf-8")
    (tmp_path / "lower-case").mkdir()
    (tmp_path / "lower-case" / "skill.md").write_text("---\nname: lower-case\ndescription: d\n---\n", encoding="utf-8")
    (tmp_path / "no-skill").mkdir()
    (tmp_path / "a & b").mkdir()
    (tmp_path / "a & b" / "SKILL.md").write_text("---\nname: a\ndescription: d\n---\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("plain")
    return tmp_path


Answer = tuple[int, str, str]
Ask = Callable[..., tuple[Answer, Answer]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """The reference library's exit code, stdout and stderr, and ours."""

    def both(*args: str) -> tuple[Answer, Answer]:
        theirs = CliRunner().invoke(reference_main, args)
        code = main(args)
        out, err = capsys.readouterr()
        return (theirs.exit_code, theirs.stdout, theirs.stderr), (code, out, err)

    return both


_FOLDERS = [*_SKILLS, "lower-case", "no-skill", "a & b", "link"]


@pytest.mark.parametrize("verb", ["read-properties", "to-prompt"])
@pytest.mark.parametrize("folder", _FOLDERS)
def test_one_folder_gets_the_same_answer(verb: str, folder: str, library: Path, ask: Ask) -> None:
    theirs, ours = ask(verb, str(library / folder))
    assert ours == theirs
    assert theirs[0] in (0, 1)


@pytest.mark.parametrize("verb", ["read-properties", "to-prompt"])
def test_broken_yaml_gets_the_same_exit_code(verb: str, library: Path, ask: Ask) -> None:
    """The words are the YAML parser's own, and differ."""
    for number, front in enumerate(["name: a: b", "a: [b", "name: x\nname: y", "name: &a x", "name: {a: b}", "\ta: b"]):
        skill = library / f"broken-{number}"
        skill.mkdir()
        (skill / "SKILL.md").write_text(f"---\n{front}\n---\n", encoding="utf-8")
        theirs, ours = ask(verb, str(skill))
        assert ours[:2] == theirs[:2] == (1, "")
        assert ours[2].startswith("Error: Invalid YAML in frontmatter: ")


def test_a_path_to_the_file_and_a_relative_path_work(library: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(library)
    for verb in ("read-properties", "to-prompt"):
        for path in ("plain", "./plain", "plain/SKILL.md", "lower-case/skill.md", "metadata/../plain"):
            theirs, ours = ask(verb, path)
            assert ours == theirs
            assert ours[0] == 0


def test_a_path_that_is_not_there_is_a_usage_error(library: Path, ask: Ask) -> None:
    for verb in ("read-properties", "to-prompt"):
        theirs, ours = ask(verb, str(library / "nowhere"))
        assert ours[:2] == theirs[:2] == (2, "")


def test_many_folders_are_one_prompt_and_one_bad_folder_fails_it(library: Path, ask: Ask) -> None:
    good = [str(library / name) for name in ("unicode", "plain", "escapes", "all-fields", "link", "lower-case")]
    theirs, ours = ask("to-prompt", *good)
    assert ours == theirs
    assert ours[0] == 0 and ours[1].count("<skill>") == len(good)
    theirs, ours = ask("to-prompt", *good, str(library / "no-name"))
    assert ours == theirs
    assert ours[:2] == (1, "")


@pytest.mark.parametrize(
    "place", [*_FOLDERS, "plain/SKILL.md", "lower-case/skill.md", "notes.txt", "odd", "", "nowhere"]
)
@pytest.mark.parametrize("relative", [False, True])
def test_validate_under_the_spec_profile_answers_as_the_reference_library(
    place: str, relative: bool, library: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a folder without SKILL.md, a folder of skills and a missing path included."""
    monkeypatch.chdir(library)
    (library / "notes.txt").write_text("x", encoding="utf-8")
    (library / "odd").mkdir()
    (library / "odd" / "Skill.md").write_text("---\nname: odd\ndescription: d\n---\n", encoding="utf-8")
    path = place or "../" + library.name if relative else str(library / place)
    theirs = CliRunner().invoke(reference_main, ["validate", path])
    ours = ask("validate", "--profile", "spec", path)[1]
    assert ours[:2] == (theirs.exit_code, theirs.stdout)
    if place == "nowhere":
        assert ours[0] == 2 and f"Path '{path}' does not exist." in ours[2] and f"Path '{path}' does" in theirs.stderr
    else:
        assert ours[2] == theirs.stderr


@pytest.mark.parametrize("folder", _FOLDERS)
def test_the_functions_of_the_reference_library_are_public(folder: str, library: Path) -> None:
    place = library / folder
    found = skills_ref.find_skill_md(place)
    assert prowess.find_skill_md(place) == (str(found) if found else None)
    for ours, theirs in (
        (lambda: prowess.read_properties(place).to_dict(), lambda: skills_ref.read_properties(place).to_dict()),
        (lambda: prowess.to_prompt([place]), lambda: skills_ref.to_prompt([place])),
        (lambda: prowess.parse_front_matter(_text(found)), lambda: parse_frontmatter(_text(found))),
    ):
        try:
            said = theirs()
        except skills_ref.SkillError as error:
            with pytest.raises(prowess.SkillInvalid) as refused:
                ours()
            assert refused.value.message == str(error)
        else:
            assert ours() == said


def _text(path: Path | None) -> str:
    return path.read_text(encoding="utf-8") if path else ""


def test_a_prompt_of_no_skills(library: Path) -> None:
    assert prowess.to_prompt([]) == skills_ref.to_prompt([]) == "<available_skills>\n</available_skills>"
    assert prowess.to_prompt([library / "plain/SKILL.md"]) == skills_ref.to_prompt([library / "plain"])


def test_the_catalog_we_show_is_what_the_reference_library_would(tmp_path: Path) -> None:
    """For plain skills, whose names are their folders, in our order."""
    fronts = {
        "csv-report": "Makes <b>reports</b> & \"tables\" from 'CSV'. Use when asked.",
        "pdf": "从 PDF 提取文本。当用户需要时使用。",
        "x-ray": "|\n  One.\n\n  Two — 😀.",
    }
    for name, description in fronts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {description}\n---\n\nBody.\n", encoding="utf-8"
        )
    catalog = discover(tmp_path)
    theirs = to_prompt([tmp_path / name for name in sorted(fronts)])
    assert render_catalog(catalog, locations=True) == theirs
    locations = [f"<location>\n{tmp_path / name / 'SKILL.md'}\n</location>\n" for name in fronts]
    for location in locations:
        theirs = theirs.replace(location, "")
    assert render_catalog(catalog) == theirs
    assert os.fspath(tmp_path) not in theirs
