"""Runs one skill_run: stage the skill, copy inputs, run the command, collect output files, save artifacts.

The result always has all that the command printed and wrote: exit code, time-out and signal are results. An exception
is about the workspace itself, and then nothing has run.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess._internal.tracing import Span, span
from prowess.core.codec import to_json
from prowess.core.isolation import IsolationRecord, record_isolation
from prowess.core.ports import ArtifactStore, Program, Redaction, Workspace
from prowess.core.values import Artifact, SessionKey
from prowess.errors import WorkspaceError, in_one_line
from prowess.workspace.layout import environment, resolve_cwd, resolve_pattern
from prowess.workspace.limits import watch_disk
from prowess.workspace.output_capture import Printed
from prowess.workspace.outputs import (
    DEFAULT_INLINE_BYTES,
    Collected,
    Look,
    OutputFile,
    OutputLimits,
    collect,
    look_at_outputs,
)
from prowess.workspace.process.command import Ended, NotStarted
from prowess.workspace.process.seccomp import PROC_OF_FIRST
from prowess.workspace.scripts.missing_dependency import Around, explain_failure
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree

if TYPE_CHECKING:
    from prowess.workspace.inputs import Input, Staged

DEFAULT_TIMEOUT_S = 300.0
_NO_COMMANDS_OF_A_REPOSITORY = {  # git prefers these to the config of the repository it runs in
    "safe.bareRepository": "explicit",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.sshCommand": "ssh",
}
_NO_STATUS = (
    "Under Landlock only the first program of a run can read its own files in /proc/self, and none that it starts."
    " Begin its command with `exec`, or install bubblewrap."
)
UNASKED = OutputLimits(max_files=100, max_file_bytes=64 << 10, max_total_bytes=256 << 10)  # without patterns


class WantedOutputs(NamedTuple):
    """Output files to collect. Without patterns: files in out/ that are new or changed."""

    patterns: tuple[str, ...] = ()
    inline: bool = True
    save: bool = False
    prefix: str = ""
    limits: OutputLimits = OutputLimits()


class Job(NamedTuple):
    """Complete description of one command for one skill. All decisions are already made."""

    skill: str  # its name, for people and for SKILL_NAME
    folder: str  # its folder below skills/
    tree: Tree
    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] = {}
    system_path_only: bool = False  # find programs only in the folders of the system
    stdin: bytes | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    inputs: Sequence[Input] = ()
    granted: Sequence[tuple[str, str | None]] = ()  # (path, target) of files that the user named
    wanted: WantedOutputs = WantedOutputs()
    packages: str = ""  # folder of its environment
    named: Sequence[str] = ()  # packages of the skill that no script declares
    dependencies: Sequence[str] = ()  # installed packages, shown to the user
    tty: bool = False
    notes: Sequence[str] = ()  # arguments that were changed or ignored


class JobContext(NamedTuple):
    """Environment of a job: the session's workspace, its stores, and the host folders it may read."""

    workspace: Workspace
    place: Place
    key: SessionKey
    redaction: Redaction
    artifacts: ArtifactStore | None = None
    host_roots: Sequence[str] = ()
    skills: Callable[[str], str] | None = None
    disk_bytes: int | None = None
    inline_bytes: int = DEFAULT_INLINE_BYTES
    on_output: Callable[[str, bytes], None] | None = None


class JobResult(NamedTuple):
    """Result of a run. `render_result` of tools/run/skill_run makes the document of it."""

    run: str
    stdout: str
    stderr: str
    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_ms: int
    truncated: bool
    refs: dict[str, str]  # stream -> file with the whole output, for a stream that was cut
    files: tuple[OutputFile, ...]
    saved: tuple[Artifact, ...]
    staged: tuple[Staged, ...]
    warnings: tuple[str, ...]
    isolation: IsolationRecord
    missing: dict[str, Any] | None = None
    dependencies: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S
    told: tuple[str, ...] = ()  # warnings that matter to a model

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


async def run_job(job: Job, desk: JobContext) -> JobResult:
    """Runs the job to its end. Raises WorkspaceError when it cannot start."""
    prepared = await prepare(job, desk)
    printed = Printed(desk.place, prepared.program.run, desk.redaction, on_output=desk.on_output)
    try:
        with span("workspace.run", skill=job.skill, digest=job.tree.digest, executor=_executor(desk)) as current:
            ended = await _run(prepared, desk, printed)
            _describe(current, ended, printed)
    except NotStarted as error:
        printed.close()
        ended = Ended(why="exit", exit_code=127 if error.missing else 126)
        printed.say(in_one_line(error))
        return await finish(prepared, desk, printed, ended, not_started=error)
    except BaseException:
        printed.close()
        raise
    printed.close()
    return await finish(prepared, desk, printed, ended)


@dataclass(slots=True, kw_only=True)
class Prepared:
    """Job that is ready to start, and the data that `finish` needs."""

    job: Job
    program: Program
    staged: tuple[Staged, ...]
    before: dict[str, Look]
    warnings: list[str]


