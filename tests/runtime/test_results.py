"""How a run ends for a program: what the model said, why it stopped, what went wrong, and errors that read well."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

import prowess
from agents import call
from prowess.errors import ConfigError, in_one_line
from prowess.ports import Decision, ToolCall
from prowess.testing import ScriptedModel, skill_dir


def add_one(a: int) -> int:
    """One more."""
    return a + 1


@prowess.tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pays."""
    return "paid"


SAYS_AND_CALLS = {"text": "I count.", "calls": [{"tool": "add_one", "args": {"a": 1}}]}


def run(script: list[Any], **options: Any) -> prowess.Result:
    given: dict[str, Any] = {"store": "memory:", "tools": [add_one, pay], **options}
    return prowess.run_sync("go", model=ScriptedModel(script), **given)


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_an_answer_is_its_own_report() -> None:
    result = run([{"text": "Two."}])
    assert (result.text, result.report, result.ok, result.problems) == ("Two.", "Two.", True, ())
    assert result.raise_for_status() is result


def test_a_limit_is_no_answer() -> None:
    result = run([SAYS_AND_CALLS, SAYS_AND_CALLS], limits={"turns": 1})
    assert (result.text, result.stop_reason, result.ok) == ("I count.", "limit:turns", False)
    assert result.report.startswith("Not finished: ") and "add_one: 2" in result.report
    with pytest.raises(prowess.RunError) as caught:
        result.raise_for_status()
    error = caught.value
    assert (error.code, error.stop_reason) == ("limit-turns", "limit:turns") and "turns" in error.message
    assert "limits=Limits(turns=…)" in str(error.hint) and f'session="{result.session}", resume=True' in str(error.hint)


def test_a_model_that_said_nothing_said_nothing() -> None:
    assert run([call("add_one", a=1)], limits={"turns": 1}).text == ""


def test_a_call_that_waits_says_whom_it_waits_for() -> None:
    result = run([call("pay", amount=3)])
    assert (result.text, result.stop_reason) == ("", "waiting") and "pay" in result.report
    with pytest.raises(prowess.RunError) as caught:
        result.raise_for_status()
    assert caught.value.code == "waiting" and 'approve=["pay"]' in str(caught.value.hint)


def test_a_failure_that_the_model_reports_keeps_its_code() -> None:
    result = prowess.run_sync("go", model="offline", skills=[], store="memory:", settings={"skill_roots": []})
    with pytest.raises(prowess.RunError) as caught:
        result.raise_for_status()
    assert caught.value.code == result.code and result.code and result.text == result.report


# --- functions of the caller that raise -------------------------------------------------------------------------------


def test_an_approver_that_raised_is_on_the_result() -> None:
    def approve(call: object, decision: object) -> str:
        raise ValueError("no line")

    result = run([call("pay", amount=3)], approve=approve)
    (problem,) = result.problems
    assert result.stop_reason == "waiting"
    assert problem.startswith("approve raised ValueError: no line (") and f"{__file__}:" in problem


def test_an_approver_that_gave_nonsense_is_on_the_result() -> None:
    (problem,) = run([call("pay", amount=3)], approve=lambda call, decision: "perhaps").problems
    assert "'perhaps'" in problem


def test_an_asker_that_raised_is_on_the_result() -> None:
    async def ask(question: str, choices: object) -> str:
        raise OSError("closed")

    (problem,) = run([call("ask_user", question="Which?"), {"text": "ok"}], ask=ask).problems
    assert problem.startswith("ask raised OSError: closed (")


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("is_of_agent", [True, False])
def test_an_observer_that_raised_is_on_the_result(is_async: bool, is_of_agent: bool) -> None:
    def watch(event: object) -> None:
        raise KeyError("seq")

    async def watch_later(event: object) -> None:
        raise KeyError("seq")

    watching = watch_later if is_async else watch
    agent = prowess.Agent(ScriptedModel([{"text": "ok"}]), store="memory:", on_event=watching if is_of_agent else ())
    result = agent.run_sync("go", on_event=() if is_of_agent else watching)
    assert result.ok and result.problems[0].startswith("on_event raised KeyError: 'seq' (")


