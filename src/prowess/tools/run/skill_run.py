"""skill_run: runs a command or script of a loaded skill in the workspace. A failed run has a result, too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess.core.ports import CallGrant, CapabilityRequest, Workspace
from prowess.core.values import Outcome
from prowess.errors import SkillError, ToolRetry, WorkspaceError
from prowess.tools.base import InvalidCall
from prowess.tools.builtin import late_spec
from prowess.tools.plain_arguments import SKILL_NAMES, RunRequest, read_run
from prowess.tools.run import packages as installed
from prowess.tools.run.requirements import check_present
from prowess.tools.run.run_text import render_run
from prowess.tools.session_work import LoadedSkill, SessionWork, WorkTool
from prowess.workspace.job import DEFAULT_TIMEOUT_S, Job, JobResult, WantedOutputs, run_job
from prowess.workspace.outputs import OutputFile, primary_output
from prowess.workspace.scripts.interpreter import Launch, plan_script

if TYPE_CHECKING:
    from prowess.workspace.inputs import Staged

DESCRIPTION = "Run a command or script that a skill asks for, in its isolated workspace. Write results to out/."


class SkillRun(WorkTool):
    spec = late_spec("skill_run", DESCRIPTION, "RunArguments")

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Normal form of the arguments. A call without a skill gets the only one in use."""
        named = with_skill(args, self._work)
        try:
            return read_run(named)
        except InvalidCall as error:
            scripts = _list_scripts(self._work, named.get("skill"))
            if not scripts or _NOTHING_TO_RUN not in error.why or "command" in named or "script" in named:
                raise
            raise ToolRetry(f"{error.why} {scripts}") from None

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        """A request for the packages of the run, if they are not installed yet."""
        return await find_needs(self._work, read_run(args).parsed)

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        work = self._work
        wanted = read_run(args).parsed
        desk = await work.desk(within)
        with ExitStack() as held:
            job = await plan_job(work, wanted, within, desk.workspace, held)
            result = await run_job(job, desk)
            work.last = result
        work.granted.clear()
        outcome = render_outcome(result)
        scripts = _list_scripts(work, wanted.skill)
        if scripts and result.missing is not None and result.missing["kind"] == "program":
            return replace(outcome, hint=f"{scripts} {outcome.hint}")
        return outcome


_NOTHING_TO_RUN = "say either command"  # in the fault that RunArguments finds
_MOST_SCRIPTS = 5
_SCRIPT = re.compile(r"scripts/[\w.-]{1,60}")


def _list_scripts(work: SessionWork, skill: object) -> str:
    """Lists scripts of a loaded skill, for a model that made up a program or named none."""
    try:
        files = work.get(str(skill)).skill.files
    except SkillError:
        return ""
    scripts = [file.path for file in files if _SCRIPT.fullmatch(file.path)]
    return f"Its scripts: {', '.join(scripts[:_MOST_SCRIPTS])}." if scripts else ""


def with_skill(args: Mapping[str, Any], work: SessionWork) -> Mapping[str, Any]:
    """Adds the skill to a call without one, such as `Bash {command}`, if exactly one skill is in use."""
    for name in ("skill", *SKILL_NAMES):
        if args.get(name):
            return args
    if len(work.loaded) != 1:
        return args
    (only,) = work.loaded
    return {**args, "skill": only}


class PlannedRun(NamedTuple):
    """Run of a skill: its arguments, and the launch of its script. It is planned once for a call."""

    loaded: LoadedSkill
    args: RunRequest
    launch: Launch | None


def plan_run(work: SessionWork, args: RunRequest, workspace: Workspace) -> PlannedRun:
    loaded = work.get(args.skill)
    planned = args.planned
    if isinstance(planned, PlannedRun) and planned.loaded is loaded:
        return planned
    planned = _plan_script_of_command(args, loaded, workspace)
    if planned is None:
        launch = None
        if args.script is not None:
            launch = _plan(loaded, args, workspace)
        planned = PlannedRun(loaded, args, launch)
    args.planned = planned
    return planned


