"""Handler of `prowess exec`: runs one command of a skill in a workspace, with its own exit codes."""

from __future__ import annotations

import asyncio
import codecs
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prowess.cli.app import Call
from prowess.cli.approver import TerminalApprover, readable
from prowess.cli.call import note_findings
from prowess.cli.interrupts import run_async
from prowess.cli.run_result import note_unredacted_secrets, show_end
from prowess.cli.screen import printable
from prowess.core.values import Outcome
from prowess.errors import ConfigError, ProwessError, SkillDenied, SkillNotFound, WorkspaceUnavailable
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.preapproved import parse_yes

if TYPE_CHECKING:
    from prowess.runtime.services.files import InputFile
    from prowess.runtime.services.requests import Toolkit

TIMED_OUT, FAILED, DENIED, NOT_FOUND, PIPE_CLOSED = 124, 125, 126, 127, 141
_NOT_FOUND = ("script-not-found", "skill-not-found")
_LONGEST_STDIN = 4 << 20
_EMPTY: dict[str, Any] = {
    "stdout": "",
    "stderr": "",
    "exit_code": None,
    "timed_out": False,
    "duration_ms": 0,
    "truncated": False,
    "primary_output": None,
    "output_files": [],
    "artifact_files": [],
    "staged_inputs": [],
    "warnings": [],
    "isolation": None,
}


def execute(call: Call, skill: str, words: tuple[str, ...], executor: str | None, **given: Any) -> int:
    flags = {"workspace.executor": executor}
    options = {**given, "executor": executor}
    try:
        with call.runtime(roots=given["roots"], flags=flags) as runtime:
            note_findings(call, runtime)
            return run_async(_exec(call, runtime, skill, words, options))
    except ProwessError as error:
        return _refused(call, error)
    except KeyboardInterrupt:
        if not call.screen.is_json:
            raise
        interrupted = ProwessError("It was interrupted, and has ended.", code="interrupted")
        return _answer(call, interrupted, "failed", 130)
    except OSError as error:
        return _refused(call, _system_error(error))


def _system_error(error: OSError) -> ProwessError:
    reason = error.strerror or type(error).__name__
    told = reason.lower()
    if error.filename:
        told = f"{error.filename}: {told}"
    hint = "Check that the path exists, may be written, and that the disk is not full."
    return ProwessError(f"The system refused: {told}.", code="system-error", hint=hint)


async def _exec(call: Call, runtime: Runtime, skill: str, words: Sequence[str], given: dict[str, Any]) -> int:
    """Runs the command, and ends it when its output can no longer be written."""
    live = _LiveOutput(asyncio.current_task())
    try:
        return await _run(call, runtime, skill, words, given, live)
    except asyncio.CancelledError:
        if live.problem is None:
            raise
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        if isinstance(live.problem, BrokenPipeError):
            return PIPE_CLOSED
        raise live.problem from None


async def _run(
    call: Call, runtime: Runtime, skill: str, words: Sequence[str], given: dict[str, Any], live: _LiveOutput
) -> int:
    is_json = call.screen.is_json
    approved = parse_yes(given["yes"])
    approver = TerminalApprover(approved, ask=not is_json, timeout_s=given["ask_timeout"])
    given["bare"] = not is_json  # nobody sees the content of files here; they are on disk
    granted: list[InputFile] = []
    refs: list[dict[str, Any]] = []
    if given["inputs"]:
        from prowess.cli.inputs import split_inputs

        granted, refs = split_inputs(given["inputs"], call.cwd)
    options: dict[str, Any] = {"session": given["session"], "approver": approver, "granted": granted}
    options["copies"] = given["copies"]
    options["resume_arguments"] = _resume_arguments(given)
    if not is_json:
        options["on_output"] = live
    async with runtime.open_kit(**options) as kit:
        loaded = await kit.activate(skill, source=given["source"])
        note_unredacted_secrets(call.screen, kit)
        name = loaded.skill.entry.id
        args = run_arguments(name, words, refs, given, loaded.tree.path)
        if given["with_stdin"]:
            args["stdin"] = await _read_stdin()
        outcome = await kit.call("skill_run", args)
        if "duration_ms" not in outcome.data:
            return _not_run(call, outcome, approver)
        return await asyncio.to_thread(_ran, call, kit, outcome, given)


def _resume_arguments(given: dict[str, Any]) -> tuple[str, ...]:
    words: list[str] = []
    for root in given["roots"]:
        words += ["--root", root]
    if given["executor"]:
        words += ["--executor", given["executor"]]
    return tuple(words)


def run_arguments(
    skill: str, words: Sequence[str], refs: Sequence[dict[str, Any]], given: dict[str, Any], tree: str
) -> dict[str, Any]:
    """Turns the command line into the arguments of a skill_run call."""
    if not words:
        raise ConfigError("There is no command.", code="usage", hint="prowess exec SKILL -- COMMAND…")
    args: dict[str, Any] = {"skill": skill, "inputs": list(refs), "output_files": list(given["outputs"])}
    if given["bare"]:
        args["omit_inline_content"] = True
    if given["install"]:
        args["install"] = list(given["install"])
    args["env"] = dict(map(_variable, given["variables"]))
    if given["shell"]:
        args["command"] = _shell_text(words)
    else:
        args |= _command_arguments(words, tree)
    for name in ("timeout", "cwd"):
        value = given[name]
        if value is not None:
            args[name] = value
    if given["save"]:
        args["save_as_artifacts"] = True
    return args


def _shell_text(words: Sequence[str]) -> str:
    if len(words) == 1:
        return words[0]
    hint = "Put quotes around it: -- 'a | b'"
    raise ConfigError("With --shell the command is one text.", code="usage", hint=hint)


