"""Chooses how to start a script of a skill: an interpreter and a list of arguments, never a shell.

A PEP 723 block decides first, then the extension, then the first line, then the executable bit. If the extension and
the first line disagree, the extension wins and a note says so: the policy was asked about the extension's interpreter.
"""

from __future__ import annotations

import difflib
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from prowess._internal.files import open_regular, read_regular
from prowess._internal.paths import check_safe_name, inside
from prowess.errors import WorkspaceError
from prowess.skills.skill import WORKSPACE_NAMES
from prowess.workspace.scripts.pep723 import ScriptBlock, find_almost_block, parse_block
from prowess.workspace.skill_trees import SHIPPED

Why = Literal["block", "extension", "shebang", "executable"]
# Extension -> interpreters with their options, best first. Same pairs as in policy/allowed_tools.
INTERPRETERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    ".py": (("python3",), ("python",)),
    ".sh": (("bash",), ("sh",)),
    ".bash": (("bash",),),
    ".js": (("node",),),
    ".mjs": (("node",),),
    ".cjs": (("node",),),
    ".rb": (("ruby",),),
    ".pl": (("perl",),),
    ".php": (("php",),),
    ".lua": (("lua",),),
    ".r": (("Rscript",),),
    ".R": (("Rscript",),),
    ".ps1": (("pwsh", "-NoProfile", "-File"),),
}
# TypeScript has no interpreter of its own, so the first line decides, if there is one. Node strips types since 22.6
# with this option; an older Node says that it does not know the option.
_TYPESCRIPT = (("node", "--experimental-strip-types"), ("tsx",), ("bun", "run"), ("deno", "run", "--allow-all"))
_TYPESCRIPT_EXTENSIONS = (".ts", ".mts", ".cts")
_FOREIGN = {b"MZ": "Windows", b"\xcf\xfa\xed\xfe": "macOS", b"\xca\xfe\xba\xbe": "macOS or Java"}
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_SHELLS = ("bash", "sh", "dash", "ksh", "zsh")
_HEAD_BYTES = 1024  # more than any kernel reads for a first line
_SCRIPT_BYTES = 4 << 20  # a block further down is not found
_MOST_LISTED = 20


class Launch(NamedTuple):
    """Command that starts a script: `way` (an interpreter and its options, empty for a program), the script's path from
    the skill's root, and its arguments.

    With a `block`, the interpreter is that of its environment, once it is built. `env` turns off Python's output
    buffer, so that output survives a time-out. `notes` list where the launch differs from the request.
    """

    way: tuple[str, ...]
    script: str
    why: Why
    args: tuple[str, ...] = ()
    is_python: bool = False
    block: ScriptBlock | None = None
    notes: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """Arguments for a run that starts in the skill's root."""
        return self.seen_from(".")

    @property
    def interpreter(self) -> str:
        if self.way:
            return self.way[0]
        return self.script

    @property
    def env(self) -> dict[str, str]:
        if self.is_python:
            return {"PYTHONUNBUFFERED": "1"}
        return {}

    def seen_from(self, folder: str, *, python: str = "") -> tuple[str, ...]:
        """Returns the command for a run that sees the skill at `folder`; `python` replaces the interpreter."""
        way = self.way
        if python and self.is_python:
            way = (python, *self.way[1:])
        script = self.script
        if folder != "." or "/" not in script or script.startswith("-"):
            # With a folder in front, a file named `-c` is no option, and a plain name is not searched on the PATH.
            script = posixpath.join(folder, script)
        return (*way, script, *self.args)


def find_script(tree_path: str, script: str, *, skill: str = "") -> str:
    """Returns the script's path from the skill's root, for any starting folder of a run. Raises PathEscape when it
    leads out.

    Accepts `scripts/x.py`, `./scripts/x.py` and `$SKILL_DIR/scripts/x.py`; `x.py` when only scripts/x.py exists; for
    the skill 'pdf' also `pdf/scripts/x.py`. A folder of the skill that was moved is found under its original name.
    """
    for candidate in _candidates(script, skill):
        path = inside(tree_path, candidate)
        if os.path.isfile(path):
            below = os.path.relpath(path, os.path.realpath(tree_path))
            return below.replace(os.sep, "/")
    raise _not_found(tree_path, script, skill)


def plan_script(
    tree_path: str,
    script: str,
    args: Sequence[str] = (),
    *,
    python: str,
    interpreters: Collection[str] | None = None,
    skill: str = "",
) -> Launch:
    """Returns the launch of a script. `python` is the workspace's; `interpreters` are the names of its others (None:
    unknown). Raises `script-no-interpreter` when nothing says how to run it, `interpreter-missing` when the interpreter
    is not there."""
    path = find_script(tree_path, script, skill=skill)
    host_path = inside(tree_path, path)
    head = read_regular(host_path, _HEAD_BYTES)
    first_line = parse_shebang(head)
    launch = _choose(path, host_path, head, first_line, python, interpreters)
    if launch.is_python:
        launch = _with_block(launch, host_path, first_line)
    notes = launch.notes
    if path != _candidates(script, skill)[0]:
        notes = (f"'{script}' was taken as {path}.", *notes)
    if launch.interpreter in _SHELLS and b"\r\n" in head:
        notes = (*notes, f"{path} has Windows line ends, which a shell takes for part of each command.")
    return launch._replace(args=tuple(args), notes=notes)