def _plan_script_of_command(args: RunRequest, loaded: LoadedSkill, workspace: Workspace) -> PlannedRun | None:
    """Turns the command `python3 scripts/x.py a b` into that script, so that it gets its declared packages. A command
    with shell syntax stays a command."""
    if args.command is None or args.cwd is not None or _SHELL.search(args.command):
        return None
    words = args.command.split()
    if len(words) < 2:
        return None
    python, path, *rest = words
    if python not in ("python3", "python") or not path.endswith(".py"):
        return None
    script = replace(args, command=None, script=path, args=rest)
    try:
        launch = _plan(loaded, script, workspace, python=python)
    except WorkspaceError:
        return None
    if launch.block is None:
        return None
    if not workspace.python:
        launch = _plan(loaded, script, workspace)
    return PlannedRun(loaded, script, launch)


_SHELL = re.compile(r"[^\w\s./:=,@%+-]")


async def find_needs(work: SessionWork, args: RunRequest) -> Sequence[CapabilityRequest]:
    """Returns a request for installing packages that were not installed for this skill before."""
    environments = work.backend.environments
    if environments is None:
        work.get(args.skill)
        return ()
    workspace, _ = await work.workspace()
    loaded, args, launch = plan_run(work, args, workspace)
    block = launch.block if launch else None
    packages = installed.find_packages(environments, work, loaded, block, args.install)
    if packages is None:
        return ()
    wanted = await installed.wanted_for(packages, work, loaded, workspace)
    if installed.find(environments, wanted) is not None:
        work.to_install.discard(wanted.what)
        return ()
    work.to_install.add(wanted.what)
    given: dict[str, Any] = {"skill": args.skill}
    if launch is not None:
        given["script"] = launch.script
    given["dependencies"] = list(wanted.block.dependencies)
    given["digest"] = wanted.block.digest
    given["by"] = packages.by
    request = CapabilityRequest(capability="install_dependencies", args=given)
    return [request]


