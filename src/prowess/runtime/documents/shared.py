"""Parts that documents of several commands have."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from prowess.core.catalog_values import Severity

Open = dict[str, Any]  # an object whose fields differ
Texts = list[str]


class FindingRow(TypedDict):
    """Finding of a skill or of the configuration."""

    code: str
    severity: Severity
    path: str
    message: str
    line: NotRequired[int | None]
    hint: NotRequired[str | None]


class ErrorRow(TypedDict):
    code: str
    message: str
    hint: str | None


class ErrorDocument(TypedDict):
    error: ErrorRow


class OnDisk(TypedDict):
    path: str
    size_bytes: int
    used_at: str
    in_use: bool


class CompletionDocument(TypedDict):
    schema: Literal["prowess.completion/1"]
    shell: str
    script: str


class SchemasDocument(TypedDict):
    schema: Literal["prowess.schemas/1"]
    schemas: Texts
