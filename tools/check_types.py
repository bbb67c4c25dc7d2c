"""Checks the types that users of the installed wheel see: all are known, the examples fit, and mistakes are found.

python tools/check_types.py

- pyright --verifytypes takes every name of the public modules, and everything that can be reached from it
- mypy --strict and pyright take the example programs and tests/project/typed/. A line there that must be an error has
  `type: ignore`, which both report when it is not needed
- mypy --strict also takes the Python blocks of the first pages, written to build/types/pages with their line numbers
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("prowess", "prowess.ports", "prowess.events", "prowess.errors", "prowess.testing")
PROGRAMS = ("examples/*.py", "examples/gaia/run.py", "tests/project/typed/*.py")
PAGES = ("README.md", "docs/quickstart.md")
FOLDER = ROOT / "build" / "types"
SITE = FOLDER / "site"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PUBLIC = "prowess_public"  # package with the public names only, so that private modules are looked at where they show


def main() -> int:
    shutil.rmtree(SITE, ignore_errors=True)
    install_wheel()
    config = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error", "pythonVersion": "3.11"}
    project = FOLDER / "pyrightconfig.json"
    project.write_text(json.dumps(config), encoding="utf-8")
    programs: list[str] = []
    for pattern in PROGRAMS:
        programs.extend(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob(pattern)))
    pages = [write_blocks(ROOT / page) for page in PAGES]
    cache = str(FOLDER / "mypy")
    strict = ("--strict", "--python-version=3.11", "--no-error-summary", f"--cache-dir={cache}")
    mypy = _start("mypy", *strict, *programs, *pages)
    verify = _start("pyright", "-p", str(project), "--verifytypes", PUBLIC, "--outputjson")
    unknown = report_unknown(_output_of(verify))
    pyright = _start("pyright", "-p", str(project), *programs)
    failed = [
        report("mypy", mypy, f"{len(programs)} programs and {len(pages)} pages"),
        report("pyright", pyright, f"{len(programs)} programs"),
    ]
    return int(unknown or any(failed))


def install_wheel() -> None:
    """Builds the wheel and unpacks it, with a package beside it that exports the public names."""
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(SITE)], cwd=ROOT, check=True)
    (wheel,) = SITE.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(SITE)
    public = SITE / PUBLIC
    public.mkdir()
    (public / "py.typed").touch()
    (public / "__init__.py").touch()
    for module in MODULES:
        name = module.replace(".", "_")
        (public / f"{name}.py").write_text(f"from {module} import *\n", encoding="utf-8")


def write_blocks(page: Path) -> str:
    """Writes a program of the Python blocks of a page, with the same line numbers. Lines of `>>>` are left out."""
    text = page.read_text(encoding="utf-8")
    lines: list[str] = []
    for block in BLOCK.finditer(text):
        if block[1].startswith(">>>"):
            continue
        before = text.count("\n", 0, block.start(1))
        lines += [""] * (before - len(lines))
        lines += block[1].splitlines()
    program = FOLDER / "pages" / f"{page.stem.lower()}.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return program.relative_to(ROOT).as_posix()


def report_unknown(output: str) -> bool:
    """Prints the symbols whose types are not known. True if there are any."""
    symbols: list[dict[str, Any]] = json.loads(output)["typeCompleteness"]["symbols"]
    ours = [symbol for symbol in symbols if symbol["name"].startswith("prowess")]
    unknown = [symbol for symbol in ours if not symbol["isTypeKnown"]]
    for symbol in unknown:
        problems = [each["message"] for each in symbol["diagnostics"] if each["severity"] == "error"]
        print(f"{symbol['category']} {symbol['name']}", *problems, sep="\n    ")
    said = f"{len(unknown)} not known" if unknown else "all known"
    print(f"public types: {len(ours)} symbols, {said}")
    return bool(unknown) or not ours


def report(name: str, running: subprocess.Popen[str], checked: str) -> bool:
    """Prints the errors that a type checker found. True if there are any."""
    output = _output_of(running)
    if running.returncode != 0:
        print(output.rstrip())
        return True
    print(f"{name}: {checked}, no errors")
    return False


def _start(module: str, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *args]
    environ = {**os.environ, "PYTHONPATH": str(SITE)}
    return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, encoding="utf-8")


def _output_of(running: subprocess.Popen[str]) -> str:
    output, _ = running.communicate()
    return output


if __name__ == "__main__":
    sys.exit(main())
