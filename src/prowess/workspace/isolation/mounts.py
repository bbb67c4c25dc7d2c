"""Files that a program sees in its sandbox: the workspace, and of the host only the system.

    /workspace/skills/<skill>          the published tree, read-only; other skills are not visible
    …/out …/work …/inputs …/.venv      lead to the workspace, writable
    /workspace/work  out  runs/<run>   writable; the rest of runs/ is read-only

Bubblewrap mounts all this and copies nothing. Landlock cannot show a file under another path: the script sees the host
path of the workspace, and the skill is the session's own copy; see executors/private_copies.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from prowess._internal.paths import is_inside
from prowess.core.ports import Program
from prowess.errors import WorkspaceError, in_one_line
from prowess.workspace.dirfd import open_folder
from prowess.workspace.executors.isolation_report import system_environment
from prowess.workspace.executors.preconditions import check_reachable, leaving_cwd, missing_cwd
from prowess.workspace.executors.workspace import Ready
from prowess.workspace.isolation.bwrap import SYSTEM_FILES, TMP, Bind, Box, boxed, has_run, system_of_host
from prowess.workspace.isolation.landlock import walled
from prowess.workspace.isolation.path_view import NotSeen, View
from prowess.workspace.isolation.selftest import Proof
from prowess.workspace.layout import LEADS, Layout
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.command import Command, Ended, NotStarted, ProcessLimits
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree

if TYPE_CHECKING:
    from prowess.workspace.executors.private_copies import Here
    from prowess.workspace.network.proxy import Proxy, RunProxy

INSIDE = "/workspace"
RESERVED = (INSIDE, "/proc", "/dev", TMP, "/usr", "/etc")
_SHOWN = (stat.S_IFDIR, stat.S_IFREG)
# With Landlock a system file is refused, not absent, and git stops at a config file that it may not read.
WALLED_ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1"}
UNBOUNDED_TMP = 1 << 40  # stands for no limit; the memory of the machine still limits it


class Boxed:
    """Enclosure with bubblewrap. See executors.workspace.Enclosure."""

    own_tmp = False

    def __init__(
        self,
        place: Place,
        *,
        proof: Proof,
        python: str,
        folders: Sequence[str],
        limits: RunLimits,
        rlimits: ProcessLimits,
        prlimit: str | None,
        uid: int | None,
        proxy: Proxy | None = None,
    ) -> None:
        self.layout = Layout(place.root, INSIDE)
        self.python = python
        self.environment: Mapping[str, str] = system_environment(self.python, TMP)
        self._place = place
        self._proof = proof
        self._uid = uid
        self._proxy = proxy
        self._rlimits = rlimits
        system, links = system_of_host()
        self._box = Box(
            system=system,
            links=links,
            tmp_bytes=limits.tmp or UNBOUNDED_TMP,
            processes=limits.processes,
            prlimit=prlimit,
        )
        shown = filter(os.path.exists, (*SYSTEM_FILES, *folders))
        self._system = (*system, *map(_same, shown))
        self._interpreter = tuple(map(_same, folders))
        self._skills: dict[str, tuple[str, str]] = {}  # name -> (its tree, its .venv)

    async def stage(self, tree: Tree, name: str) -> None:
        self._stage(tree, name)  # copies nothing, so needs no thread

    def _stage(self, tree: Tree, name: str) -> None:
        check_reachable(tree.path, self._uid)
        if not os.path.isdir(tree.path):
            message = f"The tree of the skill '{name}' is not at {tree.path} any more."
            raise WorkspaceError(message, op="stage", code="stage-failed", hint="Load the skill again.")
        venv = self._place.make_venv(name, tree.digest)
        self._skills[name] = (tree.path, venv)

    @asynccontextmanager
    async def enclosed(self, program: Program, tmp: str) -> AsyncIterator[Ready]:
        async with AsyncExitStack() as stack:
            binds = (*self._interpreter, *self._binds(program))
            view = View((*self._system, *binds), self._box.links)
            cwd = _cwd(view, self.layout, program)
            argv = self._argv(view, program, cwd)
            env = program.env
            link = None
            fds = None
            if self._proxy is not None:
                link = await stack.enter_async_context(self._proxy.session())
                argv = link.wrap(argv, self.python)
                env = {**link.env, **env}
                fds = link.fds
            status = os.memfd_create("status", os.MFD_CLOEXEC)
            stack.callback(os.close, status)
            box = self._box._replace(binds=binds, chdir=cwd, env=env, tty=program.tty)
            command = boxed(
                self._proof.program or "",
                box,
                argv,
                uid=self._uid,
                gid=self._place.gid,
                limits=self._rlimits,
                stdin=program.stdin,
                timeout_s=program.timeout_s,
                status_fd=status,
                fds=fds,
            )
            try:
                yield Ready(command=command, check=_checker(program, status, link))
            except NotStarted as error:  # bubblewrap itself did not start; the program was checked before
                if error.errno == errno.E2BIG:
                    raise _not_started(program, error.errno) from None
                raise _no_box(in_one_line(error), retryable=error.retryable) from error

    def _binds(self, program: Program) -> list[Bind]:
        root = self._place.root
        skill = self.layout.seen(f"skills/{program.skill}")
        tree, venv = self._skills[program.skill]
        _keep_inputs(self._place)
        binds = [_same(path) for path in checked_readable(program.readable, self._uid)]
        binds.append(Bind(source=f"{root}/runs", target=self.layout.seen("runs")))
        # `inputs` gets its own mount: a script cannot replace a mount by a link, which the next sandbox would mount.
        for rel in (f"runs/{program.run}", "work", "work/inputs", "out"):
            binds.append(Bind(source=f"{root}/{rel}", target=self.layout.seen(rel), write=True))
        binds.append(Bind(source=tree, target=skill))
        for name, leads_to in LEADS.items():
            binds.append(Bind(source=f"{root}/{leads_to}", target=f"{skill}/{name}", write=True))
        binds.append(Bind(source=venv, target=f"{skill}/.venv", write=True))
        return binds

    def _argv(self, view: View, program: Program, cwd: str) -> list[str]:
        """Returns the arguments after checking that the program can be executed in the sandbox."""
        name, *arguments = program.argv
        try:
            path = view.find_program(name, program.env, cwd=cwd, uid=self._proof.uid)
        except NotSeen as error:
            if error.errno == 0:
                return [name, *arguments]
            raise _not_started(program, error.errno) from None
        # In the sandbox, relative folders of PATH would be searched as well. The full path avoids that.
        folders = program.env.get("PATH", "").split(":")
        if all(folder.startswith("/") for folder in folders):
            return [name, *arguments]
        return [path, *arguments]


def walled_in(
    program: Program, here: Here, *, folders: Sequence[str], uid: int | None, gid: int | None, limits: ProcessLimits
) -> Command:
    """Returns the command with Landlock around it. See executors.private_copies.Unbound."""
    host = here.layout.host
    read = [here.skill, host("runs"), *folders]
    read += checked_readable(program.readable, uid)
    write = [host("work"), host("out"), host(f"runs/{program.run}"), *here.own, here.tmp]
    return walled(
        program.argv,
        cwd=here.cwd,
        env=program.env,
        read=read,
        write=write,
        uid=uid,
        gid=gid,
        limits=limits,
        stdin=program.stdin,
        timeout_s=program.timeout_s,
        tty=program.tty,
    )


def checked_readable(paths: Sequence[str], uid: int | None) -> list[str]:
    """Returns host folders that can be shown under their own path. Raises for a link, and for a path that would hide a
    part of the sandbox."""
    for path in paths:
        plain = os.path.isabs(path) and os.path.normpath(path) == path and stat.S_IFMT(_mode(path)) in _SHOWN
        if not plain or _hides(path) or _hides(os.path.realpath(path)):
            message = f"'{path}' cannot be made readable to a script."
            hint = "Name an existing folder by its absolute path, and not one that holds the whole system."
            raise WorkspaceError(message, op="run", code="not-readable", hint=hint)
        check_reachable(path, uid)
    return list(paths)


def _hides(path: str) -> bool:
    """True when a mount at this path would cover a part of the sandbox, or would be inside a part that it makes."""
    if any(is_inside(path, reserved) for reserved in RESERVED):
        return True
    return any(is_inside(made, path) for made in (INSIDE, "/proc", "/dev"))


def _cwd(view: View, layout: Layout, program: Program) -> str:
    """Returns the folder to start in, as the sandbox sees it, without links."""
    try:
        seen = view.find(layout.seen(program.cwd))
    except NotSeen as error:
        if error.errno:
            raise missing_cwd(program.cwd) from None
        raise leaving_cwd(program.cwd) from None
    if not is_inside(layout.inside, seen.path):
        raise leaving_cwd(program.cwd)
    if not stat.S_ISDIR(seen.status.st_mode):
        raise missing_cwd(program.cwd)
    return seen.path


def _keep_inputs(place: Place) -> None:
    """Creates work/inputs if it is missing, because it is mounted separately. Raises PathEscape when it is a link."""
    if stat.S_ISDIR(_mode(os.path.join(place.root, "work", "inputs"))):
        return
    with open_folder(place.root, "work/inputs", make=True, uid=place.uid):
        pass


def _mode(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _checker(program: Program, status: int, link: RunProxy | None) -> Callable[[Ended, bytes], None]:
    def check(ended: Ended, said: bytes) -> None:
        exited = ended.why == "exit" and ended.exit_code is not None
        if exited and not has_run(os.pread(status, 1 << 16, 0)):
            if os.strerror(errno.E2BIG).encode() in said:  # known only at the last step
                raise _not_started(program, errno.E2BIG)
            why = said.decode("utf-8", "replace").strip()
            raise _no_box(why or f"it ended with {ended.exit_code}")
        if link is not None:
            link.check(ended)

    return check


def _not_started(program: Program, number: int) -> NotStarted:
    command = Command(argv=program.argv, cwd=program.cwd, env={})
    return NotStarted(command, step="exec", number=number, text=os.strerror(number))


def _no_box(why: str, *, retryable: bool = False) -> WorkspaceError:
    message = f"The sandbox for the program could not be made: {why}"
    hint = "See what works: prowess doctor --workspace."
    return WorkspaceError(message, op="run", code="box-failed", retryable=retryable, hint=hint)


def _same(path: str) -> Bind:
    return Bind(source=path, target=path)
