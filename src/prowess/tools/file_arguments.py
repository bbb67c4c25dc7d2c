"""The arguments of the file tools and of network_request. Their texts are what a model reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from prowess.errors import ToolRetry
from prowess.tools.arguments import Variables
from prowess.tools.schema import Arguments, parse_arguments

MAX_BYTES = 4 << 20  # of what is written at once
_PATH: dict[str, str] = dict.fromkeys(
    ("file_name", "file_path", "filename", "dir", "dir_path", "directory", "folder"), "path"
)
_EDITS = ("old_string", "new_string", "old_str", "new_str", "edits", "new_source", "replace_all")


class ListArguments(Arguments):
    ALIASES: ClassVar = {**_PATH, "glob": "pattern"}

    path: str = Field(".", description="a folder of the workspace, or skill://name/…")
    depth: int = Field(1, ge=1, le=5)
    pattern: SkipJsonSchema[str | None] = Field(None, max_length=1000)  # what `Glob` of other systems asks for

    def normal(self) -> dict[str, Any]:
        """With the path even when it was not said: that is what policy judges."""
        return {"path": self.path, **super().normal()}


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

    def normal(self) -> dict[str, Any]:
        return {"path": self.path, **super().normal()}


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


class RequestArguments(Arguments):
    ALIASES: ClassVar = {"uri": "url", "data": "body", "json": "body"}

    url: str = Field(min_length=1, max_length=8000)
    method: Annotated[
        Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
        BeforeValidator(lambda value: value.strip().upper() if isinstance(value, str) else value),
    ] = "GET"
    headers: Variables = Field(default_factory=dict)
    body: Annotated[
        str | None,
        BeforeValidator(
            lambda value: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _without_question(cls, value: Any) -> Any:
        """`WebFetch` of other systems comes with a question about the page; here the page itself is the answer."""
        return {name: item for name, item in value.items() if name != "prompt"} if isinstance(value, dict) else value


def parse_write(args: Mapping[str, Any], tool: str) -> WriteFileArguments:
    """Edits in place are not done: whoever asks for one is told how else."""
    if any(name in args for name in _EDITS):
        raise ToolRetry(
            f"{tool} replaces whole files and cannot edit one in place. Read the file with read_file, and write all of "
            "its new text: {path, content}."
        )
    return parse_arguments(WriteFileArguments, args, tool)