def _command_arguments(words: Sequence[str], tree: str) -> dict[str, Any]:
    script = _script(words[0], tree)
    if script is None:
        return {"command": shlex.join(words)}
    rest = list(words[1:])
    return {"script": script, "args": rest}


def _script(word: str, tree: str) -> str | None:
    """Returns the path when the word names a file of the skill. For scripts/ the folder may be left out."""
    path = word
    if "/" not in word:
        path = f"scripts/{word}"
    if path.startswith("/") or ".." in path:
        return None
    if os.path.isfile(os.path.join(tree, path)):
        return path
    return None


def _variable(text: str) -> tuple[str, str]:
    """Splits NAME=VALUE."""
    name, mark, value = text.partition("=")
    if mark and name:
        return name, value
    message = f"'{text}' is no NAME=VALUE."
    raise ConfigError(message, code="usage", hint="Write --env NAME=VALUE.")


class _LiveOutput:
    """Writes output of the script while it runs. On a terminal it is escaped, so that it cannot move the cursor."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self._task = task
        self.problem: OSError | None = None
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def __call__(self, stream: str, data: bytes) -> None:
        if self.problem is not None:
            return
        try:
            self._write(stream, data)
        except OSError as error:
            self.problem = error
            if self._task is not None:
                self._task.cancel()

    def _write(self, stream: str, data: bytes) -> None:
        out = sys.stdout if stream == "stdout" else sys.stderr
        if not out.isatty():
            out.buffer.write(data)
            out.buffer.flush()
            return
        text = self._decoders[stream].decode(data)
        unix_text = text.replace("\r\n", "\n")
        out.write(printable(unix_text, lines=True))
        out.flush()


def _ran(call: Call, kit: Toolkit, outcome: Outcome, given: dict[str, Any]) -> int:
    """Copies and shows what the command made, and returns the exit code."""
    data = outcome.data
    code = _code(data)
    last = kit.work.last
    names = [file.name for file in last.files] if last else []
    copied: Sequence[str] = ()
    is_whole = True
    folder = given["output_dir"]
    if folder:
        where = {"cwd": call.cwd, "folder": folder, "force": given["force"]}
        where["searched"] = kit.work.options.searched
        from prowess.runtime.services.files import copy_files

        copies = copy_files(kit.work.root, names, patterns=given["outputs"], **where)
        copied = copies.paths
        is_whole = not copies.warnings
        data["warnings"] += copies.notes
    if given["save"] and code == 0:
        saved = len(data["artifact_files"])
        if not 0 < len(names) <= saved:
            is_whole = False
    if call.screen.is_json:
        document = _document(data, kit.recorder.key.session)
        if folder:
            document["copied"] = copied
        call.screen.document(document)
    else:
        show_end(call.screen, kit, outcome, copied)
    return code if is_whole else FAILED


def _code(data: dict[str, Any]) -> int:
    if data["timed_out"]:
        return TIMED_OUT
    code = data["exit_code"]
    if code is None:
        return FAILED
    return code


def _document(data: dict[str, Any], session: str) -> dict[str, Any]:
    status = "failed"
    if data["timed_out"]:
        status = "timeout"
    elif data["exit_code"] == 0:
        status = "ok"
    return {"schema": "prowess.exec/1", "status": status, **data, "session": session}


def _not_run(call: Call, outcome: Outcome, approver: TerminalApprover) -> int:
    """Answers for a call that did not start: denied, nobody to ask, or a requirement is missing."""
    hint = outcome.hint
    if outcome.status == "denied":
        rule = outcome.data.get("rule")
        hint = f"What decided: {rule}"
    if approver.nobody:
        tool = approver.nobody[0]
        hint = f"Nobody is there to be asked. If you want it to run: --yes {tool}"
    error = ProwessError(outcome.content, code=outcome.code or "failed", hint=hint)
    if outcome.status in ("denied", "waiting"):
        return _answer(call, error, "denied", DENIED)
    if outcome.data.get("unavailable"):
        return _answer(call, error, "unavailable", DENIED)
    if error.code in _NOT_FOUND:
        return _answer(call, error, "failed", NOT_FOUND)
    return _answer(call, error, "failed", FAILED)


def _refused(call: Call, error: ProwessError) -> int:
    if isinstance(error, SkillDenied):
        return _answer(call, error, "denied", DENIED)
    if isinstance(error, SkillNotFound):
        return _answer(call, error, "failed", NOT_FOUND)
    if isinstance(error, WorkspaceUnavailable):
        return _answer(call, error, "unavailable", DENIED)
    return _answer(call, error, "failed", FAILED)


def _answer(call: Call, error: ProwessError, status: str, code: int) -> int:
    """Shows an error in place of a result, and returns the exit code."""
    if not call.screen.is_json:
        call.screen.error(error)
        return code
    told = error.to_json()
    document = {"schema": "prowess.exec/1", "status": status, **_EMPTY, "session": None, "error": told}
    call.screen.document(document)
    return code


async def _read_stdin() -> str:
    """Reads all of it. Without a thread: Ctrl-C would have to wait for one that reads."""
    hint = "Give it as --input."
    fd = sys.stdin.fileno()
    data = b""
    piece = b"-"
    while piece and len(data) <= _LONGEST_STDIN:
        with suppress(PermissionError):  # a file, which is always ready
            await readable(fd)
        piece = os.read(fd, _LONGEST_STDIN + 1)
        data += piece
    if len(data) > _LONGEST_STDIN:
        raise ConfigError("Standard input has more than 4 MiB.", code="stdin-too-large", hint=hint)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError("Standard input is not UTF-8 text.", code="stdin-not-text", hint=hint) from None
