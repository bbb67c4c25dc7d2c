"""skill_run: runs a command or script of a loaded skill in the workspace. A failed run has a result, too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from prowess.core.ports import CallGrant, CapabilityRequest, Workspace
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import WorkspaceError
from prowess.tools.arguments import SKILL_NAMES, RunArguments
from prowess.tools.run import packages as installed
from prowess.tools.run.requirements import check_present
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import LoadedSkill, SessionWork, WorkTool
from prowess.workspace.inputs import Staged
from prowess.workspace.job import DEFAULT_TIMEOUT_S, Job, JobResult, WantedOutputs, run_job
from prowess.workspace.outputs import OutputFile, primary_output
from prowess.workspace.scripts.interpreter import Launch, plan_script

DESCRIPTION = (
    "Run a command or script of a loaded skill in its isolated workspace. "
    "Write results to out/; run only what the skill documents."
)


class SkillRun(WorkTool):
    spec = ToolSpec(name="skill_run", description=DESCRIPTION, parameters=render_schema(RunArguments))

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return parse_arguments(RunArguments, with_skill(args, self._work), self.spec.name).normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        return await find_needs(self._work, parse_arguments(RunArguments, args, self.spec.name))

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(RunArguments, args, self.spec.name)
        desk = await self._work.desk(within)
        with ExitStack() as held:
            job = await plan_job(self._work, wanted, within, desk.workspace, held)
            self._work.last = result = await run_job(job, desk)
        self._work.granted.clear()
        return render_outcome(result)


def with_skill(args: Mapping[str, Any], work: SessionWork) -> Mapping[str, Any]:
    """Adds the skill to a call without one, such as `Bash {command}`, if exactly one skill is in use."""
    if any(args.get(name) for name in ("skill", *SKILL_NAMES)) or len(work.loaded) != 1:
        return args
    return {**args, "skill": next(iter(work.loaded))}


class PlannedRun(NamedTuple):
    """Run of a skill: its arguments, and the launch of its script. It is planned once for a call."""

    loaded: LoadedSkill
    args: RunArguments
    launch: Launch | None


def plan_run(work: SessionWork, args: RunArguments, workspace: Workspace) -> PlannedRun:
    loaded = work.get(args.skill)
    planned = args.planned
    if isinstance(planned, PlannedRun) and planned.loaded is loaded:
        return planned
    planned = _plan_script_of_command(args, loaded, workspace)
    if planned is None:
        launch = None if args.script is None else _plan(loaded, args, workspace)
        planned = PlannedRun(loaded, args, launch)
    args.keep(planned)
    return planned


def _plan_script_of_command(args: RunArguments, loaded: LoadedSkill, workspace: Workspace) -> PlannedRun | None:
    """Turns the command `python3 scripts/x.py a b` into that script, so that it gets its declared packages. A command
    with shell syntax stays a command."""
    if args.command is None or args.cwd is not None or _SHELL.search(args.command):
        return None
    words = args.command.split()
    if len(words) < 2 or words[0] not in ("python3", "python") or not words[1].endswith(".py"):
        return None
    script = args.model_copy(update={"command": None, "script": words[1], "args": words[2:]})
    try:
        launch = _plan(loaded, script, workspace, python=words[0])
    except WorkspaceError:
        return None
    if launch.block is None:
        return None
    return PlannedRun(loaded, script, launch if workspace.python else _plan(loaded, script, workspace))


_SHELL = re.compile(r"[^\w\s./:=,@%+-]")


async def find_needs(work: SessionWork, args: RunArguments) -> Sequence[CapabilityRequest]:
    """Returns a request for installing packages that were not installed for this skill before."""
    if work.backend.environments is None:
        work.get(args.skill)
        return ()
    workspace, _ = await work.workspace()
    loaded, args, launch = plan_run(work, args, workspace)
    block = launch.block if launch else None
    packages = installed.find_packages(work.backend.environments, work, loaded, block, args.install)
    if packages is None:
        return ()
    wanted = await installed.wanted_for(packages, work, loaded, workspace)
    if installed.find(work.backend.environments, wanted) is not None:
        work.to_install.discard(wanted.what)
        return ()
    work.to_install.add(wanted.what)
    given: dict[str, Any] = {"skill": args.skill}
    if launch is not None:
        given["script"] = launch.script
    given |= {"dependencies": list(wanted.block.dependencies), "digest": wanted.block.digest, "by": packages.by}
    return [CapabilityRequest(capability="install_dependencies", args=given)]


async def plan_job(
    work: SessionWork,
    args: RunArguments,
    within: CallGrant,
    workspace: Workspace,
    held: ExitStack,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Job:
    """Turns the arguments into a job: program, arguments, inputs and wanted outputs. The files that it needs on disk
    stay there until the caller closes `held`."""
    loaded = work.get(args.skill)
    await check_present(work, loaded, workspace, within.env)
    _, args, launch = plan_run(work, args, workspace)
    judged = within.decision.limits.get("argv")  # words that policy allowed one by one: run without a shell
    if launch is not None:
        launch = _judged(launch, args, judged)
    by_person = "install_dependencies" in within.granted
    started = await _equip(work, loaded, args, launch, workspace, held, by_person=by_person)
    argv = ("bash", "-c", args.command or "") if judged is None else tuple(map(str, judged))
    if launch is not None:
        argv = launch.seen_from(workspace.layout.seen(f"skills/{loaded.folder}"), python=started.python)
    return Job(
        skill=loaded.skill.name,
        folder=loaded.folder,
        tree=loaded.tree,
        argv=argv,
        cwd=args.cwd,
        env={**started.env, **within.env},
        system_path_only=judged is not None,
        stdin=None if args.stdin is None else args.stdin.encode("utf-8", "surrogateescape"),
        timeout_s=args.timeout or timeout_s,
        inputs=[each.value for each in args.inputs],
        granted=tuple(work.granted),
        wanted=_wanted(args),
        packages=started.packages,
        named=started.named,
        dependencies=started.dependencies,
        notes=started.notes,
    )


class Equipment(NamedTuple):
    """Packages of a run, and the variables and interpreter that make them available."""

    env: Mapping[str, str] = {}
    python: str = ""  # replaces the interpreter
    packages: str = ""  # folder of the environment
    named: tuple[str, ...] = ()  # packages of the skill that no script declares
    dependencies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def _equip(
    work: SessionWork,
    loaded: LoadedSkill,
    args: RunArguments,
    launch: Launch | None,
    workspace: Workspace,
    held: ExitStack,
    *,
    by_person: bool,
) -> Equipment:
    """Prepares the packages of a run. A script that declares packages gets its own environment. Any other run sees the
    packages that are named for its skill before those of its interpreter."""
    block, env, notes = (launch.block, launch.env, launch.notes) if launch else (None, {}, ())
    if work.backend.environments is None:
        return Equipment(env, notes=notes)
    packages = installed.find_packages(work.backend.environments, work, loaded, block, args.install)
    if block is not None and not block.dependencies:
        await installed.check_python(block, loaded, workspace)
    if packages is None:
        failed = work.not_installed.get(loaded.tree.digest)
        return Equipment(
            env, notes=(*notes, f"An installation for this skill failed before: {failed}") if failed else notes
        )
    wanted = await installed.wanted_for(packages, work, loaded, workspace)
    granted = wanted.what in work.to_install
    try:
        built = await installed.hold(work.backend.environments, wanted, held, granted=granted, by_person=by_person)
    except WorkspaceError as error:
        work.not_installed[loaded.tree.digest] = f"{', '.join(wanted.block.dependencies)}. {error.hint or ''}"[:500]
        raise
    work.not_installed.pop(loaded.tree.digest, None)
    if packages.added:
        work.added[loaded.tree.digest] = packages.added
    env = {**env, **installed.environment_of(built, declared=packages.declared)}
    python = built.python if packages.declared else ""
    notes = (*notes, *([built.note] if built.note else []))
    return Equipment(env, python, built.path, packages.named, built.resolved, notes)


def _judged(launch: Launch, args: RunArguments, judged: Sequence[str] | None) -> Launch:
    """Uses the interpreter that policy allowed for the script, if the decision names one."""
    if judged is None or len(judged) <= len(args.args) + 1:
        return launch
    return replace(launch, way=tuple(judged[: len(judged) - len(args.args) - 1]))


def _plan(loaded: LoadedSkill, args: RunArguments, workspace: Workspace, *, python: str = "") -> Launch:
    """Plans the launch of a script. `python` is used where the workspace has none."""
    python = workspace.python or python
    return plan_script(loaded.tree.path, args.script or "", args.args, python=python, skill=loaded.skill.name)


def render_outcome(result: JobResult) -> Outcome:
    """Renders the result. For a failed command, too, the model sees its output and exit code."""
    data = render_result(result)
    content = json.dumps({key: value for key, value in data.items() if value not in (None, [], {})}, ensure_ascii=False)
    if result.ok:
        return Outcome(status="ok", content=content, data=data)
    if result.missing is not None:
        hint = str(result.missing.get("hint") or "")
        return Outcome(status="failed", content=content, code="missing-dependency", hint=hint, data=data)
    if result.timed_out:
        hint = "Give it more time with `timeout`, or less to do."
        return Outcome(status="failed", content=content, code="timeout", hint=hint, data=data)
    hint = "Read stderr, and mend the call or its inputs."
    return Outcome(status="failed", content=content, code="command-failed", hint=hint, data=data)


def render_result(result: JobResult) -> dict[str, Any]:
    """Renders the skill_run result of the contract."""
    primary = primary_output(result.files)
    document: dict[str, Any] = {
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exit_code": result.exit_code,
        "timed_out": result.timed_out,
        "duration_ms": result.duration_ms,
        "truncated": result.truncated,
        "primary_output": _render_file(primary) if primary else None,
        "output_files": [_render_file(file) for file in result.files],
        "artifact_files": [{"name": saved.name, "version": saved.version} for saved in result.saved],
        "staged_inputs": [_render_staged(staged) for staged in result.staged],
        "warnings": list(result.warnings),
        "isolation": result.isolation,
        "run": result.run,
    }
    if result.signal is not None:
        document["signal"] = result.signal
    document |= {f"{stream}_ref": ref for stream, ref in result.refs.items()}
    if result.left_out:
        document["left_out"] = list(result.left_out)
    if result.missing is not None:
        document["missing_dependency"] = result.missing
    if result.dependencies:
        document["dependencies"] = list(result.dependencies)
    return document


def _render_file(file: OutputFile) -> dict[str, Any]:
    rendered = {
        "name": file.name,
        "ref": file.ref,
        "mime_type": file.mime_type,
        "size_bytes": file.size_bytes,
        "truncated": file.truncated,
    }
    return rendered if file.content is None else {**rendered, "content": file.content}


def _render_staged(staged: Staged) -> dict[str, Any]:
    return {
        "from": staged.source,
        "name": staged.to,
        "ref": f"workspace://{staged.to}",
        "size_bytes": staged.size_bytes,
        "files": staged.files,
    }


def _wanted(args: RunArguments) -> WantedOutputs:
    """Wanted outputs. `output_files` wins over `outputs`, as in the source documents."""
    inline = not args.omit_inline_content
    if args.output_files or args.outputs is None:
        return WantedOutputs(
            patterns=tuple(args.output_files), inline=inline, save=args.save_as_artifacts, prefix=args.artifact_prefix
        )
    outputs = args.outputs
    return WantedOutputs(
        patterns=tuple(outputs.globs),
        inline=outputs.inline and inline,
        save=outputs.save or args.save_as_artifacts,
        prefix=outputs.name_template or args.artifact_prefix,
        limits=outputs.limits,
    )
