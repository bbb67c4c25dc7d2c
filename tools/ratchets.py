"""Compare the numbers in ratchets.toml with the code: they only go down.

python tools/ratchets.py            exit 1 when one is exceeded
python tools/ratchets.py --lower    also write down those that were beaten
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "ratchets.toml"
OPENINGS = frozenset(
    "what which whether who whom whose how where when why it its they their this that these those one we he she"
    " whatever whoever whichever there".split()
)
MOST_FUNCTION_LINES = 60
MOST_CALLABLES = 5
LATE_IMPORTS_ALLOWED = (
    "__init__.py",
    "runtime/runtime.py",
    "runtime/factories.py",
    "runtime/session_models.py",
    "runtime/storage.py",
    "cli/main.py",
)


def main(args: list[str]) -> int:
    record = tomllib.loads(RECORD.read_text(encoding="utf-8"))
    limit, lines_allowed = record["module-lines"]["limit"], record["module-lines"]["exceptions"]
    recorded = lines_allowed | record["counts"] | record["nodes"]
    current = module_lines(limit, lines_allowed) | counts() | nodes()
    exceeded = False
    for key in sorted(recorded.keys() | current.keys()):
        if key.startswith("import-") and key not in current:
            continue
        allowed, now = recorded.get(key, limit), current.get(key, 0)
        if now > allowed:
            exceeded = True
            print(f"EXCEEDED  {key}: {now}, and {allowed} is recorded")
            for where in _where(key):
                print(f"            {where}")
        elif now < allowed and key in recorded:
            print(f"beaten    {key}: {now}, and {allowed} is recorded")
            if args == ["--lower"]:
                _lower(key, now, gone=key in lines_allowed and now <= limit)
            else:
                print("            write it down: python tools/ratchets.py --lower")
    if exceeded:
        print("\nBring the number back, or raise its line in ratchets.toml and say why in the commit.")
        return 1
    return 0


def module_lines(limit: int, exceptions: dict[str, int]) -> dict[str, int]:
    """Modules that are over the limit, or were."""
    found = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in _sources("src")}
    return {name: lines for name, lines in found.items() if lines > limit or name in exceptions}


def counts() -> dict[str, int]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {key: len(list(find())) for key, find in FOUND.items()}
    found["core-dependencies"] = len(project["dependencies"])
    if sys.version_info[:2] == (3, 11):  # how many modules Python itself needs differs between its versions
        found["import-prowess"] = _modules_added_by("prowess")
        found["import-prowess-skills"] = _modules_added_by("prowess.skills")
    return found


def nodes() -> dict[str, int]:
    """Size and density of the code in nodes of its syntax tree: reformatting changes neither."""
    found: dict[str, int] = defaultdict(int)
    statements, densities = 0, []
    for path in _sources("src"):
        package, *rest = path.relative_to(ROOT / "src" / "prowess").parts
        for node in (every := list(ast.walk(_tree(path)))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inside = list(ast.walk(node))
                densities.append(len(inside) / _count_statements(inside))
        found[f"nodes-{package if rest else 'root'}"] += len(every)
        statements += _count_statements(every)
    found["nodes-per-100-statements"] = round(100 * sum(found.values()) / statements)
    found["nodes-per-100-statements-of-a-function"] = round(100 * statistics.median(densities))
    return dict(found)


def _count_statements(every: list[ast.AST]) -> int:
    return sum(isinstance(node, ast.stmt) for node in every)


def root_modules() -> Iterator[str]:
    return (path.name for path in (ROOT / "src" / "prowess").glob("*.py"))


def imports_of_cli() -> Iterator[str]:
    """Lines of the ignore list of the contract `cli-is-a-surface`."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (surface,) = [contract for contract in contracts if contract.get("id") == "cli-is-a-surface"]
    return iter(surface["ignore_imports"])


