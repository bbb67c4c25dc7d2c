"""Defines the arguments of all built-in tools. A model reads the field descriptions.

Argument names follow the source documents; the names and shapes of other systems are accepted as well. `advertise`
selects the fields that a model is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from prowess.errors import ToolRetry
from prowess.tools.plain_arguments import SKILL_NAMES, LoadRequest, RunRequest
from prowess.tools.run.command_line import as_one_line
from prowess.tools.schema import Arguments, by_our_names, parse_arguments, render_schema
from prowess.workspace.inputs import Input
from prowess.workspace.outputs import LONGEST_PATTERN, MOST_PATTERNS, OutputLimits


def advertise(kind: type[Arguments], *fields: str) -> dict[str, Any]:
    """Returns the schema with only these fields, or all. Other fields are accepted but cost no tokens."""
    schema = render_schema(kind)
    if not fields:
        return schema
    every = schema["properties"]
    told = {name: every[name] for name in fields}
    return {**schema, "properties": told}


def _listed_json(value: Any) -> Any:
    """Reads a list: one text becomes a list with one item, and JSON text of a list is parsed."""
    if isinstance(value, str):
        parsed = read_json(value)
        value = parsed if isinstance(parsed, list) else [value]
    if not isinstance(value, list):
        return value
    return [item for item in value if item != ""]


def read_json(text: Any) -> Any:
    """Parses JSON text of an object or list. Returns any other value unchanged."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _said(value: Any) -> Any:
    """Turns a list or an object into JSON text."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _counted(value: Any) -> Any:
    """Turns zero into None, because many models send zero for "not given"."""
    if value is False:
        return value
    return None if value in (0, "0", "") else value


NameList = Annotated[list[str], BeforeValidator(_listed_json)]
Said = Annotated[str | None, BeforeValidator(_said)]
Count = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_counted)]


class SkillArguments(Arguments):
    """Base for arguments about one skill: a name, an id, or {name, source}, which becomes the id."""

    ALIASES: ClassVar = SKILL_NAMES

    skill: str = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Drops null values, because many models send every field. Reads other forms of `skill`."""
        if not isinstance(value, dict):
            return value
        ours = by_our_names(cls, value)
        given = {name: item for name, item in ours.items() if item is not None}
        several = given.pop("skills", None)
        if several is not None and "skill" not in given:
            given["skill"] = _only_one(several)
        skill = read_json(given.get("skill"))
        if isinstance(skill, dict):
            if skill.get("source"):
                given["source"] = skill["source"]
            skill = skill.get("name") or skill.get("id") or ""
        if not isinstance(skill, str):
            return given
        skill = skill.strip()
        if "source" in given and "source" not in cls.model_fields:
            source = given.pop("source")
            skill = f"{source}:{skill}"
        given["skill"] = skill
        return given


def _only_one(several: Any) -> Any:
    if isinstance(several, (str, dict)):
        return several
    if not isinstance(several, list) or len(several) != 1:
        raise ValueError("load one skill at a time: one call for each, with `skill`")
    return several[0]


class LoadArguments(SkillArguments):
    ALIASES: ClassVar = {**SKILL_NAMES, "args": "arguments"}

    skill: str = Field(min_length=1, description="exact name of an available skill")
    docs: NameList = Field(default_factory=list)
    include_all_docs: bool = False
    source: str | None = None
    arguments: Said = None
    reason: Said = None

    @property
    def request(self) -> LoadRequest:
        return LoadRequest(*(getattr(self, name) for name in LoadRequest._fields))


class SelectArguments(SkillArguments):
    docs: NameList = Field(default_factory=list)
    include_all_docs: bool = False
    mode: Literal["replace", "add", "clear"] = "replace"

    @model_validator(mode="after")
    def _nothing_beside_clear(self) -> SelectArguments:
        if self.mode == "clear" and (self.docs or self.include_all_docs):
            raise ValueError("mode clear takes no docs")
        return self


