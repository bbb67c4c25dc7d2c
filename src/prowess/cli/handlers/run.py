"""Handler of `prowess run`: gives one request to a model."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from prowess.cli.app import Call
from prowess.cli.approver import TerminalApprover, TerminalAsker
from prowess.cli.inputs import has_stdin, read_request, split_inputs, stage_stdin
from prowess.cli.interrupts import run_async
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
    settings_of,
)
from prowess.core.catalog_values import Finding
from prowess.errors import ConfigError, ProwessError
from prowess.runtime.policy_files import load_rules, unknown_tools
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.files import InputFile, find_attachments
from prowess.runtime.services.preapproved import parse_yes
from prowess.runtime.services.requests import SkillRequest, raise_limit

if TYPE_CHECKING:
    from prowess.runtime.services.requests import Limits, Result

WAITING, INTERRUPTED = 4, 130


def run(call: Call, request: str | None, **given: Any) -> int:
    check_options(given)
    parse_yes(given["yes"])
    flags = settings_of(given)
    with (
        tempfile.TemporaryDirectory(prefix="prowess-stdin-") as folder,
        call.runtime(roots=given["roots"], flags=flags) as runtime,
    ):
        text, files = _read(call, runtime, request, given, folder)
        show_findings(call, runtime)
        run = RunCommand(call, given)
        return run.go(runtime, text, files)


def _read(
    call: Call, runtime: Runtime, request: str | None, given: dict[str, Any], folder: str
) -> tuple[str, list[InputFile]]:
    """Returns the request, and the files that belong to it."""
    files = named_files(call, given["inputs"])
    is_resumed = given["resume"]
    if request is not None:
        if has_stdin():
            staged = stage_stdin(folder)
            if staged is not None:
                files.append(staged)
    elif not is_resumed and has_stdin():
        request = read_request()
    asked = request or ""
    if not asked.strip() and not is_resumed and not given["skills"]:
        raise ConfigError("There is no request.", code="usage", hint='Say what is wanted: prowess run "…"')
    taken = taken_names(files)
    text, attached = find_attachments(asked, call.cwd, runtime.places.home, taken)
    return text, [*files, *attached]


def skill_requests_of(given: dict[str, Any]) -> list[SkillRequest]:
    """Returns the skills of --skill, all of the one --source."""
    source = given["source"]
    return [SkillRequest(ref=name, source=source) for name in given["skills"]]


def named_files(call: Call, inputs: Sequence[str]) -> list[InputFile]:
    """Returns the files of --input. A ref to a thing elsewhere is refused."""
    files, refs = split_inputs(inputs, call.cwd)
    if not refs:
        return files
    named = refs[0]["from"][:80]
    message = f"--input takes files of this machine, and '{named}' is none."
    raise ConfigError(message, code="usage", hint="Name it in the request: the model can read it.")


def taken_names(files: Sequence[InputFile]) -> list[str]:
    """Returns the names that these files have in the workspace."""
    places = [to or os.path.abspath(path) for path, to in files]
    return [os.path.basename(place) for place in places]


def show_findings(call: Call, runtime: Runtime) -> None:
    """Shows problems of the configuration, rules that can never match, and named places that do not exist."""
    screen = call.screen
    if not screen.is_json:
        for text in unknown_tools(load_rules(runtime), ()):
            shown = printable(text)
            screen.note(f"warning: {shown} [rule-tool-unknown]")
    findings = [*runtime.setup_findings]
    for finding in runtime.catalog.findings:
        if finding.code.startswith("root-") and finding.path not in call.missing_roots:
            findings.append(finding)
    for finding in findings:
        if finding.severity != "info" and not screen.is_json:
            _show_finding(screen, finding)


def _show_finding(screen: Screen, finding: Finding) -> None:
    text = printable(finding.message)
    if finding.code.startswith("root-"):
        path = printable(finding.path)
        text = f"{path}: {text}"
    screen.note(f"{finding.severity}: {text} [{finding.code}]")


def open_terminal(call: Call, given: dict[str, Any]) -> tuple[Display | None, Watch, TerminalApprover, TerminalAsker]:
    """Returns the parts that show a run to a person and ask that person. With --json nothing is shown, and nobody is
    asked."""
    approved = parse_yes(given["yes"])
    timeout_s = given["ask_timeout"]
    if call.screen.is_json:
        approver = TerminalApprover(approved, timeout_s=timeout_s, ask=False)
        return None, Watch(print_line), approver, TerminalAsker(ask=False)
    display = Display(verbose=call.screen.verbose)
    watch = Watch(display.show)
    approver = TerminalApprover(approved, timeout_s=timeout_s, around=display.paused)
    asker = TerminalAsker(around=display.paused)
    return display, watch, approver, asker


class RunCommand:
    """Runs one request from the command line to its end."""

    def __init__(self, call: Call, given: dict[str, Any]) -> None:
        self._call = call
        self._given = given
        self._screen = call.screen
        self._display, self._watch, self._approver, self._asker = open_terminal(call, given)
        self._session = ""
        self._limits: Limits | None = None
        self._result: Result | None = None
        self._whole = True

    def go(self, runtime: Runtime, text: str, files: Sequence[InputFile]) -> int:
        """Runs the request, shows how it ended, and returns the exit code."""
        try:
            with self._display or nullcontext():  # is closed also when several Ctrl-C end the run
                result = run_async(self._run(runtime, text, files))
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
        options = session_arguments(given)
        requests = skill_requests_of(given)
        async with runtime.open_session(
            **options, approver=self._approver, asker=self._asker, on_event=(self._watch,)
        ) as session:
            self._session = session.key.session
            self._limits = session.agent.limits
            result = await session.run(text, skills=requests, files=files, resume=given["resume"])
            await self._watch.wait_for_end()
            self._result = result
            note_unredacted_secrets(self._screen, session.kit)
            if self._display is not None:
                self._display.stop()
            self._whole = save_files(self._screen, session, result, cwd=self._call.cwd, given=given)
            return result

    def _end(self, result: Result) -> int:
        is_waiting = result.stop_reason == "waiting"
        if self._display is not None:
            if not is_waiting:
                print_answer(result.report)
            show_run_end(self._screen, result, self._display.elapsed_s, self._display.isolation)
            show_record(self._call, result.session, result.run)
        if is_waiting:
            show_waiting(self._call, self._given, result, self._approver.nobody)
            return WAITING
        if not result.ok and result.stop_reason != "error":  # a run that ended with an error is not resumed
            command = self._to_go_on(result)
            self._screen.note(f"To go on: {command}")
        return 0 if result.ok and self._whole else 1

    def _interrupted(self) -> int:
        text = "Interrupted."
        if self._watch.started:
            command = self._to_go_on()
            text += f" To go on: {command}"
        self._screen.note(text)
        return INTERRUPTED

    def _say_where(self) -> None:
        if self._screen.is_json:
            return
        if self._watch.started:
            show_record(self._call, self._session)

    def _to_go_on(self, result: Result | None = None) -> str:
        """Returns the command that resumes the run. The limit that ended it is raised."""
        given = self._given
        if result is not None and self._limits is not None:
            raised = raise_limit(self._limits, result.stop_reason, result.usage)
            if raised is not None:
                name, limit = raised
                given = {**given, f"max_{name}": limit}
        return command_to_go_on(self._call, given, self._session, "--resume")