def parse_shebang(head: bytes) -> tuple[str, ...]:
    """Parses the first line: the name of an interpreter and its options, or ().

    Accepts `#!/usr/bin/env -S python3 -u` and `#!/bin/sh -e`, with a BOM, a carriage return or no line end. An `env`
    that does more than find a program is kept.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    line, end, _ = head.partition(b"\n")
    if not line.startswith(b"#!") or (not end and len(head) >= _HEAD_BYTES) or b"\0" in line:
        return ()
    try:
        words = line[2:].decode("utf-8").split()
    except UnicodeDecodeError:
        return ()
    if words and posixpath.basename(words[0]) == "env":
        words = _after_env(words[1:])
    if not words:
        return ()
    name = posixpath.basename(words[0])
    if not name:
        return ()
    return (name, *words[1:])


def _after_env(words: list[str]) -> list[str]:
    if words and re.match(r"-v?S|--split-string", words[0]):
        text = re.sub(r"^(?:-v?S|--split-string=?)", "", " ".join(words))
        try:
            words = shlex.split(text)
        except ValueError:
            return []
    if words and (words[0].startswith("-") or "=" in words[0]):
        return ["env", *words]
    return words


def _choose(
    path: str,
    host_path: str,
    head: bytes,
    first_line: tuple[str, ...],
    python: str,
    interpreters: Collection[str] | None,
) -> Launch:
    extension = posixpath.splitext(path)[1]
    ways = INTERPRETERS.get(extension, ())
    if extension in _TYPESCRIPT_EXTENSIONS and not first_line:
        ways = _TYPESCRIPT
    if ways:
        return _by_extension(path, extension, ways, first_line, python, interpreters)
    if first_line:
        if _is_python(first_line[0]):
            return _python_launch(path, python, first_line[1:], "shebang")
        if _runs_python(first_line):
            return _python_launch(path, python, (), "shebang")
        _check_present(first_line[:1], path, interpreters)
        return Launch(way=first_line, script=path, why="shebang")
    for magic, system in _FOREIGN.items():
        if head.startswith(magic):
            message = f"'{path}' is a program for {system}."
            raise _no_interpreter(message, "Ask the skill's author for one that runs here.")
    if _is_executable(host_path):
        return Launch(way=(), script=path, why="executable")
    if head.startswith(b"\x7fELF"):
        hint = f"The skill's author marks it: chmod +x {path}"
        raise _no_interpreter(f"'{path}' is a program, and not executable.", hint)
    known = " ".join(INTERPRETERS)
    hint = f"It needs a first line such as #!/usr/bin/env python3, or one of these extensions: {known}"
    raise _no_interpreter(f"Nothing says how to run '{path}'.", hint)


def _by_extension(
    path: str,
    extension: str,
    ways: tuple[tuple[str, ...], ...],
    first_line: tuple[str, ...],
    python: str,
    interpreters: Collection[str] | None,
) -> Launch:
    """Chooses by extension. The first line may select among the extension's interpreters, and its options count:
    `#!/bin/sh -e` stops at the first error."""
    named = first_line[0] if first_line else ""
    options = first_line[1:]
    if extension == ".py":
        return _by_python_extension(path, first_line, python)
    there = [way for way in ways if interpreters is None or way[0] in interpreters]
    if not there:
        _check_present([way[0] for way in ways], path, interpreters)
    for way in there:
        if way[0] == named:
            return Launch(way=(*way, *options), script=path, why="extension")
    way = there[0]
    notes = (_disagreement(path, named, way[0]),) if named else ()
    return Launch(way=way, script=path, why="extension", notes=notes)


def _by_python_extension(path: str, first_line: tuple[str, ...], python: str) -> Launch:
    named = first_line[0] if first_line else ""
    options = first_line[1:] if _is_python(named) else ()
    notes: tuple[str, ...] = ()
    if named and not _is_python(named) and not _runs_python(first_line):
        notes = (_disagreement(path, named, "Python"),)
    elif "." in named and python:
        notes = (f"{path} asks for {named}; it is run by {python}.",)
    return _python_launch(path, python, options, "extension", notes)


def _with_block(launch: Launch, host_path: str, first_line: tuple[str, ...]) -> Launch:
    """Returns the launch with the script's PEP 723 block, if it has one."""
    text = read_regular(host_path, _SCRIPT_BYTES).decode("utf-8-sig", "replace")
    block = parse_block(text, name=launch.script)
    notes = list(launch.notes)
    if block is None:
        almost = find_almost_block(text)
        if almost is not None:
            notes.append(
                f"{launch.script}, line {almost}: this looks like the beginning of a PEP 723 block and is none: it is "
                "'# /// script' to '# ///', and every line between them begins with '# '."
            )
        if "--with" in first_line:
            notes.append(f"What the first line of {launch.script} asks uv for is not installed; a PEP 723 block is.")
        return launch._replace(notes=tuple(notes))
    if block.ignored:
        ignored = ", ".join(block.ignored)
        notes.append(f"{launch.script}, line {block.line}: has no effect here: {ignored[:200]}")
    return launch._replace(block=block, why="block", notes=tuple(notes))


