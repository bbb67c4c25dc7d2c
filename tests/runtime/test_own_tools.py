"""Functions as tools: asked before each call, told their context, and failing in a way that somebody can mend."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

import prowess
from agents import call
from prowess.core.codec import to_json
from prowess.core.values import Decision, ToolCall
from prowess.errors import ConfigError
from prowess.testing import ScriptedModel, skill_dir
from prowess.tools.toolset import Prefixed, Tools


@dataclass
class Shop:
    name: str
    sold: list[str]


@prowess.tool(requires_approval=True)
def sell(item: str, context: prowess.ToolContext[Shop], count: int = 1) -> str:
    """Sells something."""
    context.deps.sold.append(item)
    return f"{count} {item} at {context.deps.name}"


SELL = [call("sell", item="bolt"), {"text": "Sold."}]


@pytest.fixture
def shop() -> Shop:
    return Shop("corner", [])


def run(script: list[Any], *tools: Any, **options: Any) -> prowess.Result:
    given: dict[str, Any] = {"store": "memory:", "artifacts": "memory:", **options}
    return prowess.run_sync("do it", model=ScriptedModel(script), tools=list(tools), **given)


def outcome_of(script: list[Any], *tools: Any, **options: Any) -> dict[str, Any]:
    """Outcome of the first call."""
    seen: list[dict[str, Any]] = []
    run(script, *tools, on_event=lambda event: seen.append(event.to_dict()), **options)
    return next(event["outcome"] for event in seen if event["type"] == "call_acted")


# --- requires_approval ------------------------------------------------------------------------------------------------


def test_such_a_call_waits_when_nobody_can_be_asked(shop: Shop) -> None:
    result = run(SELL, sell, deps=shop)
    assert result.stop_reason == "waiting" and [each.tool for each in result.waiting] == ["sell"]
    assert shop.sold == []


def test_its_name_in_approve_answers_the_question(shop: Shop) -> None:
    assert run(SELL, sell, deps=shop, approve=["sell"]).ok
    assert shop.sold == ["bolt"]


def test_a_function_is_asked_before_each_call_also_after_an_answer_for_the_run(shop: Shop) -> None:
    asked: list[str] = []

    def approve(call: ToolCall, decision: Decision) -> str:
        asked.append(decision.rule)
        return "run"

    script = [call("sell", item="bolt"), call("sell", item="nut"), {"text": "Sold."}]
    assert run(script, sell, deps=shop, approve=approve).ok
    assert asked == ["tool:requires_approval"] * 2


@pytest.mark.parametrize(("verdict", "expected"), [("allow", "waiting"), ("deny", "answer")])
def test_a_policy_can_deny_it_and_cannot_skip_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Shop, verdict: str, expected: str
) -> None:
    (tmp_path / ".agent").mkdir()
    rule = f'[[rule]]\ntool = "sell"\nverdict = "{verdict}"\n'
    (tmp_path / ".agent/policy.toml").write_text(rule)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROWESS_TRUST", "1")
    assert run(SELL, sell, deps=shop).stop_reason == expected
    assert shop.sold == []


def test_it_holds_under_another_name_and_in_a_child_run(tmp_path: Path, shop: Shop) -> None:
    skill_dir(tmp_path, "seller", "Sell.\n", description="Sells.", context="fork")
    script = [call("skill_load", skill="seller"), call("shop_sell", item="bolt"), {"text": "child"}, {"text": "done"}]
    waiting = run(script[:2], Prefixed(Tools(sell), "shop_"), deps=shop, skills=tmp_path)
    assert waiting.stop_reason == "waiting" and shop.sold == []
    assert run(script, Prefixed(Tools(sell), "shop_"), deps=shop, skills=tmp_path, approve=["shop_sell"]).ok
    assert shop.sold == ["bolt"]


def test_a_record_does_not_change_by_it() -> None:
    plain = prowess.tool(sell.__wrapped__)  # type: ignore[attr-defined]
    asked = sell.spec
    assert asked.requires_approval and not plain.spec.requires_approval
    assert asked == plain.spec, "so that a session goes on without another epoch"
    assert "requires_approval" not in to_json(asked)


# --- the context ------------------------------------------------------------------------------------------------------


def test_a_model_is_not_told_the_context_wherever_it_stands() -> None:
    def first(context: prowess.ToolContext, item: str) -> None: ...
    def last(item: str, *, context: Annotated[prowess.ToolContext[Shop], "x"]) -> None: ...

    def perhaps(item: str, context: prowess.ToolContext[Shop] | None = None) -> None: ...

    for function in (first, last, perhaps, sell.__wrapped__):  # type: ignore[attr-defined]
        properties = prowess.tool(function).spec.parameters["properties"]
        assert "item" in properties and "context" not in properties


def test_two_contexts_are_one_too_many() -> None:
    def both(a: prowess.ToolContext, b: prowess.ToolContext[Shop]) -> None: ...

    with pytest.raises(ConfigError) as caught:
        prowess.tool(both)
    assert caught.value.code == "tool-signature" and "'a' and 'b'" in caught.value.message


def test_it_knows_the_session_the_run_and_the_call() -> None:
    seen: list[prowess.ToolContext[None]] = []

    def look(context: prowess.ToolContext[None]) -> None:
        seen.append(context)

    result = run([call("look"), {"text": "ok"}], look, session="s-1", user="ada", tenant="acme")
    (context,) = seen
    assert (context.session.id, context.session.user, context.session.tenant) == ("s-1", "ada", "acme")
    assert context.run == result.run and context.call_id and context.deps is None


def test_what_a_run_is_given_wins_over_what_the_agent_has(shop: Shop) -> None:
    def where(context: prowess.ToolContext[Shop]) -> str:
        return context.deps.name

    async def both() -> list[str]:
        model = ScriptedModel(
            [call("where"), {"text": "a"}, call("where"), {"text": "b"}, call("where"), {"text": "c"}]
        )
        agent = prowess.Agent(model, tools=[where], deps=shop, store="memory:")
        said: list[str] = []
        async with agent.session("s-1") as chat:
            for given in (None, Shop("other", []), None):
                events = [event async for event in chat.stream("where?", deps=given)]
                said += [event.event.outcome.content for event in events if event.event.type == "call_acted"]
        return said

    assert asyncio.run(both()) == ["corner", "other", "corner"]


def test_a_kit_for_another_agent_passes_it_on(tmp_path: Path) -> None:
    async def use() -> None:
        def double(context: prowess.ToolContext[int]) -> int:
            return 2 * context.deps

        async with prowess.SkillKit(tmp_path, tools=[double], deps=5, store="memory:") as kit:
            assert (await kit.call("double")).content == "10"

    asyncio.run(use())


# --- files ------------------------------------------------------------------------------------------------------------


async def copy(name: str, context: prowess.ToolContext) -> list[str]:
    """Copies a file."""
    data = await context.files.read_bytes(name)
    await context.files.write_bytes("out/copies/a.bin", data + b"\x00\xff")
    return list(await context.files.names())


def copy_in_thread(name: str, context: prowess.ToolContext) -> list[str]:
    """Copies a file."""
    data = context.files.read_bytes_sync(name)
    context.files.write_bytes_sync("out/copies/a.bin", data + b"\x00\xff")
    return list(context.files.names_sync())


@pytest.mark.parametrize("function", [copy, copy_in_thread])
def test_files_are_read_written_and_listed(tmp_path: Path, function: Any) -> None:
    given = tmp_path / "a.txt"
    given.write_bytes(b"abc")
    name = function.__name__
    script = [call(name, name="work/inputs/a.txt"), {"text": "ok"}]
    outcome = outcome_of(script, function, files=[given])
    assert json.loads(outcome["content"]) == ["out/copies/a.bin", "work/inputs/a.txt"]
    script = [call(name, name="work/inputs/b.txt"), {"text": "ok"}]
    missing = outcome_of(script, function, files=[given])
    assert missing["code"] == "file-not-found" and "a.txt" in missing["hint"]


def test_what_is_written_to_out_is_a_file_of_the_run() -> None:
    async def draw(context: prowess.ToolContext) -> str:
        """Draws."""
        await context.files.write_bytes("work/notes.txt", b"x")
        await context.files.write_bytes("out/a.png", b"\x89PNG")
        return "drawn"

    (file,) = run([call("draw"), {"text": "ok"}], draw).files
    assert (file.name, file.mime_type, file.read_bytes()) == ("out/a.png", "image/png", b"\x89PNG")


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "~/a", "host:///etc/passwd", "skills/x/SKILL.md", "out/../../a"]
)
@pytest.mark.parametrize("function", [copy, copy_in_thread])
def test_a_name_never_leads_out_of_the_workspace(name: str, function: Any) -> None:
    outcome = outcome_of([call(function.__name__, name=name), {"text": "ok"}], function)
    assert outcome["status"] == "failed" and outcome["code"] in ("path-escape", "file-not-found"), outcome


@pytest.mark.parametrize("name", ["../a", "/tmp/a", "~/a", "a.txt", "skills/x/SKILL.md", "out/../../a", "out"])
def test_a_file_is_written_only_below_work_and_out(name: str) -> None:
    async def put(name: str, context: prowess.ToolContext) -> None:
        await context.files.write_bytes(name, b"x")

    outcome = outcome_of([call("put", name=name), {"text": "ok"}], put)
    assert outcome["code"] in ("path-escape", "write-refused") and outcome["hint"], outcome


def test_a_link_in_the_workspace_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")

    async def plant(context: prowess.ToolContext) -> None:
        await context.files.write_bytes("out/a", b"x")
        _, place = await context.files._work.workspace()  # type: ignore[attr-defined]
        (Path(place.root) / "out/link").symlink_to(secret)
        await context.files.read_bytes("out/link")

    assert outcome_of([call("plant"), {"text": "ok"}], plant)["code"] == "not-a-plain-file"


def test_files_end_with_the_run() -> None:
    seen: list[prowess.ToolContext] = []

    def keep(context: prowess.ToolContext) -> None:
        seen.append(context)

    async def check() -> None:
        files = seen[0].files
        tries = [files.names(), files.read_bytes("out/a"), files.write_bytes("out/a", b"")]
        for each in (*tries, asyncio.to_thread(files.names_sync)):
            with pytest.raises(prowess.ProwessError) as caught:
                await each
            assert caught.value.code == "run-ended"

    async def talk() -> None:
        agent = prowess.Agent(ScriptedModel([call("keep"), {"text": "ok"}] * 2), tools=[keep], store="memory:")
        async with agent.session() as chat:
            for _ in range(2):
                await chat.run("go")
                await check()

    asyncio.run(talk())
    with pytest.raises(prowess.ProwessError) as caught:
        seen[-1].files.names_sync()
    assert caught.value.code == "run-ended", "also when its event loop is closed"


@pytest.mark.parametrize("is_awaited", [True, False])
@pytest.mark.parametrize("function", [copy, copy_in_thread])
def test_files_of_a_kit_are_used_from_each_kind_of_call(tmp_path: Path, function: Any, is_awaited: bool) -> None:
    given = tmp_path / "a.txt"
    given.write_bytes(b"abc")
    with prowess.SkillKit([], tools=[function], files=[given], store="memory:") as kit:
        args = (function.__name__, {"name": "work/inputs/a.txt"})
        outcome = asyncio.run(kit.call(*args)) if is_awaited else kit.call_sync(*args)
        assert json.loads(outcome.content) == ["out/copies/a.bin", "work/inputs/a.txt"]


def test_files_of_a_kit_end_with_the_session(tmp_path: Path) -> None:
    seen: list[prowess.ToolContext] = []

    def keep(context: prowess.ToolContext) -> None:
        seen.append(context)

    with prowess.SkillKit(tmp_path, tools=[keep], store="memory:") as kit:
        kit.call_sync("keep")
        kit.call_sync("keep")
        assert list(seen[0].files.names_sync()) == []
    with pytest.raises(prowess.ProwessError) as caught:
        seen[0].files.names_sync()
    assert caught.value.code == "run-ended"


def test_a_sync_form_in_the_event_loop_is_refused_and_does_not_hang() -> None:
    async def wrong(context: prowess.ToolContext) -> None:
        context.files.names_sync()

    outcome = outcome_of([call("wrong"), {"text": "ok"}], wrong)
    assert outcome["code"] == "would-block" and "await context.files.names" in outcome["hint"]


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_retry_is_a_second_chance() -> None:
    def stock(item: str) -> int:
        """How many there are."""
        if item != "bolt":
            raise prowess.ToolRetry(f"There is no '{item}'; there are: bolt.")
        return 40

    model = ScriptedModel([call("stock", item="bold"), call("stock", item="bolt"), {"text": "40"}])
    result = prowess.run_sync("How many?", model=model, tools=[stock], store="memory:")
    assert result.ok and result.failed == 1
    told = str(model.requests[1])
    assert "there are: bolt." in told and "Call it again with other arguments." in told


def test_a_retry_that_never_ends_is_ended() -> None:
    calls: list[str] = []

    def stock(item: str) -> int:
        """How many there are."""
        calls.append(item)
        raise prowess.ToolRetry("No.")

    script = [call("stock", item=f"{n}") for n in range(4)]
    run([*script, {"text": "I give up."}], stock)
    assert calls == ["0", "1", "2"], "the fourth is not tried"


def test_a_tool_says_what_failed() -> None:
    def stock(item: str) -> int:
        """How many there are."""
        raise prowess.ToolFailed("The warehouse is closed.")

    outcome = outcome_of([call("stock", item="a"), {"text": "ok"}], stock)
    assert (outcome["code"], outcome["content"]) == ("tool-failed", "The warehouse is closed.")


@pytest.mark.parametrize("is_async", [True, False])
def test_a_plain_exception_names_the_tool_and_a_person_finds_the_line(is_async: bool) -> None:
    def count(text: str) -> int:
        return int(json.loads(text))

    def stock(text: str) -> int:
        """How many there are."""
        return count(text)

    async def stock_later(text: str) -> int:
        """How many there are."""
        return count(text)

    function: Any = prowess.tool(name="stock")(stock_later if is_async else stock)
    model = ScriptedModel([call("stock", text="{"), {"text": "ok"}])
    result = prowess.run_sync("do it", model=model, tools=[function], store="memory:")
    outcome = outcome_of([call("stock", text="{"), {"text": "ok"}], function)
    assert result.ok and outcome["code"] == "tool-raised"
    assert outcome["content"].startswith("stock raised JSONDecodeError: Expecting")
    line = count.__code__.co_firstlineno + 1
    assert outcome["data"] == {"raised": "JSONDecodeError", "at": f"{__file__}:{line} in count"}
    assert __file__ not in str(model.requests), "a model is not told where"


# --- names ------------------------------------------------------------------------------------------------------------

ALIASES = ["Bash", "Read", "Skill", "skill", "Write", "Grep", "bash", "select_skills", "run_script", "TodoWrite"]


def own(name: str) -> Any:
    def reads(path: str = "") -> str:
        """Reads."""
        return f"OWN {path}"

    return prowess.tool(name=name)(reads)


def test_arguments_of_a_function_may_have_the_names_of_ours() -> None:
    def rate(skill: str, session_id: str = "x") -> str:
        """Rates."""
        return f"{skill} {session_id}"

    outcome = outcome_of([call("rate", skill="writing", session_id="s"), {"text": "ok"}], rate)
    assert (outcome["status"], outcome["content"]) == ("ok", "writing s")


@pytest.mark.parametrize("name", ALIASES)
def test_a_function_is_called_also_when_its_name_means_a_tool_of_ours_elsewhere(name: str) -> None:
    outcome = outcome_of([call(name, path="a"), {"text": "ok"}], own(name))
    assert (outcome["status"], outcome["content"]) == ("ok", "OWN a")
    document = {"action": {"type": "call_tool", "tool": name, "args": {"path": "b"}}}
    answer = {"action": {"type": "final_answer", "content": "ok"}}
    script = [{"text": json.dumps(document)}, {"text": json.dumps(answer)}]
    outcome = outcome_of(script, own(name), protocol="actions")
    assert (outcome["status"], outcome["content"]) == ("ok", "OWN b")


@pytest.mark.parametrize("prefix", ["", "my_"])
@pytest.mark.parametrize("name", ALIASES)
def test_a_kit_calls_it_too(tmp_path: Path, name: str, prefix: str) -> None:
    with prowess.SkillKit(tmp_path, tools=[own(name)], prefix=prefix, store="memory:") as kit:
        assert f"{prefix}{name}" in [spec.name for spec in kit.tools]
        assert kit.call_sync(f"{prefix}{name}", {"path": "a"}).content == "OWN a"
        assert kit.decide_sync(f"{prefix}{name}", {"path": "a"}).rule == "table:given-tool"


def test_a_name_in_other_letters_means_the_function_and_not_our_tool() -> None:
    assert outcome_of([call("BASH", path="a"), {"text": "ok"}], own("Bash"))["content"] == "OWN a"


RULE = '[[rule]]\ntool = "{tool}"\n{more}verdict = "{verdict}"\n\n'


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (RULE.format(tool="Read", more="", verdict="deny"), "denied"),
        (RULE.format(tool="read", more="", verdict="deny"), "denied"),
        (RULE.format(tool="Read", more='path = "secret/**"\n', verdict="deny"), "denied"),
        (RULE.format(tool="read_file", more="", verdict="deny"), "ok"),
        (RULE.format(tool="Read", more="", verdict="allow") + RULE.format(tool="*", more="", verdict="deny"), "ok"),
        (
            RULE.format(tool="Read", more='path = "a/**"\n', verdict="allow")
            + RULE.format(tool="*", more="", verdict="deny"),
            "denied",
        ),
    ],
)
def test_a_rule_that_names_it_is_about_it(tmp_path: Path, rules: str, expected: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(rules)
    outcome = outcome_of([call("Read", path="a/b"), {"text": "ok"}], own("Read"), policy=policy)
    assert outcome["status"] == expected, outcome


def test_a_rule_about_commands_says_why_it_holds_for_a_function(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(RULE.format(tool="Bash", more='command = "rm"\n', verdict="deny"))
    outcome = outcome_of([call("Bash", path="a"), {"text": "ok"}], own("Bash"), policy=policy)
    assert outcome["status"] == "denied" and "Bash is a tool of the caller" in outcome["content"]


@pytest.mark.parametrize(("allowed", "expected"), [("Read", "ok"), ("Read(docs/**)", "denied"), ("Grep", "denied")])
def test_allowed_tools_of_a_skill_may_name_it(tmp_path: Path, allowed: str, expected: str) -> None:
    skill_dir(tmp_path, "reader", "Read.\n", description="Reads.", allowed_tools=allowed)
    seen: list[dict[str, Any]] = []
    script = [call("Read", path="docs/a"), {"text": "ok"}]
    run(script, own("Read"), skills=tmp_path, use=["reader"], on_event=lambda event: seen.append(event.to_dict()))
    outcomes = [event["outcome"] for event in seen if event["type"] == "call_acted"]
    assert outcomes[-1]["status"] == expected, outcomes[-1]


@pytest.mark.parametrize("name", ["skill_load", "read_file", "write_file", "install_dependencies"])
def test_a_name_of_ours_is_refused_at_once(tmp_path: Path, name: str) -> None:
    for make in (lambda: prowess.Agent("offline", tools=[own(name)]), lambda: prowess.SkillKit(tools=own(name))):
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.code == "tool-duplicate" and f"'{name}'" in caught.value.message


# --- outcomes that no record can hold ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "fine"},
        {"content": 5},
        {"code": 5},
        {"hint": 5},
        {"data": 5},
        {"data": {"shop": object()}},
        {"data": {"price": float("nan")}},
        {"data": {"output_files": 5}},
        {"data": {"output_files": [{"name": "out/a.txt"}]}},
        {"data": {"left_out": [{}]}},
        {"data": {"staged_inputs": True}},
    ],
)
def test_an_outcome_that_cannot_be_recorded_is_a_mistake_in_the_tool(wrong: dict[str, Any], tmp_path: Path) -> None:
    def stock() -> prowess.Outcome:
        """Counts."""
        return prowess.Outcome(**{"status": "ok", **wrong})

    def count(**options: Any) -> prowess.Result:
        return run([call("stock"), {"text": "One."}], stock, store=tmp_path / "log.db", session="s", **options)

    result = count()
    assert result.ok and "stock returned an Outcome that cannot be recorded" in result.problems[0]
    assert count().ok, "the session can be read again"