class SkillReadArguments(SkillArguments):
    ALIASES: ClassVar = {
        **SKILL_NAMES,
        "relative_path": "path",
        "file_name": "path",
        "file_path": "path",
        "file": "path",
        "offset": "start_line",
        "limit": "num_lines",
    }

    path: str = Field(min_length=1)
    section: str | None = Field(None, description="a heading")
    start_line: Count = None
    num_lines: Count = None
    section_hint: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> SkillReadArguments:
        if (self.section or "").strip() and self.start_line:
            raise ValueError("say either section or start_line")
        return self


class SearchArguments(Arguments):
    ALIASES: ClassVar = {"q": "query", "max_results": "limit"}

    query: str = Field(min_length=1)
    limit: int = Field(5, ge=1, le=20)


class AskArguments(Arguments):
    ALIASES: ClassVar = {"options": "choices", "prompt": "question", "text": "question"}

    question: str = Field(min_length=1)
    choices: NameList = Field(default_factory=list, max_length=50)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Accepts a list with one question, and options that are objects with a label."""
        if not isinstance(value, dict):
            return value
        given = {name: item for name, item in value.items() if item is not None}
        several = given.pop("questions", None)
        if several is not None and "question" not in given:
            given = _only_question(several)
        given = by_our_names(cls, given)
        choices = given.get("choices")
        if isinstance(choices, list):
            given["choices"] = [_label(item) for item in choices]
        return given


def _only_question(several: Any) -> dict[str, Any]:
    if not isinstance(several, list) or len(several) != 1:
        raise ValueError("ask one question at a time")
    asked = several[0]
    if not isinstance(asked, dict):
        return {"question": asked}
    given: dict[str, Any] = {}
    for name in ("question", "options", "choices"):
        if name in asked:
            given[name] = asked[name]
    return given


def _label(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    return choice.get("label", choice.get("text"))


MAX_TIMEOUT_S = 24 * 3600.0


def _listed(value: Any) -> Any:
    """Turns one text into a list with one item."""
    return [value] if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    """Turns numbers and booleans into texts, as a shell writes them."""
    if not isinstance(value, dict):
        return value
    return {key: _text(item) for key, item in value.items()}


def _words(value: Any) -> Any:
    if not isinstance(value, list):
        return _listed(value)
    return [_text(item) for item in value]


def _text(item: Any) -> Any:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, (int, float)):
        return str(item)
    return item


def _few(patterns: list[str]) -> list[str]:
    """Limits the patterns, because every output file is matched against every pattern."""
    longest = max(map(len, patterns), default=0)
    if len(patterns) > MOST_PATTERNS or longest > LONGEST_PATTERN:
        most = f"at most {MOST_PATTERNS} patterns of {LONGEST_PATTERN} characters"
        raise ValueError(f"{most}; name a folder: out/**")
    return patterns


Names = Annotated[list[str], BeforeValidator(_listed)]
Patterns = Annotated[Names, AfterValidator(_few)]
Words = Annotated[list[str], BeforeValidator(_words)]
Variables = Annotated[dict[str, str], BeforeValidator(_texts)]


class InputArguments(Arguments):
    ALIASES: ClassVar = {"src": "from", "dst": "to", "From": "from", "To": "to", "Mode": "mode", "Pin": "pin"}

    source: str = Field(
        alias="from", description="artifact://name[@version] | host:///abs | workspace://rel | skill://name/rel"
    )
    to: str | None = Field(None, description="default work/inputs/<basename>")
    mode: Literal["copy", "link"] = "copy"
    pin: bool = False

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"from": value}
        if isinstance(value, dict):
            return by_our_names(cls, value)
        return value

    @property
    def value(self) -> Input:
        """The input as a job takes it."""
        to = self.to or None
        return Input(self.source, to, self.mode, self.pin)


class OutputArguments(Arguments):
    ALIASES: ClassVar = {
        "Globs": "globs",
        "Inline": "inline",
        "Save": "save",
        "NameTemplate": "name_template",
        "MaxFiles": "max_files",
        "MaxFileBytes": "max_file_bytes",
        "MaxTotalBytes": "max_total_bytes",
    }

    globs: Patterns = Field(default_factory=list, description="such as $OUTPUT_DIR/**/*.csv")
    inline: bool = False
    save: bool = Field(False, description="keep as artifacts")
    name_template: str = Field("", description="prefix of artifact names")
    max_files: int = Field(100, ge=0)
    max_file_bytes: int = Field(4 << 20, ge=0)
    max_total_bytes: int = Field(64 << 20, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, (str, list)):
            return {"globs": value}
        if isinstance(value, dict):
            return by_our_names(cls, value)
        return value

    @property
    def limits(self) -> OutputLimits:
        """Limits of the outputs. Zero means the default, as in the source documents."""
        files, file_bytes, total_bytes = OutputLimits()
        files = self.max_files or files
        file_bytes = self.max_file_bytes or file_bytes
        total_bytes = self.max_total_bytes or total_bytes
        return OutputLimits(files, file_bytes, total_bytes)


class RunArguments(Arguments):
    ALIASES: ClassVar = {**SKILL_NAMES, "relative_path": "script", "timeout_sec": "timeout", "timeout_s": "timeout"}

    skill: str = Field(min_length=1)
    command: str | None = Field(None, description="shell command line, from the skill's folder")
    script: str | None = Field(None, description="instead of command: a file of the skill, run without a shell")
    args: Words = Field(default_factory=list, description="of the script, or added to the command")
    cwd: str | None = Field(None, description="below the skill, or $WORK_DIR/…, $OUTPUT_DIR/…")
    env: Variables = Field(default_factory=dict)
    stdin: str | None = None
    inputs: list[InputArguments] = Field(default_factory=list)
    outputs: OutputArguments | None = None
    output_files: Patterns = Field(default_factory=list, description="globs of files to return, such as out/*.txt")
    timeout: float | None = Field(None, description="seconds, default 300")
    save_as_artifacts: bool = False
    omit_inline_content: bool = False
    artifact_prefix: str = ""
    install: Names = Field(default_factory=list, description="Python packages that a run lacked")

    @cached_property
    def request(self) -> RunRequest:
        """The run that these arguments ask for."""
        names = {field.name for field in fields(RunRequest)} & RunArguments.model_fields.keys()
        given = {name: getattr(self, name) for name in names}
        inputs = [each.value for each in self.inputs]
        return RunRequest(**{**given, "inputs": inputs})

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, value: Any) -> Any:
        """Drops null, empty texts and Bash's `description`, because many models send every field."""
        if not isinstance(value, dict):
            return value
        given = {name: item for name, item in value.items() if item is not None}
        given.pop("description", None)
        script = given.get("script")
        command = given.get("command")
        if script == "" and command:
            del given["script"]
        if command == "" and script:
            del given["command"]
        inputs = given.get("inputs")
        if isinstance(inputs, (str, dict)):
            given["inputs"] = [inputs]
        return as_one_line(given, _words(given.get("args")))

    @field_validator("timeout")
    @classmethod
    def _in_range(cls, value: float | None) -> float | None:
        """Checks the time-out. Zero means the default, as in the source documents."""
        if not value:
            return None
        if not 0 < value <= MAX_TIMEOUT_S:
            raise ValueError(f"must be between 0 and {MAX_TIMEOUT_S:g} seconds")
        return value

    @model_validator(mode="after")
    def _one_thing(self) -> RunArguments:
        """Checks that either a command or a script is given."""
        command = (self.command or "").strip()
        script = (self.script or "").strip()
        if bool(command) == bool(script):
            raise ValueError("say either command, or script and args")
        if self.args and self.script is None:
            raise ValueError("args belong to a script or to one program; write them into this command")
        if "\0" in f"{self.command}{self.script}{self.args}{self.cwd}":
            raise ValueError("a NUL cannot be passed to a program")
        return self


