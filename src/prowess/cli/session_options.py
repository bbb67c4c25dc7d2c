"""Options that `prowess run` and `prowess chat` share, and the session arguments made from them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click

from prowess.cli.app import Call, executor_option, roots_option, source_option, store_option
from prowess.core.values import Question, SessionKey
from prowess.errors import ConfigError
from prowess.runtime.settings import LimitsConfig

# option -> the setting that it replaces for this call
SETTINGS = {
    "executor": "workspace.executor",
    "load_mode": "skills.load_mode",
    "placement": "skills.placement",
    "max_turns": "limits.turns",
    "max_calls": "limits.calls",
    "max_scripts": "limits.scripts",
    "max_tokens": "limits.tokens",
    "max_seconds": "limits.seconds",
    "max_cost": "limits.cost",
}
yes_option = click.option(
    "--yes",
    multiple=True,
    metavar="TOOL|low|medium",
    help="Approve a tool, by our name or another system's (Bash, Write …), or all of that risk at most. Repeatable.",
)
ask_timeout_option = click.option(
    "--ask-timeout",
    type=click.FloatRange(0.001, 86400),
    metavar="S",
    help="Seconds to wait for an answer. No answer counts as no.",
)
copies_option = click.option(
    "--copies", metavar="DIR", help="Write copies of the runs to DIR.  [default: .agent/runs, in a project of yours]"
)
_Options = tuple[Callable[[Any], Any], ...]
_TASK: _Options = (
    click.option("--model", metavar="M", help="offline, openai:NAME, anthropic:NAME, scripted:FILE, replay:RUN, …"),
    click.option("--skill", "skills", multiple=True, metavar="NAME", help="Put this skill to use. Repeatable."),
    source_option,
    roots_option,
    click.option("--input", "inputs", multiple=True, metavar="FILE[=TO]", help="Give it a file or folder. Repeatable."),
)
_SESSION: _Options = (
    click.option("--session", metavar="ID", help="Go on in this session.  [default: a new one]"),
    store_option,
    copies_option,
    click.option("--resume", is_flag=True, help="Go on with the run that was cut off, waits or met a limit."),
    yes_option,
    click.option(
        "--on-ask",
        type=click.Choice(["wait", "deny"]),
        default="wait",
        show_default=True,
        help="When a person has to be asked and nobody is there.",
    ),
    ask_timeout_option,
    executor_option("What runs scripts."),
)
_CONVERSATION: _Options = (
    click.option("--protocol", type=click.Choice(["tools", "actions"]), help="How the model says what it wants."),
    click.option(
        "--load-mode", type=click.Choice(["turn", "once", "session"]), help="How long a loaded skill stays in view."
    ),
    click.option(
        "--placement", type=click.Choice(["tool_result", "system"]), help="Where a loaded skill stands in the request."
    ),
    click.option("--instructions", metavar="TEXT", help="What the model is told before anything else."),
    click.option("--summarise", is_flag=True, help="Near the context limit, let the model write a summary."),
)
_MOST = LimitsConfig()
_LIMITS: _Options = (
    click.option("--max-turns", type=click.IntRange(1), metavar="N", help=f"Model turns.  [default: {_MOST.turns}]"),
    click.option("--max-calls", type=click.IntRange(1), metavar="N", help=f"Tool calls.  [default: {_MOST.calls}]"),
    click.option(
        "--max-scripts", type=click.IntRange(0), metavar="N", help=f"Script runs.  [default: {_MOST.scripts}]"
    ),
    click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Tokens, both ways.  [default: no limit]"),
    click.option(
        "--max-seconds", type=click.FloatRange(0.001), metavar="S", help="Seconds it may take.  [default: no limit]"
    ),
    click.option(
        "--max-cost", type=click.FloatRange(0, min_open=True), metavar="X", help="Money, in the currency of `prices`."
    ),
)
_COPIES: _Options = (
    click.option("--output-dir", metavar="DIR", help="Copy the files that it made to DIR; exit code 1 if not all."),
    click.option("--force", is_flag=True, help="Let copies replace what is in DIR."),
)


def owner_options(function: Any) -> Any:
    """Adds the options that name the owner of a session, where several owners have one of that name."""
    for name in ("tenant", "app", "user"):
        option = click.option(f"--{name}", metavar="NAME", help=f"The session of this {name}.")
        function = option(function)
    return function


def session_options(function: Any) -> Any:
    """Adds the options in this order, which `--help` keeps."""
    options = _TASK + _SESSION + _CONVERSATION + _LIMITS + _COPIES
    for option in reversed(options):
        function = option(function)
    return function


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options as settings. None keeps the configured value."""
    return {setting: given[option] for option, setting in SETTINGS.items()}


def session_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Returns arguments for `Runtime.open_session`, without approver, asker and observers."""
    words = _resume_arguments(given)
    return {
        "resume_arguments": tuple(words),
        "model": given["model"],
        "session": given["session"],
        "copies": given["copies"],
        "protocol": given["protocol"],
        "on_ask": given["on_ask"],
        "instructions": given["instructions"] or "",
        "summarise": given["summarise"],
        "must_exist": given["resume"],
    }


def check_options(given: dict[str, Any]) -> None:
    """Raises ConfigError for an option that needs another one."""
    if given["resume"] and given["session"] is None:
        hint = "prowess run --session ID --resume; see: prowess sessions list"
        raise ConfigError("--resume needs the session to go on with.", code="usage", hint=hint)
    if given["source"] is not None and not given["skills"]:
        message = "--source says which skill is meant, and no --skill is named."
        raise ConfigError(message, code="usage", hint="Add --skill NAME.")
    if given["force"] and given["output_dir"] is None:
        message = "--force is about copies, and there is no --output-dir."
        raise ConfigError(message, code="usage", hint="Name a folder.")


def command_to_answer(call: Call, question: Question, key: SessionKey) -> str:
    """Returns the command that answers this question with yes, and no other that its call has later."""
    words = ["prowess", "approvals", "answer", *call.where(store=True)]
    words += [question.call_id, "yes", "--session", key.session]
    for part, name in key.owner.items():
        words += [f"--{part}", name]
    return shlex.join([*words, "--token", question.token])


def command_to_go_on(
    call: Call, given: dict[str, Any], session: str, *more: str, yes: Sequence[str] = (), command: str = "run"
) -> str:
    """Returns the command that goes on in this session, with the options of this call."""
    words = ["prowess", command, *call.where(store=True)]
    words += _resume_arguments(given)
    words += ["--session", session, *more]
    approved = dict.fromkeys([*given["yes"], *yes])
    for tool in approved:
        words += ["--yes", tool]
    return shlex.join(words)


_KEPT = ("model", "executor", "protocol", "load_mode", "placement", "instructions", "ask_timeout", "copies")


def _resume_arguments(given: dict[str, Any]) -> list[str]:
    words: list[str] = []
    if click.get_current_context().params.get("nested"):
        words.append("--nested")
    for root in given["roots"]:
        words += ["--root", root]
    limits = [name for name in SETTINGS if name.startswith("max_")]
    for name in (*_KEPT, *limits, "output_dir"):
        value = given[name]
        if value is not None:
            words.append(f"--{name.replace('_', '-')}")
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    if given["summarise"]:
        words.append("--summarise")
    if given["force"]:
        words.append("--force")
    return words
