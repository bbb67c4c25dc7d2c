"""Reads the arguments of skill_load and skill_run, without pydantic if they are plain: under our own names, of the
right types, and few. Importing pydantic and building its schemas took a quarter of the time of `prowess exec`.

All other arguments are read by the classes of `tools.arguments`, which repair them or say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from prowess.tools.arguments import OutputArguments
    from prowess.workspace.inputs import Input

T = TypeVar("T")
SKILL_NAMES = {"skill_name": "skill", "name": "skill"}  # names of other systems, and ours
_LONGEST = 1 << 20  # characters of a text; pydantic checks longer ones
_NOTHING: Mapping[str, object] = {"inputs": [], "output_files": [], "install": [], "env": {}}


class NormalArguments(dict[str, Any], Generic[T]):
    """Normal form of arguments, with their parsed value, so that they are parsed once for a call."""

    def __init__(self, normal: Mapping[str, Any], parsed: T) -> None:
        super().__init__(normal)
        self.parsed = parsed


class LoadRequest(NamedTuple):
    """Arguments of skill_load."""

    skill: str
    docs: Sequence[str] = ()
    include_all_docs: bool = False
    source: str | None = None
    arguments: str | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class RunRequest:
    """Arguments of skill_run, without the variables, which policy judges."""

    skill: str
    command: str | None = None
    script: str | None = None
    args: Sequence[str] = ()
    cwd: str | None = None
    stdin: str | None = None
    inputs: Sequence[Input] = ()
    outputs: OutputArguments | None = None
    output_files: Sequence[str] = ()
    timeout: float | None = None
    save_as_artifacts: bool = False
    omit_inline_content: bool = False
    artifact_prefix: str = ""
    install: Sequence[str] = ()
    planned: object = None  # plan of the run, made when its needs are found and used again when it is carried out


def read_load(given: Mapping[str, Any]) -> NormalArguments[LoadRequest]:
    return _read(given, LoadRequest, _plain_load, "LoadArguments", "skill_load")


def read_run(given: Mapping[str, Any]) -> NormalArguments[RunRequest]:
    return _read(given, RunRequest, _plain_run, "RunArguments", "skill_run")


def _read(
    given: Mapping[str, Any], kind: type[T], find_plain: Callable[[Mapping[str, Any]], Any], slow: str, tool: str
) -> NormalArguments[T]:
    if isinstance(given, NormalArguments) and isinstance(given.parsed, kind):
        return given
    plain = find_plain(given)
    if plain is not None:
        return NormalArguments(plain, kind(**plain))
    arguments = import_module("prowess.tools.arguments")
    parsed = getattr(arguments, slow).parse(given, tool)
    return NormalArguments(parsed.plain(), parsed.request)


def _plain_load(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Normal form of a skill's name, and perhaps its source. None for anything else."""
    if given.keys() not in ({"skill"}, {"skill", "source"}) or not _are_texts(given.values()):
        return None
    name = given["skill"].strip()
    if name.startswith(("{", "[")):
        return None
    plain = {"skill": name}
    if "source" in given:
        plain["source"] = given["source"]
    return plain


def _plain_run(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Normal form of a command, or of a script and its arguments. None for anything else."""
    rest = dict(given)
    for name, nothing in _NOTHING.items():
        if rest.get(name) == nothing:
            del rest[name]
    args = rest.pop("args", [])
    bare = rest.pop("omit_inline_content", False)
    if type(args) is not list or type(bare) is not bool:
        return None
    way = "script" if args or "script" in rest else "command"
    if rest.keys() != {"skill", way} or not _are_texts([*rest.values(), *args]):
        return None
    if way == "command" and rest[way].lstrip().startswith("bash"):  # `bash -c '…'` becomes what is quoted
        return None
    plain = {"skill": rest["skill"], way: rest[way]}
    if args:
        plain["args"] = [*args]
    if bare:
        plain["omit_inline_content"] = True
    return plain


def _are_texts(values: Iterable[object]) -> bool:
    """True for texts that are neither blank nor long and can be passed to a program."""
    for value in values:
        if type(value) is not str or "\0" in value:
            return False
        if len(value) > _LONGEST or not value.strip():
            return False
    return True