class ExecArguments(RunArguments):
    tty: bool = Field(False, description="with a terminal of its own")
    yield_ms: int = Field(1000, ge=0, le=60_000, description="how long to wait for output")
    poll_lines: int = Field(40, ge=1, le=2000, description="lines to return at most")


class SessionArguments(Arguments):
    ALIASES: ClassVar = {"sessionId": "session_id", "id": "session_id"}

    session_id: str = Field(min_length=1, max_length=100)


class PollArguments(SessionArguments):
    yield_ms: int = Field(400, ge=0, le=60_000)
    poll_lines: int = Field(40, ge=1, le=2000)


class WriteArguments(PollArguments):
    ALIASES: ClassVar = {**SessionArguments.ALIASES, "append_newline": "submit", "input": "chars"}

    chars: str = ""
    submit: bool = Field(False, description="press Enter after chars")
    eof: bool = Field(False, description="end its input after that")


class ReadArguments(Arguments):
    ALIASES: ClassVar = {"path": "file_name", "file_path": "file_name", "offset": "start_line", "limit": "num_lines"}

    file_name: str = Field(
        min_length=1, description="workspace://…, artifact://…, skill://name/…, or a path in the workspace"
    )
    start_line: int | None = Field(None, ge=1)
    num_lines: int | None = Field(None, ge=1)