async def prepare(job: Job, desk: JobContext) -> Prepared:
    """Stages the skill and the inputs, and builds the environment variables."""
    workspace = desk.workspace
    layout = desk.workspace.layout
    run = f"run-{secrets.token_hex(6)}"
    cwd = resolve_cwd(job.cwd, layout, skill=job.folder, run=run)
    for pattern in job.wanted.patterns:
        resolve_pattern(pattern)  # refuses a pattern that leaves the workspace before anything runs
    with span("workspace.stage.skill", skill=job.skill, digest=job.tree.digest, executor=_executor(desk)):
        await workspace.stage(job.tree, job.folder)
    warnings = [*job.notes, *desk.place.notes]
    staged: list[Staged] = []
    if job.inputs or job.granted:
        with span("workspace.stage.inputs", skill=job.skill, inputs=len(job.inputs) + len(job.granted)) as current:
            staged = await _stage_inputs(job, desk)
            current.set_attribute("bytes", sum(each.size_bytes for each in staged))
    warnings += [f"{each.source}: {each.note}" for each in staged if each.note]
    before: dict[str, Look] = {}
    if not job.wanted.patterns:
        before = await asyncio.to_thread(look_at_outputs, layout)
    readable = (job.packages,) if job.packages else ()
    program = Program(
        argv=job.argv,
        skill=job.folder,
        run=run,
        cwd=cwd,
        env=_environment(job, workspace, run),
        stdin=job.stdin,
        timeout_s=job.timeout_s,
        readable=readable,
        tty=job.tty,
    )
    return Prepared(job=job, program=program, staged=tuple(staged), before=before, warnings=warnings)


async def finish(
    prepared: Prepared, desk: JobContext, printed: Printed, ended: Ended, *, not_started: NotStarted | None = None
) -> JobResult:
    """Collects and saves the files of an ended run, and returns its result."""
    job = prepared.job
    warnings = prepared.warnings
    collected = await _collect(prepared, desk)
    warnings += collected.warnings
    saved: list[Artifact] = []
    if job.wanted.save and not collected.files:
        why = "nothing matches." if job.wanted.patterns else "there is no new file in out/."
        warnings.append(f"Nothing was saved as an artifact: {why}")
    elif job.wanted.save:
        from prowess.workspace.artifacts import save_outputs

        saved, problems = await save_outputs(
            desk.artifacts, desk.key, desk.workspace.layout, collected.files, job.wanted.prefix
        )
        warnings += problems
    warnings += printed.warnings
    untold = {*collected.untold, *printed.untold}
    warnings += _about_the_end(ended, desk.workspace.isolation.mechanism, printed.stderr.text)
    if ended.timed_out:
        late = f"It was ended after {job.timeout_s:g} s; what it had printed and written is here."
        warnings.append(late)
        untold.add(late)
    code = ended.exit_code
    if code == 0 and not ended.timed_out:
        untold.update(job.notes, desk.place.notes)
    if code is None and ended.signal:
        code = 128 + ended.signal
    missing = None
    if code and not ended.timed_out:
        program = posixpath.basename(job.argv[0])
        python = job.argv[0] if program.startswith("python") else desk.workspace.python
        around = Around(job.skill, python, tuple(job.named), tuple(job.dependencies))
        missing = explain_failure(code, printed.stderr.text, not_started, around)
    warnings = list(dict.fromkeys(warnings))
    return JobResult(
        run=prepared.program.run,
        stdout=printed.stdout.text,
        stderr=printed.stderr.text,
        exit_code=code,
        signal=ended.signal,
        timed_out=ended.timed_out,
        duration_ms=round(ended.duration_s * 1000),
        truncated=printed.stdout.truncated or printed.stderr.truncated,
        refs=printed.refs,
        files=collected.files,
        saved=tuple(saved),
        staged=prepared.staged,
        warnings=tuple(warnings),
        isolation=record_isolation(desk.workspace.isolation),
        missing=to_json(missing) if missing else None,
        dependencies=tuple(job.dependencies),
        left_out=collected.left_out,
        timeout_s=job.timeout_s,
        told=tuple(each for each in warnings if each not in untold),
    )


