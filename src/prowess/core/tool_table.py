"""Facts about the built-in tools, one row for each. Policy, tools, records, agent and runtime read them from here.

A row has no behaviour. A tool's own class has its schema and its coroutine; a test keeps its arguments in step with the
row. The order of the rows is the order in which a model is told the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

Risk = Literal["low", "medium", "high", "unknown"]
Profile = Literal["default", "lean", "full"]


class Argument(NamedTuple):
    """Argument of a tool, as policy sees it."""

    default: str | None = None  # value when the call leaves it out
    only: tuple[str, ...] = ()  # all possible values; empty: any
    is_table: bool = False  # not a text, so no pattern matches it for certain


class ToolForm(NamedTuple):
    """Shorter form of a tool in one profile. An empty field means: as in the tool's own spec."""

    text: str = ""
    fields: tuple[str, ...] = ()


class ToolTraits(NamedTuple):
    name: str
    gerund: str  # shown before the object of a call: `running scripts/report.py`
    arguments: Mapping[str, Argument]
    positional: tuple[str, ...] = ()  # arguments that unnamed words of a person stand for, in this order
    aliases: tuple[str, ...] = ()  # names in other systems; one name may stand for several tools
    risk: Risk = "low"  # a tool of high risk exists only when tools.enable names it, or if it `writes_workspace`
    writes_workspace: bool = False  # allowed below work/ and out/ where programs run isolated
    narrowed_by_allowed_tools: bool = True
    runs_commands: bool = False
    path_argument: str | None = None
    searches_below: bool = False  # reads everything below its path
    url_argument: str | None = None
    ends_work: bool = False  # watches or ends what was allowed before; a denied skill can always be ended
    takes_unloaded: bool = False  # also works on a skill that is not loaded
    loads_first: bool = False  # a skill that is not loaded is loaded before the call
    reads_resources: bool = False  # its result names files of a skill that were read
    is_counted: bool = True  # counts against limits.calls
    offered: Literal["always", "with-skills", "with-search", "with-executor"] = "with-skills"
    profiles: tuple[Profile, ...] = ()  # profiles that offer it; tools.enable offers it in every profile
    forms: Mapping[Profile, ToolForm] = {}
    short_schemas: Mapping[str, dict[str, Any]] = {}  # of its fields, in all profiles but `full`


_ANY, _TABLE = Argument(), Argument(is_table=True)
_FLAG = Argument("false", ("false", "true"))
_OF_SKILL = {"skill": _ANY}
_DOCS = {**_OF_SKILL, "docs": _ANY, "include_all_docs": _FLAG}
_RUN = {
    **dict.fromkeys(("skill", "command", "script", "args", "cwd", "stdin", "output_files", "timeout"), _ANY),
    **dict.fromkeys(("env", "inputs", "outputs"), _TABLE),
    **dict.fromkeys(("save_as_artifacts", "omit_inline_content"), _FLAG),
    **dict.fromkeys(("artifact_prefix", "install"), _ANY),
}
_WATCH = {"session_id": _ANY, "yield_ms": Argument("400"), "poll_lines": Argument("40")}
_SHELLS = ("Bash", "Shell", "run_shell_command")
_EVERY: tuple[Profile, ...] = ("default", "lean", "full")
_TEXT_LIST = {"type": "array", "items": {"type": "string"}}
_RUN_SCHEMAS: dict[str, dict[str, Any]] = {
    "command": {"type": "string", "description": "shell command line"},
    "script": {"type": "string", "description": "instead: a file of the skill"},
    "args": {**_TEXT_LIST, "description": "of script"},
    "cwd": {"type": "string", "description": "default: the skill's folder"},
    "env": {"type": "object"},
    "inputs": {
        "type": "array",
        "items": {"type": "object"},
        "description": "{from: workspace://path, artifact://name[@version], skill://name/path or host:///path; "
        "to?: work/path; mode?: copy|link; pin?: bool}",
    },
    "outputs": {
        "type": "object",
        "description": "{globs: [], inline?: bool, save?: bool, name_template?, "
        "max_files?, max_file_bytes?, max_total_bytes?}",
    },
    "output_files": {**_TEXT_LIST, "description": "globs, such as out/*.txt"},
    "timeout": {"type": "number", "description": "seconds"},
}
_RUN_TEXT = "Run a command or script that a skill asks for, isolated."
_READ_TEXT = "Read a file of a skill, or a section of it."
_PLAN_TEXT = "Keep the plan of a task with several steps."

