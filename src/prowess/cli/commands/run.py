"""Command `prowess run`: gives one request to a model."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from prowess.cli.app import Call, cli_command
from prowess.cli.approver import TerminalApprover, TerminalAsker
from prowess.cli.inputs import has_stdin, read_request, split_inputs, stage_stdin
from prowess.cli.live import Display, Watch, output_closed, print_line
from prowess.cli.run_result import (
    note_unredacted_secrets,
    print_answer,
    save_files,
    show_record,
    show_run_end,
    show_waiting,
)
from prowess.cli.screen import Screen, printable
from prowess.cli.session_options import (
    check_options,
    command_to_go_on,
    session_arguments,
    session_options,
    settings_of,
    skill_requests_of,
)
from prowess.errors import ConfigError, ProwessError
from prowess.runtime.policy_files import load_rules, unknown_tools
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.files import InputFile, find_attachments
from prowess.runtime.services.preapproved import parse_yes
from prowess.runtime.services.requests import raise_limit

if TYPE_CHECKING:
    from prowess.runtime.services.requests import Limits, Result

WAITING, INTERRUPTED = 4, 130


@cli_command(
    "run",
    example="""
prowess run "How many words are in @notes.txt?"
prowess run "Summarise @sales.csv" --model openai:gpt-5 --yes skill_run --output-dir results
cat notes.txt | prowess run "summarise"
prowess run --session s-1f2e3d4c5b6a --resume""",
)
@click.argument("request", required=False)
@session_options
def command(call: Call, request: str | None, **given: Any) -> int:
    """Let a model do something with skills.

    The answer alone goes to stdout, what happens meanwhile to stderr. `@path` in REQUEST attaches a file, as does
    standard input; without a REQUEST, standard input is the request. `/name …` at its start and `$name` in it put a
    skill to use. Exit code: 0 there is an answer, 1 a limit or an error, 2 usage or configuration, 3 a skill that you
    named was denied, 4 a call waits for approval, 130 interrupted.
    """
    check_options(given)
    parse_yes(given["yes"])
    with (
        tempfile.TemporaryDirectory(prefix="prowess-stdin-") as folder,
        call.runtime(roots=given["roots"], flags=settings_of(given)) as runtime,
    ):
        text, files = _read(call, runtime, request, given, folder)
        show_findings(call, runtime)
        return RunCommand(call, given).go(runtime, text, files)


def _read(
    call: Call, runtime: Runtime, request: str | None, given: dict[str, Any], folder: str
) -> tuple[str, list[InputFile]]:
    """Returns the request, and the files that belong to it."""
    files = named_files(call, given["inputs"])
    if request is None and not given["resume"] and has_stdin():
        request = read_request()
    elif request is not None and has_stdin() and (staged := stage_stdin(folder)) is not None:
        files.append(staged)
    if not (request or "").strip() and not given["resume"] and not given["skills"]:
        raise ConfigError("There is no request.", code="usage", hint='Say what is wanted: prowess run "…"')
    text, attached = find_attachments(request or "", call.cwd, runtime.places.home, taken_names(files))
    return text, [*files, *attached]


def named_files(call: Call, inputs: Sequence[str]) -> list[InputFile]:
    files, refs = split_inputs(inputs, call.cwd)
    if refs:
        raise ConfigError(
            f"--input takes files of this machine, and '{refs[0]['from'][:80]}' is none.",
            code="usage",
            hint="Name it in the request: the model can read it.",
        )
    return files


def taken_names(files: Sequence[InputFile]) -> list[str]:
    return [os.path.basename(to or os.path.abspath(path)) for path, to in files]


def show_findings(call: Call, runtime: Runtime) -> None:
    """Shows problems of the configuration, rules that can never match, and named places that do not exist."""
    if not call.screen.is_json:
        for text in unknown_tools(load_rules(runtime), ()):
            call.screen.note(f"warning: {printable(text)} [rule-tool-unknown]")
    roots = [
        finding
        for finding in runtime.catalog.findings
        if finding.code.startswith("root-") and finding.path not in call.missing_roots
    ]
    for finding in (*runtime.setup_findings, *roots):
        if finding.severity != "info" and not call.screen.is_json:
            where = f"{printable(finding.path)}: " if finding.code.startswith("root-") else ""
            call.screen.note(f"{finding.severity}: {where}{printable(finding.message)} [{finding.code}]")


def open_terminal(call: Call, given: dict[str, Any]) -> tuple[Display | None, Watch, TerminalApprover, TerminalAsker]:
    """Returns the parts that show a run to a person and ask that person. With --json nothing is shown, and nobody is
    asked."""
    display = None if call.screen.is_json else Display(verbose=call.screen.verbose)
    watch = Watch(print_line if display is None else display.show)
    asking: dict[str, Any] = {"ask": display is not None}
    asking["around"] = nullcontext if display is None else display.paused
    approver = TerminalApprover(parse_yes(given["yes"]), timeout_s=given["ask_timeout"], **asking)
    return display, watch, approver, TerminalAsker(**asking)


class RunCommand:
    """Runs one request from the command line to its end."""

    def __init__(self, call: Call, given: dict[str, Any]) -> None:
        self._call, self._given, self._screen = call, given, call.screen
        self._display, self._watch, self._approver, self._asker = open_terminal(call, given)
        self._session = ""
        self._limits: Limits | None = None
        self._result: Result | None = None
        self._whole = True

    def go(self, runtime: Runtime, text: str, files: Sequence[InputFile]) -> int:
        try:
            with self._display or nullcontext():  # is closed also when several Ctrl-C end the run
                result = asyncio.run(self._run(runtime, text, files))
        except KeyboardInterrupt:
            return self._interrupted()
        except ProwessError as error:
            if self._result is not None:  # there is an answer; only closing failed
                code = self._end(self._result)
                Screen().error(error)
                return code or error.exit_code
            if self._watch.problem is not None:
                Screen().error(error)
            elif not self._watch.ended or not self._screen.is_json:  # else the events show it
                self._screen.error(error)
            self._say_where()
            return error.exit_code
        return self._end(result)

    async def _run(self, runtime: Runtime, text: str, files: Sequence[InputFile]) -> Result:
        task = asyncio.current_task()
        if self._display is None and task is not None:
            self._watch.stop = task.cancel  # called when stdout can no longer be written
        try:
            return await self._in_session(runtime, text, files)
        except asyncio.CancelledError:
            if self._watch.problem is None or self._display is not None:
                raise
            raise output_closed(self._to_go_on()) from None

    async def _in_session(self, runtime: Runtime, text: str, files: Sequence[InputFile]) -> Result:
        given = self._given
        async with runtime.open_session(
            **session_arguments(given), approver=self._approver, asker=self._asker, on_event=(self._watch,)
        ) as session:
            self._session, self._limits = session.key.session, session.agent.limits
            result = await session.run(text, skills=skill_requests_of(given), files=files, resume=given["resume"])
            await self._watch.wait_for_end()
            self._result = result
            note_unredacted_secrets(self._screen, session.kit)
            if self._display is not None:
                self._display.stop()
            self._whole = save_files(self._screen, session, result, cwd=self._call.cwd, given=given)
            return result

    def _end(self, result: Result) -> int:
        if self._display is not None:
            if result.stop_reason != "waiting":
                print_answer(result.text)
            show_run_end(self._screen, result, self._display.elapsed_s, self._display.isolation)
            show_record(self._screen, result.session, result.run)
        if result.stop_reason == "waiting":
            show_waiting(self._call, self._given, result, self._approver.nobody)
            return WAITING
        if not result.ok and result.stop_reason != "error":  # a run that ended with an error is not resumed
            self._screen.note(f"To go on: {self._to_go_on(result)}")
        return 0 if result.ok and self._whole else 1

    def _interrupted(self) -> int:
        self._screen.note("Interrupted." + (f" To go on: {self._to_go_on()}" if self._watch.started else ""))
        return INTERRUPTED

    def _say_where(self) -> None:
        if self._watch.started and not self._screen.is_json:
            show_record(self._screen, self._session)

    def _to_go_on(self, result: Result | None = None) -> str:
        """Returns the command that resumes the run. The limit that ended it is raised."""
        given = self._given
        if result is not None and self._limits is not None:
            raised = raise_limit(self._limits, result.stop_reason, result.usage)
            given = given if raised is None else {**given, f"max_{raised[0]}": raised[1]}
        return command_to_go_on(self._call, given, self._session, "--resume")