async def _run(prepared: Prepared, desk: JobContext, printed: Printed) -> Ended:
    """Runs the program and watches the disk at the same time. Ends the program when it writes too much."""
    program = prepared.program
    started = time.monotonic()
    running = asyncio.ensure_future(desk.workspace.run(program, printed.stdout.feed, printed.stderr.feed))
    watching = asyncio.ensure_future(watch_disk(desk.workspace.layout, program.run, desk.disk_bytes))
    try:
        await asyncio.wait((running, watching), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return await running
        prepared.warnings.append(await watching)
    finally:
        for task in (watching, running):
            task.cancel()
        await asyncio.wait((watching, running))
    if not running.cancelled() and running.exception() is None:
        return running.result()
    return Ended(why="kill", signal=9, duration_s=time.monotonic() - started)


async def _stage_inputs(job: Job, desk: JobContext) -> list[Staged]:
    from prowess.workspace.artifacts import stage_artifact_sources
    from prowess.workspace.inputs import InputPlaces, stage_granted, stage_input

    layout = desk.workspace.layout
    uid = desk.place.uid
    with await stage_artifact_sources(job.inputs, desk.artifacts, desk.key, desk.place) as contents:
        places = InputPlaces(layout, host_roots=desk.host_roots, skills=desk.skills, artifact=contents.get, uid=uid)

        def stage_all() -> list[Staged]:
            named = [stage_granted(path, to, layout, uid) for path, to in job.granted]
            return named + [stage_input(wanted, places) for wanted in job.inputs]

        try:
            return await asyncio.to_thread(stage_all)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"An input could not be copied: {reason}."
            hint = "Is there room on the disk, and may it be read?"
            raise WorkspaceError(message, op="inputs", code="input-failed", hint=hint) from error


async def _collect(prepared: Prepared, desk: JobContext) -> Collected:
    wanted = prepared.job.wanted
    limits = wanted.limits.within(desk.inline_bytes)
    asked = bool(wanted.patterns)
    if not asked:
        limits = OutputLimits(*map(min, limits, UNASKED))
    owner = os.geteuid() if desk.place.uid is None else desk.place.uid
    with span("workspace.collect", skill=prepared.job.skill) as current:
        collected = await asyncio.to_thread(
            collect,
            desk.workspace.layout,
            wanted.patterns or ["out/**"],
            inline=wanted.inline,
            limits=limits,
            before=None if asked else prepared.before,
            must_match=asked,
            owner=owner,
            redact=desk.redaction.redact_text,
        )
        current.set_attribute("files", len(collected.files))
        current.set_attribute("bytes", sum(file.size_bytes for file in collected.files))
    with span("workspace.inline", skill=prepared.job.skill) as current:
        current.set_attribute("bytes", sum(len(file.content or "") for file in collected.files))
    return collected


def _environment(job: Job, workspace: Workspace, run: str) -> dict[str, str]:
    told = environment(workspace.layout, skill=job.folder, run=run) | {"SKILL_NAME": job.skill}
    base = dict(workspace.environment)
    settled: dict[str, str] = {}
    if job.system_path_only:
        settled = {"GIT_PAGER": "cat", "GIT_CONFIG_COUNT": str(len(_NO_COMMANDS_OF_A_REPOSITORY))}
        for number, (key, value) in enumerate(_NO_COMMANDS_OF_A_REPOSITORY.items()):
            settled[f"GIT_CONFIG_KEY_{number}"] = key
            settled[f"GIT_CONFIG_VALUE_{number}"] = value
    else:
        # Packages installed for the skill come first, programs that the skill ships come last.
        skill = told["SKILL_DIR"]
        base["PATH"] = f"{skill}/.venv/bin:{base.get('PATH', '')}:{skill}/bin"
        if job.packages:
            base["PATH"] += f":{job.packages}/bin"
    return {**base, "PYTHONUNBUFFERED": "1", **told, **job.env, **settled}


def _about_the_end(ended: Ended, mechanism: str, stderr: str) -> list[str]:
    """Returns sentences about how the run ended.

    A run in bubblewrap's PID namespace leaves no processes behind. There the count would only be the namespace's first
    process.
    """
    said = list(ended.notes)
    if ended.oom:
        said.append("It needed more memory than the limit allows and was ended for that.")
    if ended.left:
        said.append(f"{ended.left} process{'es' if ended.left > 1 else ''} could not be ended.")
    if ended.survivors_killed and ended.why == "exit" and "bwrap" not in mechanism:
        number = ended.survivors_killed
        said.append(f"It left {number} process{'es' if number > 1 else ''} behind; nothing of it runs any more.")
    if ended.why == "lost":
        said.append("The process that watched over it was killed, so its exit code is not known.")
    if "landlock" in mechanism and _lacked_its_status(stderr):
        said.append(_NO_STATUS)
    return said


def _lacked_its_status(stderr: str) -> bool:
    """True when a program says that it may not read a file of its own in /proc that the first one may."""
    for line in stderr.splitlines():
        if "ermission denied" in line:
            _, _, name = line.partition("/proc/self/")
            if name.startswith(PROC_OF_FIRST):
                return True
    return False


def _describe(current: Span, ended: Ended, printed: Printed) -> None:
    current.set_attribute("exit_code", -1 if ended.exit_code is None else ended.exit_code)
    current.set_attribute("timed_out", ended.timed_out)
    current.set_attribute("stdout_bytes", printed.stdout.seen_bytes)
    current.set_attribute("stderr_bytes", printed.stderr.seen_bytes)


def _executor(desk: JobContext) -> str:
    isolation = desk.workspace.isolation
    return f"{isolation.executor}:{isolation.mechanism}"
