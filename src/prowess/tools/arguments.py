"""The arguments of the tools, as the source documents name them. Their texts are what a model reads."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from prowess.tools.knowledge_arguments import SKILL_NAMES
from prowess.tools.schema import Arguments, by_our_names
from prowess.workspace.inputs import Input
from prowess.workspace.outputs import LONGEST_PATTERN, MOST_PATTERNS, OutputLimits

MAX_TIMEOUT_S = 24 * 3600.0


def _listed(value: Any) -> Any:
    """One text is a list of one."""
    return [value] if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    """Numbers and truth values are written as a shell would."""
    if not isinstance(value, dict):
        return value
    return {key: _text(item) for key, item in value.items()}


def _words(value: Any) -> Any:
    return [_text(item) for item in value] if isinstance(value, list) else _listed(value)


def _text(item: Any) -> Any:
    if isinstance(item, bool):
        return "true" if item else "false"
    return str(item) if isinstance(item, (int, float)) else item


def _few(patterns: list[str]) -> list[str]:
    """Each file that a script left is held against each pattern."""
    if len(patterns) > MOST_PATTERNS or any(len(pattern) > LONGEST_PATTERN for pattern in patterns):
        raise ValueError(f"at most {MOST_PATTERNS} patterns of {LONGEST_PATTERN} characters; name a folder: out/**")
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
        return by_our_names(cls, value) if isinstance(value, dict) else value

    @property
    def value(self) -> Input:
        return Input(self.source, self.to or None, self.mode, self.pin)


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
        return by_our_names(cls, value) if isinstance(value, dict) else value

    @property
    def limits(self) -> OutputLimits:
        """Zero means the default, as in the source."""
        default = OutputLimits()
        return OutputLimits(*(mine or usual for mine, usual in zip(self._given, default, strict=True)))

    @property
    def _given(self) -> tuple[int, int, int]:
        return self.max_files, self.max_file_bytes, self.max_total_bytes


class RunArguments(Arguments):
    ALIASES: ClassVar = {**SKILL_NAMES, "relative_path": "script", "timeout_sec": "timeout", "timeout_s": "timeout"}

    skill: str = Field(min_length=1)
    command: str | None = Field(None, description="for bash -c, from the skill's folder")
    script: str | None = Field(None, description="instead of command: a file of the skill, run without a shell")
    args: Words = Field(default_factory=list, description="of the script")
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

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, value: Any) -> Any:
        """Many models send every field, and null or an empty text where they mean nothing; with Bash a description."""
        if not isinstance(value, dict):
            return value
        given = {name: item for name, item in value.items() if item is not None and name != "description"}
        for one, other in (("script", "command"), ("command", "script")):
            if given.get(one) == "" and given.get(other):
                del given[one]
        if isinstance(given.get("inputs"), (str, dict)):
            given["inputs"] = [given["inputs"]]
        return given

    @field_validator("timeout")
    @classmethod
    def _in_range(cls, value: float | None) -> float | None:
        """Zero means the default, as in the source."""
        if value is not None and not 0 <= value <= MAX_TIMEOUT_S:
            raise ValueError(f"must be between 0 and {MAX_TIMEOUT_S:g} seconds")
        return value or None

    @model_validator(mode="after")
    def _one_thing(self) -> RunArguments:
        if bool((self.command or "").strip()) == bool((self.script or "").strip()):
            raise ValueError("say either command, or script and args")
        if self.args and self.script is None:
            raise ValueError("args belong to a script; write them into the command")
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