MAX_BYTES = 4 << 20  # most bytes of one write
_PATH: dict[str, str] = dict.fromkeys(
    ("file_name", "file_path", "filename", "dir", "dir_path", "directory", "folder"), "path"
)
_EDITS = ("old_string", "new_string", "old_str", "new_str", "edits", "new_source", "replace_all")


class ListArguments(Arguments):
    ALIASES: ClassVar = {**_PATH, "glob": "pattern"}

    path: str = Field(".", description="a folder of the workspace, or skill://name/…")
    depth: int = Field(1, ge=1, le=5)
    pattern: SkipJsonSchema[str | None] = Field(None, max_length=1000)  # argument of `Glob` in other systems

    def plain(self) -> dict[str, Any]:
        """Always includes the path, because policy judges it."""
        return {"path": self.path, **super().plain()}


class GrepArguments(Arguments):
    ALIASES: ClassVar = {
        **_PATH,
        "regex": "pattern",
        "query": "pattern",
        "include": "glob",
        "head_limit": "max_results",
        "limit": "max_results",
        "-i": "ignore_case",
    }

    pattern: str = Field(min_length=1, max_length=2000, description="a Python regular expression")
    path: str = Field(".", description="a file or folder of the workspace, or skill://name/…")
    glob: str | None = Field(None, max_length=1000, description="only files like this, such as *.md")
    max_results: int = Field(50, ge=1, le=500)
    ignore_case: SkipJsonSchema[bool] = False

    def plain(self) -> dict[str, Any]:
        """Always includes the path, because policy judges it."""
        return {"path": self.path, **super().plain()}


class WriteFileArguments(Arguments):
    ALIASES: ClassVar = {**_PATH, "contents": "content", "file_text": "content", "text": "content"}

    path: str = Field(min_length=1, description="below out/ or work/")
    content: str = Field(description="the whole new content")

    @field_validator("content")
    @classmethod
    def _can_be_written(cls, value: str) -> str:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair, which is no character") from None
        if size > MAX_BYTES:
            raise ValueError(f"it has {size} bytes, and at most {MAX_BYTES} are written at once")
        return value


class DeleteFileArguments(Arguments):
    ALIASES: ClassVar = _PATH

    path: str = Field(min_length=1, description="a file below out/ or work/")


def parse_write(args: Mapping[str, Any], tool: str) -> WriteFileArguments:
    """Parses the arguments of write_file. A call that asks for an edit in place is told to write the whole file."""
    if not args.keys().isdisjoint(_EDITS):
        hint = "Read the file with read_file, and write all of its new text: {path, content}."
        raise ToolRetry(f"{tool} replaces whole files and cannot edit one in place. {hint}")
    return parse_arguments(WriteFileArguments, args, tool)
