"""Write the pages under docs/ that are made from the code: the command line, finding codes, settings and errors.

python tools/make_docs.py            write them
python tools/make_docs.py --check    exit 1 and show the difference when one is not up to date
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import json
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import prowess
from prowess import errors
from prowess.cli.app import group
from prowess.cli.main import COMMANDS
from prowess.core.findings import RULES
from prowess.runtime.config import describe_fields
from prowess.skills.validate import graded

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "prowess"
NOTICE = "<!-- Made by tools/make_docs.py from {source}. Do not edit: run `make docs`. -->\n"


def main(args: list[str]) -> int:
    pages = {
        "cli.md": command_line,
        "finding-codes.md": finding_codes,
        "configuration-reference.md": settings,
        "errors.md": all_errors,
        "isolation.md": isolation,
        "architecture.md": architecture,
    }
    stale = False
    for name, render in pages.items():
        path, text = ROOT / "docs" / name, render()
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text == old:
            continue
        stale = True
        if args == ["--check"]:
            change = difflib.unified_diff(
                old.splitlines(), text.splitlines(), f"docs/{name}", "as it should be", lineterm=""
            )
            print("\n".join(change))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")
    if stale and args == ["--check"]:
        print("\nThe generated pages are not up to date. Run: make docs")
        return 1
    return 0


HELD = """
# What was tried, and what held

The escape suite (`tests/escapes/test_escapes.py`) lets a hostile skill attempt each of these in every executor.

- *held*: the attempt failed, and the same attempt succeeded without isolation.
- **does not hold**: the attempt succeeded there, and the suite asserts that, too.
- –: nobody promises it there.

An attempt that fails on a machine even without isolation proves nothing, and the test run lists it as not run. What
each executor is, and when it is used: [Executors](executors.md).

"""


def isolation() -> str:
    """The escape suite's own table: what it asserts is what the page says."""
    sys.path.insert(0, str(ROOT / "tests"))
    render_table = importlib.import_module("escapes.table").render_table
    return f"{NOTICE.format(source='tests/escapes/cases.py')}{HELD}{render_table().rstrip()}\n"