def duplicate_class_names() -> Iterator[str]:
    found = defaultdict(list)
    for path in _sources("src"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{_name(path)}:{node.lineno}")
    return (f"{name}: {', '.join(where)}" for name, where in sorted(found.items()) if len(where) > 1)


def docstring_openings() -> Iterator[str]:
    """Docstrings that open with a question word or a pronoun instead of a noun or a verb."""
    for path in _sources("src"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                words = (ast.get_docstring(node) or "").split()
                if words and words[0].strip(",.:;").lower() in OPENINGS:
                    yield f"{_name(path)}:{getattr(node, 'lineno', 1)}: {' '.join(words[:8])}"


def long_functions() -> Iterator[str]:
    for path in _sources("src"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    yield f"{_name(path)}:{node.lineno}: {node.name} has {lines} lines"


def callback_bags() -> Iterator[str]:
    """Classes with many callable fields: fields of their own, and arguments of their `__init__`."""
    for path in _sources("src"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef) and (found := _count_callables(node)) > MOST_CALLABLES:
                yield f"{_name(path)}:{node.lineno}: {node.name} has {found}"


def _count_callables(node: ast.ClassDef) -> int:
    annotations = [each.annotation for each in node.body if isinstance(each, ast.AnnAssign)]
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            annotations += [arg.annotation for arg in (*each.args.args, *each.args.kwonlyargs) if arg.annotation]
    return sum("Callable" in ast.unparse(annotation) for annotation in annotations)


def type_ignores() -> Iterator[str]:
    return _lines("src", r"#\s*(type|pyright):\s*ignore")


def noqas() -> Iterator[str]:
    return _lines("src", r"#\s*noqa")


def skips() -> Iterator[str]:
    return _lines("tests", r"\bpytest\.(skip|mark\.skip|mark\.skipif|importorskip|mark\.xfail|xfail)\b")


def broad_excepts() -> Iterator[str]:
    for path in _sources("src"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ExceptHandler):
                names = re.findall(r"\w+", ast.unparse(node.type)) if node.type else ["Exception"]
                if {"Exception", "BaseException"} & set(names):
                    yield f"{_name(path)}:{node.lineno}"


def late_imports() -> Iterator[str]:
    """Imports of our own code inside functions. Those of a table are no count, nor those of a function that declares a
    command: it imports its handler, so that `--help` does not."""
    for path in _sources("src"):
        if path.relative_to(ROOT / "src" / "prowess").as_posix() in LATE_IMPORTS_ALLOWED:
            continue
        functions = [n for n in ast.walk(_tree(path)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        functions = [each for each in functions if not _declares_command(each)]
        late = {node for function in functions for node in ast.walk(function) if _imports_ours(node)}
        yield from (f"{_name(path)}:{n.lineno}: {ast.unparse(n)}" for n in sorted(late, key=lambda n: n.lineno))


def _declares_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).startswith("cli_command(") for decorator in function.decorator_list)


FOUND = {
    "type-ignores": type_ignores,
    "noqa": noqas,
    "broad-excepts": broad_excepts,
    "late-imports": late_imports,
    "skips-in-tests": skips,
    "root-modules": root_modules,
    "imports-of-cli": imports_of_cli,
    "duplicate-class-names": duplicate_class_names,
    "docstring-openings": docstring_openings,
    "long-functions": long_functions,
    "callback-bags": callback_bags,
}


def _where(key: str) -> Iterator[str]:
    return FOUND[key]() if key in FOUND else iter(())


def _modules_added_by(name: str) -> int:
    code = f"import sys; before = set(sys.modules); import {name}; print(len(set(sys.modules) - before))"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(answer.stdout)


def _lower(key: str, now: int, *, gone: bool) -> None:
    text = RECORD.read_text(encoding="utf-8")
    line = re.compile(rf'^("?{re.escape(key)}"? = )\d+(.*\n)', re.MULTILINE)
    RECORD.write_text(line.sub("" if gone else rf"\g<1>{now}\g<2>", text), encoding="utf-8")


def _imports_ours(node: ast.AST) -> TypeGuard[ast.Import | ast.ImportFrom]:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] == "prowess"
    return isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "prowess" for alias in node.names)


def _lines(folder: str, pattern: str) -> Iterator[str]:
    for path in _sources(folder):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(pattern, line):
                yield f"{_name(path)}:{number}: {line.strip()}"


def _sources(folder: str) -> list[Path]:
    """Ours: not the scripts of the skills that ship, and not fixtures, which are bad on purpose."""
    found = sorted((ROOT / folder).rglob("*.py"))
    return [path for path in found if not {"builtin_skills", "fixtures"} & set(path.parts)]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