def _python_launch(path: str, python: str, options: tuple[str, ...], why: Why, notes: tuple[str, ...] = ()) -> Launch:
    if not python:
        _check_present(("python3",), path, ())
    return Launch(way=(python, *options), script=path, why=why, is_python=True, notes=notes)


def _is_python(name: str) -> bool:
    return _PYTHON.fullmatch(name) is not None


def _runs_python(first_line: tuple[str, ...]) -> bool:
    """True for `uv run --script` and `pipx run`, which run the script with the packages of its block."""
    return first_line[:1] in (("uv",), ("pipx",)) and "run" in first_line


def _disagreement(path: str, named: str, taken: str) -> str:
    return f"The first line of {path} asks for {named}; its extension says {taken}, and that is what runs it."


def _check_present(names: Sequence[str], path: str, interpreters: Collection[str] | None) -> None:
    if interpreters is None or any(name in interpreters for name in names):
        return
    message = f"'{path}' is run by {' or '.join(names)}, which is not there."
    hint = f"Whoever runs Prowess installs it. The skill's author names it: requires: {{bins: [{names[0]}]}}"
    raise WorkspaceError(message, op="plan", code="interpreter-missing", hint=hint)


def _no_interpreter(message: str, hint: str) -> WorkspaceError:
    return WorkspaceError(message, op="plan", code="script-no-interpreter", hint=hint)


def _is_executable(host_path: str) -> bool:
    fd = open_regular(host_path)
    try:
        return bool(os.fstat(fd).st_mode & 0o111)
    finally:
        os.close(fd)


def _candidates(script: str, skill: str) -> list[str]:
    """Returns the paths a person or a model may have meant, the most literal first."""
    text = re.sub(r"^\$(?:SKILL_DIR\b|\{SKILL_DIR\})/*", "", script)
    check_safe_name(text)
    found = []
    for spelling in dict.fromkeys((text, text.replace("\\", "/"))):
        path = posixpath.normpath(spelling) if spelling else "."
        found += [path, f"scripts/{path}"]
        if path.split("/")[0] in WORKSPACE_NAMES:
            found.append(f"{SHIPPED}/{path}")
        if not skill:
            continue
        for prefix in (f"{skill}/", f"skills/{skill}/"):
            if path.startswith(prefix):
                found.append(path.removeprefix(prefix))
    return found


def _not_found(tree_path: str, script: str, skill: str) -> WorkspaceError:
    there = _scripts(tree_path)
    words = script.split()
    hint = _list_nearest_first(there, script) if there else "This skill has no scripts."
    if len(words) > 1 and any(_is_there(tree_path, word, skill, os.path.isfile) for word in words):
        hint = f"Give the file alone; what follows it belongs into args, one by one. {hint}"
    if script.strip("./") and _is_there(tree_path, script, skill, os.path.isdir):
        hint = f"That is a folder. {hint}"
    message = f"The skill has no script '{script[:200]}'."
    return WorkspaceError(message, op="plan", code="script-not-found", hint=hint)


def _list_nearest_first(paths: Sequence[str], script: str) -> str:
    stems = {path: _stem(path) for path in paths}
    near = difflib.get_close_matches(_stem(script), stems.values(), n=3)

    def distance(path: str) -> int:
        if stems[path] in near:
            return near.index(stems[path])
        return len(near)

    listed = ", ".join(sorted(paths, key=distance)[:_MOST_LISTED])
    left = len(paths) - _MOST_LISTED
    if left > 0:
        return f"There are: {listed} and {left} more"
    return f"There are: {listed}"


def _stem(path: str) -> str:
    stem, _ = posixpath.splitext(posixpath.basename(path))
    return stem.lower()


def _is_there(tree_path: str, script: str, skill: str, fits: Callable[[str], bool]) -> bool:
    try:
        return any(fits(inside(tree_path, path)) for path in _candidates(script, skill))
    except WorkspaceError:
        return False


def _scripts(tree_path: str) -> list[str]:
    """Returns all files below scripts/; if there are none, all files with the extension of a script."""
    found: list[str] = []
    for folder, folders, names in os.walk(tree_path):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", "node_modules"))
        rel = os.path.relpath(folder, tree_path)
        found += sorted(posixpath.normpath(posixpath.join(rel, name)) for name in names)
    below = [path for path in found if path.startswith("scripts/")]
    if below:
        return below
    known = (*INTERPRETERS, *_TYPESCRIPT_EXTENSIONS)
    return [path for path in found if path.endswith(known)]