_ROWS = (
    ToolTraits(
        name="skill_load",
        gerund="loading",
        arguments={**_DOCS, **dict.fromkeys(("source", "arguments", "reason"), _ANY)},
        positional=("skill",),
        aliases=("Skill", "select_skills"),
        narrowed_by_allowed_tools=False,
        reads_resources=True,
        profiles=_EVERY,
        forms={"lean": ToolForm("Load a skill's instructions.", ("skill",))},
    ),
    ToolTraits(
        name="skill_search",
        gerund="searching for",
        arguments={"query": _ANY, "limit": Argument("5")},
        positional=("query",),
        narrowed_by_allowed_tools=False,
        offered="with-search",
        profiles=_EVERY,
        forms={"default": ToolForm(fields=("query",)), "lean": ToolForm(fields=("query",))},
    ),
    ToolTraits(
        name="skill_list_docs",
        gerund="looking through",
        arguments=_OF_SKILL,
        positional=("skill",),
        narrowed_by_allowed_tools=False,
        takes_unloaded=True,
        profiles=("default", "full"),
    ),
    ToolTraits(
        name="skill_select_docs",
        gerund="selecting docs of",
        arguments={**_DOCS, "mode": Argument("replace", ("replace", "add", "clear"))},
        positional=("skill",),
        narrowed_by_allowed_tools=False,
        takes_unloaded=True,
        reads_resources=True,
        profiles=("default", "full"),
    ),
    ToolTraits(
        name="skill_read",
        gerund="reading",
        arguments={
            **_OF_SKILL,
            **dict.fromkeys(("path", "section", "start_line", "num_lines", "section_hint"), _ANY),
        },
        positional=("skill", "path"),
        aliases=("load_resource",),
        narrowed_by_allowed_tools=False,
        reads_resources=True,
        loads_first=True,
        profiles=_EVERY,
        forms={"default": ToolForm(_READ_TEXT), "lean": ToolForm(_READ_TEXT, ("skill", "path", "section"))},
    ),
    ToolTraits(
        name="skill_unload",
        gerund="unloading",
        arguments=_OF_SKILL,
        positional=("skill",),
        narrowed_by_allowed_tools=False,
        ends_work=True,
        profiles=("full",),
    ),
    ToolTraits(
        name="skill_run",
        gerund="running",
        arguments=_RUN,
        positional=("command",),
        aliases=(*_SHELLS, "run_script"),
        risk="medium",
        runs_commands=True,
        loads_first=True,
        offered="with-executor",
        profiles=_EVERY,
        forms={
            "default": ToolForm(_RUN_TEXT, tuple(name for name in _RUN if name != "install")),
            "lean": ToolForm(_RUN_TEXT, ("skill", "command", "script", "args", "output_files")),
        },
        short_schemas=_RUN_SCHEMAS,
    ),
    ToolTraits(
        name="skill_exec",
        gerund="running",
        arguments={**_RUN, "tty": _FLAG, "yield_ms": Argument("1000"), "poll_lines": Argument("40")},
        positional=("command",),
        aliases=_SHELLS,
        risk="medium",
        runs_commands=True,
        loads_first=True,
        offered="with-executor",
        profiles=("full",),
    ),
    ToolTraits(
        name="skill_write_stdin",
        gerund="answering",
        arguments={**_WATCH, "chars": _ANY, "submit": _FLAG, "eof": _FLAG},
        positional=("session_id",),
        aliases=_SHELLS,
        risk="medium",
        offered="with-executor",
        profiles=("full",),
    ),
    ToolTraits(
        name="skill_poll_session",
        gerund="watching",
        arguments=_WATCH,
        positional=("session_id",),
        aliases=(*_SHELLS, "BashOutput"),
        risk="medium",
        ends_work=True,
        offered="with-executor",
        profiles=("full",),
    ),
    ToolTraits(
        name="skill_kill_session",
        gerund="ending",
        arguments={"session_id": _ANY},
        positional=("session_id",),
        aliases=(*_SHELLS, "KillShell", "KillBash"),
        risk="medium",
        ends_work=True,
        offered="with-executor",
        profiles=("full",),
    ),
    ToolTraits(
        name="update_plan",
        gerund="planning",
        arguments={"plan": _TABLE, "patch": _ANY},
        aliases=("TodoWrite",),
        narrowed_by_allowed_tools=False,
        is_counted=False,
        offered="always",
        profiles=("full",),
        forms={"default": ToolForm(_PLAN_TEXT), "lean": ToolForm(_PLAN_TEXT, ("plan",))},
    ),
    ToolTraits(
        name="ask_user",
        gerund="asking you",
        arguments={"question": _ANY, "choices": _ANY},
        positional=("question",),
        aliases=("AskUserQuestion",),
        narrowed_by_allowed_tools=False,
        profiles=("full",),
    ),
    ToolTraits(
        name="read_file",
        gerund="reading",
        arguments=dict.fromkeys(("file_name", "start_line", "num_lines"), _ANY),
        positional=("file_name",),
        aliases=("Read", "NotebookRead"),
        path_argument="file_name",
        profiles=("default", "full"),
        forms=dict.fromkeys(("default", "lean"), ToolForm("Read a text file, or lines of it.")),
        short_schemas={"file_name": {"type": "string", "description": "path, artifact://name or skill://name/path"}},
    ),
    ToolTraits(
        name="list_dir",
        gerund="looking into",
        arguments={"path": Argument("."), "depth": Argument("1"), "pattern": _ANY},
        positional=("path",),
        aliases=("Glob", "LS", "List"),
        path_argument="path",
        searches_below=True,
        profiles=("full",),
    ),
    ToolTraits(
        name="grep",
        gerund="searching for",
        arguments={
            "pattern": _ANY,
            "path": Argument("."),
            "glob": _ANY,
            "max_results": Argument("50"),
            "ignore_case": _FLAG,
        },
        positional=("pattern", "path"),
        aliases=("Grep",),
        path_argument="path",
        searches_below=True,
        profiles=("full",),
    ),
    ToolTraits(
        name="write_file",
        gerund="writing",
        arguments={"path": _ANY, "content": _ANY},
        positional=("path", "content"),
        aliases=("Write", "Edit", "MultiEdit", "NotebookEdit"),
        risk="high",
        writes_workspace=True,
        path_argument="path",
        offered="with-executor",
        profiles=("default", "full"),
        forms=dict.fromkeys(("default", "lean"), ToolForm("Write a text file.")),
        short_schemas={
            "path": {"type": "string", "description": "below work/ or out/"},
            "content": {"type": "string"},
        },
    ),
    ToolTraits(
        name="delete_file",
        gerund="deleting",
        arguments={"path": _ANY},
        positional=("path",),
        aliases=("Delete",),
        risk="high",
        path_argument="path",
    ),
    ToolTraits(
        name="network_request",
        gerund="asking",
        arguments={
            "url": _ANY,
            "method": Argument("GET", ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")),
            "headers": _TABLE,
            "body": _ANY,
        },
        positional=("url", "method"),
        aliases=("WebFetch", "web_fetch", "network"),
        risk="high",
        url_argument="url",
    ),
)
# Capability that a call may need besides its own permission -> its arguments. It is asked for like a tool.
CAPABILITIES: Mapping[str, Mapping[str, Argument]] = {
    "install_dependencies": dict.fromkeys(("skill", "script", "dependencies", "digest", "by"), _ANY),
}


# --- views of the table ----------------------------------------------------------------------------------------------


def _named(fits: Callable[[ToolTraits], object]) -> tuple[str, ...]:
    return tuple(each.name for each in _ROWS if fits(each))


TOOLS: Mapping[str, ToolTraits] = {each.name: each for each in _ROWS}
RISKS: Mapping[str, Risk] = {each.name: each.risk for each in _ROWS}
ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {**{n: each.arguments for n, each in TOOLS.items()}, **CAPABILITIES}
PATH_ARGUMENTS = {each.name: each.path_argument for each in _ROWS if each.path_argument}
URL_ARGUMENTS = {each.name: each.url_argument for each in _ROWS if each.url_argument}
# Name in another system -> our tools. A call by that name becomes a call of the first tool.
ALIASES: Mapping[str, tuple[str, ...]] = {
    alias: _named(lambda each, alias=alias: alias in each.aliases)
    for alias in dict.fromkeys(alias for each in _ROWS for alias in each.aliases)
}
NEVER_NARROWED = frozenset(_named(lambda each: not each.narrowed_by_allowed_tools))
COMMAND_TOOLS = _named(lambda each: each.runs_commands)
LOADING_TOOLS = _named(lambda each: each.loads_first)
SESSION_TOOLS = _named(lambda each: "session_id" in each.arguments)  # they work on a program that is running
ENDING_TOOLS = _named(lambda each: each.ends_work)
WATCHING_TOOLS = tuple(name for name in SESSION_TOOLS if name in ENDING_TOOLS)
STEERING_TOOLS = (*COMMAND_TOOLS, *(name for name in SESSION_TOOLS if name not in ENDING_TOOLS))
WORKSPACE_WRITERS = _named(lambda each: each.writes_workspace)
TOOLS_BY_ISOLATION = (*STEERING_TOOLS, *WORKSPACE_WRITERS)  # what may be done depends on the isolation that holds
SWITCHED_TOOLS = _named(lambda each: each.risk == "high" and not each.writes_workspace)
FILE_TOOLS = tuple(name for name in PATH_ARGUMENTS if RISKS[name] == "low")
WRITING_TOOLS = tuple(name for name in PATH_ARGUMENTS if RISKS[name] == "high")
UNCOUNTED_TOOLS = _named(lambda each: not each.is_counted)