async def plan_job(
    work: SessionWork,
    args: RunRequest,
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
    if launch is not None:
        root = workspace.layout.seen(f"skills/{loaded.folder}")
        argv = launch.seen_from(root, python=started.python)
    elif judged is not None:
        argv = tuple(map(str, judged))
    else:
        argv = ("bash", "-c", args.command or "")
    env = {**started.env, **within.env}
    stdin = None
    if args.stdin is not None:
        stdin = args.stdin.encode("utf-8", "surrogateescape")
    return Job(
        skill=loaded.skill.name,
        folder=loaded.folder,
        tree=loaded.tree,
        argv=argv,
        cwd=args.cwd,
        env=env,
        system_path_only=judged is not None,
        stdin=stdin,
        timeout_s=args.timeout or timeout_s,
        inputs=args.inputs,
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
    args: RunRequest,
    launch: Launch | None,
    workspace: Workspace,
    held: ExitStack,
    *,
    by_person: bool,
) -> Equipment:
    """Prepares the packages of a run. A script that declares packages gets its own environment. Any other run sees the
    packages that are named for its skill before those of its interpreter."""
    environments = work.backend.environments
    digest = loaded.tree.digest
    block = None
    env: dict[str, str] = {}
    notes: list[str] = []
    if launch is not None:
        block = launch.block
        env |= launch.env
        notes += launch.notes
    if environments is None:
        return Equipment(env, notes=tuple(notes))
    packages = installed.find_packages(environments, work, loaded, block, args.install)
    if block is not None and not block.dependencies:
        await installed.check_python(block, loaded, workspace)
    if packages is None:
        failed = work.not_installed.get(digest)
        if failed:
            notes.append(f"An installation for this skill failed before: {failed}")
        return Equipment(env, notes=tuple(notes))
    wanted = await installed.wanted_for(packages, work, loaded, workspace)
    granted = wanted.what in work.to_install
    try:
        built = await installed.hold(environments, wanted, held, granted=granted, by_person=by_person)
    except WorkspaceError as error:
        listed = ", ".join(wanted.block.dependencies)
        why = f"{listed}. {error.hint or ''}"
        work.not_installed[digest] = why[:500]
        raise
    work.not_installed.pop(digest, None)
    if packages.added:
        work.added[digest] = packages.added
    env |= installed.environment_of(built, declared=packages.declared)
    python = built.python if packages.declared else ""
    if built.note:
        notes.append(built.note)
    return Equipment(env, python, built.path, packages.named, built.resolved, tuple(notes))


def _judged(launch: Launch, args: RunRequest, judged: Sequence[str] | None) -> Launch:
    """Uses the interpreter that policy allowed for the script, if the decision names one."""
    if judged is None:
        return launch
    before_script = len(judged) - len(args.args) - 1
    if before_script <= 0:
        return launch
    way = tuple(judged[:before_script])
    return launch._replace(way=way)


def _plan(loaded: LoadedSkill, args: RunRequest, workspace: Workspace, *, python: str = "") -> Launch:
    """Plans the launch of a script. `python` is used where the workspace has none."""
    folder = loaded.tree.path
    name = loaded.skill.name
    script = args.script or ""
    python = workspace.python or python
    return plan_script(folder, script, args.args, python=python, skill=name)


def render_outcome(result: JobResult) -> Outcome:
    """Renders the result. For a failed command, too, the model sees its output and exit code."""
    data = render_result(result)
    content = render_run(result)
    if result.ok:
        return Outcome(status="ok", content=content, data=data)
    if result.missing is not None:
        failure = "missing-dependency"
        hint = str(result.missing.get("hint") or "")
    elif result.timed_out:
        failure = "timeout"
        hint = "Set a longer timeout, or do less."
    else:
        failure = "command-failed"
        hint = "Fix the call or its inputs."
    return Outcome(status="failed", content=content, code=failure, hint=hint, data=data)


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
        "primary_output": None,
    }
    if primary is not None:
        document["primary_output"] = _render_file(primary)
    document["output_files"] = [_render_file(file) for file in result.files]
    document["artifact_files"] = [{"name": saved.name, "version": saved.version} for saved in result.saved]
    document["staged_inputs"] = [_render_staged(staged) for staged in result.staged]
    document["warnings"] = list(result.warnings)
    document["isolation"] = result.isolation
    document["run"] = result.run
    if result.signal is not None:
        document["signal"] = result.signal
    for stream, ref in result.refs.items():
        document[f"{stream}_ref"] = ref
    if result.left_out:
        document["left_out"] = list(result.left_out)
    if result.missing is not None:
        document["missing_dependency"] = result.missing
    if result.dependencies:
        document["dependencies"] = list(result.dependencies)
    return document


def _render_file(file: OutputFile) -> dict[str, Any]:
    rendered: dict[str, Any] = {"name": file.name, "ref": file.ref, "mime_type": file.mime_type}
    rendered["size_bytes"] = file.size_bytes
    rendered["truncated"] = file.truncated
    if file.content is not None:
        rendered["content"] = file.content
    return rendered


def _render_staged(staged: Staged) -> dict[str, Any]:
    return {
        "from": staged.source,
        "name": staged.to,
        "ref": f"workspace://{staged.to}",
        "size_bytes": staged.size_bytes,
        "files": staged.files,
    }


def _wanted(args: RunRequest) -> WantedOutputs:
    """Wanted outputs. `output_files` wins over `outputs`, as in the source documents."""
    inline = not args.omit_inline_content
    save = args.save_as_artifacts
    prefix = args.artifact_prefix
    outputs = args.outputs
    if args.output_files or outputs is None:
        patterns = tuple(args.output_files)
        return WantedOutputs(patterns=patterns, inline=inline, save=save, prefix=prefix)
    patterns = tuple(outputs.globs)
    inline = outputs.inline and inline
    save = outputs.save or save
    prefix = outputs.name_template or prefix
    return WantedOutputs(patterns=patterns, inline=inline, save=save, prefix=prefix, limits=outputs.limits)