def architecture() -> str:
    """The page as it is, with the table of layers drawn from the imports of the code."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = ["| package | imports |", "|---|---|"]
    for layer in next(contract for contract in contracts if contract["id"] == "layers")["layers"]:
        for package in layer.split(" | "):
            seen = sorted({name for path in _modules(package) for name in _imported_packages(path)} - {package})
            rows.append(f"| `{package}` | {', '.join(f'`{name}`' for name in seen) or 'nothing of ours'} |")
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    start, end = "<!-- layers -->\n", "<!-- end of layers -->"
    before, rest = page.split(start)
    return "".join([before, start, "\n".join(["", *rows, "", end]), rest.split(end)[1]])


def _modules(package: str) -> list[Path]:
    return [*(SOURCE / package).rglob("*.py"), *SOURCE.glob(f"{package}.py")]


def _imported_packages(path: Path) -> Iterator[str]:
    """Of every import that is executed: what stands under TYPE_CHECKING is not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    skipped = {id(inner) for block in typing_only for inner in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped and node.module:
            first, _, rest = node.module.partition(".")
            if first == "prowess" and rest:
                yield rest.partition(".")[0]


# --- the command line -------------------------------------------------------------------------------------------------


def command_line() -> str:
    """The --help page of every verb, as a terminal of 100 columns shows it."""
    top = _context(group, "prowess", None)
    parts = [
        NOTICE.format(source="the click commands"),
        "# Command line\n",
        "What `prowess --help` and `prowess VERB --help` print. "
        "The options of `prowess` itself can stand before or after the verb.\n",
        _text_block(group.get_help(top)),
    ]
    for verb in COMMANDS:
        command = group.get_command(top, verb)
        assert command is not None, verb
        context = _context(command, verb, top)
        parts += [f"## prowess {verb}\n", _text_block(command.get_help(context))]
        for name, action in command.commands.items() if isinstance(command, click.Group) else ():
            parts += [f"### prowess {verb} {name}\n", _text_block(action.get_help(_context(action, name, context)))]
    return "\n".join(parts)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    fixed: dict[str, Any] = {"terminal_width": 100, "max_content_width": 100, "color": False}
    return click.Context(command, parent=parent, info_name=name, **{**command.context_settings, **fixed})


def _text_block(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return f"```text\n{lines}\n```\n"


# --- finding codes ----------------------------------------------------------------------------------------------------

STAGES = {
    "head": ("The head", "Seen by everyone who lists skills: they are about the front matter of SKILL.md."),
    "file": ("The file", "Seen when SKILL.md is looked for and opened."),
    "body": (
        "The body",
        "Seen when a skill is loaded or checked: they are about the text below the front matter.",
    ),
    "tree": ("The tree", "Seen when a skill is loaded or checked: they are about the other files of its folder."),
    "library": ("The library", "Seen while folders are searched for skills."),
    "url": ("Addresses", "Seen when skills come from an address instead of a folder."),
    "trust": ("Trust", "Seen when the record of what you trust is read."),
    "config": ("Configuration", "Seen when the configuration of a project is read."),
    "scan": (
        "The security scan",
        "Seen with `prowess validate --profile security`: signs of a hostile or careless skill.",
    ),
}


def finding_codes() -> str:
    unknown = {rule.stage for rule in RULES.values()} - set(STAGES)
    assert not unknown, f"tools/make_docs.py has no introduction for the stages {sorted(unknown)}"
    parts = [
        NOTICE.format(source="src/prowess/core/findings.py"),
        "# Finding codes\n",
        "Prowess never drops a skill in silence: what it repaired, ignored or refused is a finding, with a code that "
        "keeps its meaning. An **error** makes the skill unusable, or `prowess validate` fail; a **warning** is "
        "something to mend; **info** is good to know. A word in braces stands for what was found.\n",
    ]
    for stage, (title, introduction) in STAGES.items():
        codes = {code: rule for code, rule in RULES.items() if rule.stage == stage}
        if not codes:
            continue
        parts += [f"## {title}\n", f"{introduction}\n"]
        for code, rule in codes.items():
            verdict = graded(code, "default")
            differs = f" (`prowess validate`: **{verdict}**)" if verdict != rule.severity else ""
            parts += [
                f"### {code}\n",
                f"**{rule.severity}**{differs}: {_plain(rule.message)}\n",
                f"- What to do: {_plain(rule.hint)}",
                f"- Why: {_plain(rule.why)}\n",
            ]
    return "\n".join(parts)


# --- settings ---------------------------------------------------------------------------------------------------------


def settings() -> str:
    rows = [
        f"| `{name}` | {_cell(kind)} | {'not set' if default is None else f'`{json.dumps(default)}`'} | {_cell(doc)} |"
        for name, kind, default, doc in describe_fields()
    ]
    return "\n".join(
        [
            NOTICE.format(source="src/prowess/runtime/settings.py"),
            "# Settings\n",
            "Every setting of `config.toml`. `limits.turns` is the key `turns` of the table `[limits]`. "
            "`prowess config show --origin` says which value is in force, and where it came from.\n",
            "| Setting | Type | Default | Meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


# --- errors -----------------------------------------------------------------------------------------------------------


def all_errors() -> str:
    _import_everything()
    tree = inspect.cleandoc(errors.__doc__ or "")
    classes = [
        f"| `{kind.__name__}` | `{kind.code}` | {kind.exit_code} | {_own_doc(kind)} |"
        for kind in _family(errors.ProwessError)
    ]
    exact: dict[str, tuple[set[str], set[str]]] = {}
    for code, kind, file in _literal_codes():
        kinds, files = exact.setdefault(code, (set(), set()))
        kinds |= {f"`{kind}`"} if kind else set()
        files.add(file)
    codes = [
        f"| {_linked(code)} | {', '.join(sorted(kinds))} | {', '.join(sorted(files))} |"
        for code, (kinds, files) in sorted(exact.items())
    ]
    return "\n".join(
        [
            NOTICE.format(source='src/prowess/errors.py and every `code="…"` in src'),
            "# Errors\n",
            "Every failure that a caller can meet is a `ProwessError` with `message`, `hint` and `code`. Programs "
            "should look at the code: it keeps its meaning, while the words may improve. With `--json` the command "
            "line prints "
            '`{"error": {"code": "…", "message": "…", "hint": "…"}}`.\n',
            _text_block(tree),
            "## Classes\n",
            "| Class | Code, unless a more exact one is given | Exit code | When |",
            "|---|---|---|---|",
            *classes,
            "",
            "## Exact codes\n",
            "A linked one means the same as the [finding](finding-codes.md) of that name. "
            "… stands for a word that is filled in.\n",
            "| Code | Class | Raised in |",
            "|---|---|---|",
            *codes,
            "",
        ]
    )


def _import_everything() -> None:
    """So that every subclass is known."""
    for module in pkgutil.walk_packages(prowess.__path__, "prowess."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)


def _family(kind: type[errors.ProwessError]) -> Iterator[type[errors.ProwessError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


def _linked(code: str) -> str:
    return f"[`{code}`](finding-codes.md#{code})" if code in RULES else f"`{code}`"


def _own_doc(kind: type) -> str:
    return _cell(" ".join((kind.__dict__.get("__doc__") or "").split()))


def _literal_codes() -> Iterator[tuple[str, str, str]]:
    """(code, class, file) of every ConfigError(…, code="no-folder"), and of every `code = "…"` that one is made of."""
    names = {kind.__name__ for kind in _family(errors.ProwessError)}
    for path in sorted(set(SOURCE.rglob("*.py")) - {SOURCE / "errors.py"}):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (kind := ast.unparse(node.func).rpartition(".")[2]) in names:
                values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                yield from ((code, kind, file) for value in values for code in _texts(value))
            elif isinstance(node, ast.Assign):
                yield from ((code, "", file) for value in _assigned(node, "code") for code in _texts(value))


def _assigned(node: ast.Assign, name: str) -> list[ast.expr]:
    pairs: list[tuple[ast.expr, ast.expr]] = [(target, node.value) for target in node.targets]
    for target, value in list(pairs):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs += zip(target.elts, value.elts, strict=False)
    return [value for target, value in pairs if isinstance(target, ast.Name) and target.id == name]


def _texts(value: ast.expr) -> list[str]:
    """What a literal can be: one text, either side of an `if`, or an f-string with … for what is filled in."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [value.value]
    if isinstance(value, ast.IfExp):
        return [*_texts(value.body), *_texts(value.orelse)]
    if isinstance(value, ast.JoinedStr):
        return ["".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in value.values)]
    return []


def _plain(text: str) -> str:
    """Text of ours as Markdown that shows exactly that text."""
    return re.sub(r"([\\`*_<>\[\]|#])", r"\\\1", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