def test_another_run_has_none_of_the_problems_before() -> None:
    async def twice() -> list[int]:
        model = ScriptedModel([call("pay", amount=1), {"text": "ok"}])
        answers: list[Any] = [ValueError("x")]

        def approve(call: object, decision: object) -> str:
            if answers:
                raise answers.pop()
            return "once"

        agent = prowess.Agent(model, tools=[pay], approve=approve, store="memory:")
        async with agent.session() as chat:
            first = await chat.run("go")
            second = await chat.run(resume=True)
        return [len(first.problems), len(second.problems)]

    assert asyncio.run(twice()) == [1, 0]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_the_hint_has_its_own_line() -> None:
    error = ConfigError("It is wrong.", hint="Mend it.")
    assert str(error) == "It is wrong.\nMend it."
    assert in_one_line(error) == "It is wrong. Mend it." and str(ConfigError("Wrong.")) == "Wrong."


PROGRAMS = {
    "model": ('prowess.Agent("opnai:gpt-5")', "Did you mean openai?"),
    "key": ('prowess.run_sync("hi", model="openai:gpt-5")', 'model="offline"'),
    "name": ('prowess.run_sync("hi", model="openai:")', 'model="openai:'),
    "folder": ('prowess.Agent("offline", skills="./nowhere")', "Create it"),
    "limits": ('prowess.Agent("offline", limits={"turns": 0})', "None means no limit."),
    "approver": ('prowess.Agent("offline", approve=lambda call: True)', "approve=["),
    "tool": ("def f(x): ...\nprowess.Agent('offline', tools=[f])", "Annotate it"),
    "type": ("class K: ...\ndef f(x: K): ...\nprowess.Agent('offline', tools=[f])", ""),
    "session": ('prowess.run_sync("hi", model="offline", session="a", must_exist=True)', "must_exist"),
    "resume": ('prowess.run_sync(model="offline", session="a", resume=True)', "without resume=True"),
    "request": ('prowess.run_sync(model="offline")', 'agent.run("…")'),
    "store": ('prowess.run_sync("hi", model="offline", store="/proc/no/x.db")', ""),
    "file": ('prowess.run_sync("hi", model="offline", files=["nothing.txt"])', "files=["),
    "kit": ('prowess.SkillKit("./nowhere")', "Create it"),
    "loop": ("import asyncio\nasync def f():\n    prowess.run_sync('hi', model='openai:')\nasyncio.run(f())", "model="),
    "limit": ("prowess.run_sync('hi', model=Says(), limits={'calls': 0}).raise_for_status()", "limits=Limits(calls=…)"),
}
BROKEN = """
class Broken:
    name = "broken"
    async def reply(self, *given, **more):
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise prowess.ProwessError("It broke.", hint="Mend it.") from error
prowess.run_sync("hi", model=Broken(), store="memory:")
"""
SAYS = """
class Says:
    name = "says"
    async def reply(self, messages, tools, *, on_delta=None, schema=None):
        from prowess.events import ModelReplied
        from prowess.ports import ToolCall
        return ModelReplied(calls=(ToolCall(id="c", tool="skill_search", args={"query": "x"}),), finish="calls")
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_one_short_traceback_with_the_hint_last(name: str, tmp_path: Path) -> None:
    """In a real process: the interpreter prints it."""
    program, hint = PROGRAMS[name]
    file = tmp_path / "program.py"
    file.write_text(f"import prowess\n{SAYS}\n{program}\n")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI", "ANTHROPIC"))}
    ended = subprocess.run([sys.executable, file], cwd=tmp_path, env=environ, capture_output=True, text=True)
    lines = ended.stderr.splitlines()
    assert ended.stderr.count("Traceback") == 1, ended.stderr
    assert not any(" exception" in line for line in lines), ended.stderr
    first = next(number for number, line in enumerate(lines) if line.startswith("prowess.errors."))
    said = lines[first:]
    assert len(said) == 2 and hint in said[1], ended.stderr
    assert "--" not in said[0] + said[1], ended.stderr
    ours = [line for line in lines if line.startswith("  File") and "/prowess/" in line]
    assert len(ours) <= 6, ended.stderr


def test_the_cause_stays_when_it_is_in_the_program(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"import prowess\n{BROKEN}")
    ended = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True)
    assert "1 / 0" in ended.stderr and ended.stderr.rstrip().endswith("Mend it."), ended.stderr


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Broken:
    """Policy that raises, or returns what was given."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def decide(self, call: ToolCall, decision: Decision) -> Any:
        if isinstance(self.answer, ZeroDivisionError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ZeroDivisionError("x"), "The policy Broken failed: ZeroDivisionError: x"),
        (NoText(), "The policy Broken failed: ValueError: no text"),
        (Decision(verdict=cast(Any, NoText()), rule="", why=""), "The policy Broken failed: ValueError: no text"),
        (Decision(verdict="deny", rule="", why=cast(Any, NoText())), "The policy Broken failed: ValueError: no text"),
    ],
)
def test_a_policy_that_does_not_work_denies_and_is_on_the_result_once(answer: object, problem: str) -> None:
    result = run([call("add_one", a=1), call("add_one", a=2), {"text": "ok"}], policy=Broken(answer))
    (told,) = result.problems
    assert result.ok and result.failed == 2 and told.startswith(problem)


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), NoText()])
def test_a_tool_that_raised_is_on_the_result_once(error: Exception) -> None:
    def fail(a: int) -> None:
        raise error

    model = ScriptedModel([call("fail", a=1), call("fail", a=2), {"text": "ok"}])
    result = prowess.run_sync("go", model=model, tools=[fail], store="memory:")
    (problem,) = result.problems
    assert result.ok and problem.startswith(f"fail raised {type(error).__name__}: ") and f"{__file__}:" in problem


