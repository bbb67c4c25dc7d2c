"""Builds the file tools: reading always, writing and network only if the configuration enables them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from prowess.tools.base import Tool, switched_on
from prowess.tools.files.grep import Grep
from prowess.tools.files.list import ListDir
from prowess.tools.files.read import Activate, ReadFile
from prowess.tools.files.write import DeleteFile, WriteFile
from prowess.tools.network_request import NetworkRequest
from prowess.tools.session_work import SessionWork


def file_tools(
    work: SessionWork,
    *,
    enabled: Collection[str] = (),
    activate: Activate | None = None,
    skill_at: Callable[[str], str | None] | None = None,
) -> list[Tool]:
    """Returns the tools, always in this order. An enabled tool is not yet allowed: policy decides every call."""
    read = ReadFile(work, activate=activate, skill_at=skill_at)
    tools = [read, ListDir(work), Grep(work), WriteFile(work), DeleteFile(work), NetworkRequest()]
    return switched_on(tools, enabled)
