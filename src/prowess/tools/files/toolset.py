"""Builds the file tools: reading always, writing and network only if the configuration enables them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from prowess.tools.base import Tool
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
    tools: list[Tool] = [ReadFile(work, activate=activate, skill_at=skill_at), ListDir(work), Grep(work)]
    if "write_file" in enabled:
        tools.append(WriteFile(work))
    if "delete_file" in enabled:
        tools.append(DeleteFile(work))
    if "network_request" in enabled:
        tools.append(NetworkRequest())
    return tools