def test_an_answer_of_an_approver_that_has_no_text_is_on_the_result() -> None:
    result = run([call("pay", amount=3)], approve=lambda call, decision: NoText())
    (problem,) = result.problems
    assert result.stop_reason == "waiting" and "It said <NoText instance" in problem


def test_a_secret_that_is_too_short_to_be_hidden_is_on_the_result_once(tmp_path: Path) -> None:
    skill_dir(tmp_path, "keyed", "Use it.\n", description="Uses a key.", requires={"env": ["KEY"]})
    result = run([{"text": "ok"}], skills=tmp_path, use=["keyed"], secrets={"KEY": "abc"})
    assert result.problems == ("The secret 'KEY' is too short to be hidden from what is shown and recorded.",)


# --- words of Python --------------------------------------------------------------------------------------------------


def write_out(context: prowess.ToolContext) -> None:
    """Writes a file."""
    context.files.write_bytes_sync("out/a.txt", b"a")


def test_hints_name_functions_and_keywords_and_no_options(tmp_path: Path) -> None:
    skill_dir(tmp_path, "demo", "Body.\n", description="Does demos.")
    agent = prowess.Agent(ScriptedModel([]), skills=tmp_path, store="memory:")
    kit = prowess.SkillKit(tmp_path, store="memory:")
    wrong: list[tuple[Any, str]] = [
        (lambda: agent.run_sync("go", use="nothing"), "prowess.discover(…)"),
        (lambda: agent.run_sync("go", session="s-1", must_exist=True), "must_exist"),
        (lambda: kit.session("s-1", must_exist=True).call_sync("skill_load"), "must_exist"),
        (lambda: kit.session(use=["nothing"]).instructions, "prowess.discover(…)"),
        (lambda: prowess.Agent(settings={"tools.profile": "x"}), "settings: 'tools.profile'"),
    ]
    for make, expected in wrong:
        with pytest.raises(prowess.ProwessError) as caught:
            make()
        assert expected in str(caught.value) and "--" not in str(caught.value), caught.value
    kit.close()


def test_a_file_that_exists_is_replaced_in_a_way_that_there_is(tmp_path: Path) -> None:
    model = ScriptedModel([call("write_out"), {"text": "ok"}] * 2)
    agent = prowess.Agent(model, tools=[write_out], store="memory:")
    agent.run_sync("go", output_dir=tmp_path)
    result = agent.run_sync("go", output_dir=tmp_path)
    (warning,) = result.warnings
    assert "file.save(path, force=True)" in warning and "--" not in warning
    with pytest.raises(prowess.ConfigError, match="force=True"):
        result.files[0].save(tmp_path)
    assert result.files[0].save(tmp_path, force=True).read_text() == "a"
