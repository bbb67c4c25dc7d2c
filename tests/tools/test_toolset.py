"""Toolsets around toolsets: outside only the outer names are known, inside only the inner ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from prowess.core.ports import CallGrant, CapabilityRequest, Toolset
from prowess.core.values import Outcome, ToolCall, ToolSpec
from prowess.errors import ConfigError, ToolFailed, ToolRetry
from prowess.tools.function import tool
from prowess.tools.toolset import Joined, Only, Prefixed, Renamed, Tools
from works import within


@tool(read_only=True)
def read(path: str) -> str:
    """Read it."""
    if path == "bad":
        raise ToolRetry("read: the path is bad.")
    if path == "broken":
        raise ToolFailed("It is broken.")
    return f"read {path}"


@tool
def write(path: str, text: str = "") -> str:
    """Write it."""
    return f"wrote {path}"


@tool
def find(name: str) -> str:
    """Find it."""
    return f"found {name}"


def tools() -> Tools:
    return Tools(read, write, find)


def names(tools: Toolset) -> list[str]:
    return [spec.name for spec in tools.specs()]


def use(tools: Toolset, name: str, /, **args: Any) -> str:
    async def run() -> Any:
        wanted = ToolCall(id="c1", tool=name, args=args, trigger="user")
        normal = tools.normalise(wanted)
        assert (normal.id, normal.tool, normal.trigger) == ("c1", name, "user")
        assert list(await tools.needs(normal)) == []
        return await tools.call(normal, within())

    return asyncio.run(run()).content


def test_only_some_in_their_order() -> None:
    some = Only(tools(), names=["find", "read"])
    assert names(some) == ["read", "find"] and use(some, "find", name="x") == "found x"
    with pytest.raises(ToolRetry, match=r"no tool 'write'\. There are: read, find\."):
        use(some, "write", path="x")


def test_a_prefix_is_only_seen_from_outside() -> None:
    pdf = Prefixed(tools(), "pdf_")
    assert names(pdf) == ["pdf_read", "pdf_write", "pdf_find"] and use(pdf, "pdf_read", path="x") == "read x"
    assert pdf.specs()[0].read_only and not pdf.specs()[1].read_only
    with pytest.raises(ToolRetry, match="Did you mean pdf_read"):
        use(pdf, "read", path="x")


def test_names_can_be_given_and_swapped() -> None:
    other = Renamed(tools(), {"read": "write", "write": "read"})
    assert names(other) == ["write", "read", "find"]
    assert use(other, "write", path="x") == "read x" and use(other, "read", path="x") == "wrote x"


def test_several_are_one_in_order() -> None:
    both = Joined(Only(tools(), names=["read"]), Prefixed(Tools(find), "x_"))
    assert names(both) == ["read", "x_find"] and use(both, "x_find", name="y") == "found y"
    assert names(Joined()) == []


def test_they_go_into_each_other() -> None:
    nested = Renamed(Only(Prefixed(tools(), "pdf_"), names=["pdf_read"]), {"pdf_read": "look"})
    assert names(nested) == ["look"] and use(nested, "look", path="x") == "read x"
    assert nested.specs() == nested.specs()


@pytest.mark.parametrize("args", [{}, {"path": "x", "pth": 1}, {"path": "bad"}])
def test_what_is_wrong_is_said_by_the_outer_name(args: dict[str, Any]) -> None:
    with pytest.raises(ToolRetry) as caught:
        use(Renamed(Prefixed(tools(), "pdf_"), {"pdf_read": "look"}), "look", **args)
    assert str(caught.value).startswith("look: ")


def test_other_signals_pass() -> None:
    with pytest.raises(ToolFailed, match=r"^It is broken\.$"):
        use(Prefixed(tools(), "pdf_"), "pdf_read", path="broken")


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda: Only(tools(), names=["raed"]), "tool-unknown", "Did you mean 'read'? There are: read, write, find"),
        (lambda: Only(tools(), names="write_all"), "tool-unknown", "There are"),
        (lambda: Renamed(tools(), {"old": "new"}), "tool-unknown", "There are: read, write, find"),
        (lambda: Renamed(tools(), {"read": "write"}), "tool-duplicate", "'read' and 'write' would both"),
        (lambda: Joined(tools(), Tools(find)), "tool-duplicate", "Tools(read, write, find) and Tools(find)"),
        (lambda: Prefixed(tools(), "a b"), "tool-name", "letters"),
        (lambda: Prefixed(tools(), "x" * 64), "tool-name", "64"),
        (lambda: Renamed(tools(), {"read": ""}), "tool-name", "cannot be the name"),
    ],
)
def test_what_cannot_be_put_together(make: Any, code: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.code == code and words in str(caught.value), str(caught.value)


class Needy:
    """A toolset that needs something, and says what it was asked for."""

    asked: ToolCall | None = None

    def specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec(name="inner", description="")]

    def normalise(self, call: ToolCall) -> ToolCall:
        return ToolCall(id=call.id, tool=call.tool, args={"said": True})  # forgets who wanted it

    async def needs(self, call: ToolCall) -> Sequence[CapabilityRequest]:
        self.asked = call
        return [CapabilityRequest(capability="install_dependencies")]

    async def call(self, call: ToolCall, within: CallGrant) -> Outcome:
        raise ToolFailed("inner: no.")


def test_needs_are_asked_for_by_the_inner_name_and_the_rest_survives() -> None:
    inner = Needy()
    outer = Prefixed(inner, "x_")
    normal = outer.normalise(ToolCall(id="c", tool="x_inner", trigger="path"))
    assert normal == ToolCall(id="c", tool="x_inner", args={"said": True}, trigger="path")
    assert [need.capability for need in asyncio.run(outer.needs(normal))] == ["install_dependencies"]
    assert inner.asked is not None and inner.asked.tool == "inner"
    with pytest.raises(ToolFailed, match=r"^x_inner: no"):
        asyncio.run(outer.call(normal, within()))


def test_plain_functions_are_made_tools() -> None:
    def count(text: str) -> int:
        """How many characters."""
        return len(text)

    assert use(Prefixed(Tools(count, read), "my_"), "my_count", text="abc") == "3"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ((tools(),), "tool-invalid"),
        ((Prefixed(tools(), "a_"),), "tool-invalid"),
        (("read",), "tool-invalid"),
        ((None,), "tool-invalid"),
        ((Tools,), "tool-invalid"),
        ((read, read), "tool-duplicate"),
        ((lambda text: text,), "tool-name"),
    ],
)
def test_what_cannot_be_a_tool_is_said(given: tuple[Any, ...], code: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Tools(*given)
    assert raised.value.code == code and raised.value.hint
