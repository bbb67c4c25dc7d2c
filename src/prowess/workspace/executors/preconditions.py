"""What comes before every program, whichever executor starts it: what cannot be run is refused, the run has folders
that nobody had before, and a HOME and a TMPDIR of its own."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager

from prowess.core.ports import Program
from prowess.errors import WorkspaceError
from prowess.workspace.executors.guards import leaving_cwd, refuse_changed, refuse_other_names
from prowess.workspace.session_folder import Place


def refuse_program(program: Program, *, staged: Container[str], place: Place) -> None:
    """Names of skill and run become paths; what the kernel would cut short at a NUL is not run at all."""
    refuse_other_names(program.run, "run")
    refuse_other_names(program.skill)
    if program.skill not in staged:
        raise WorkspaceError(
            f"The skill '{program.skill}' is not staged in this workspace.",
            op="run",
            code="not-staged",
            hint="Stage its tree first.",
        )
    if "\0" in program.cwd:
        raise leaving_cwd(program.cwd)
    if not program.argv or any("\0" in argument for argument in program.argv):
        raise WorkspaceError("A program needs a name, and no argument can hold a NUL.", op="run", code="bad-argv")
    for name, value in program.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise WorkspaceError(f"{name!r} cannot be a variable with that value.", op="run", code="bad-variable")
    refuse_changed(place)


def refuse_closed(closed: bool) -> None:
    if closed:
        raise WorkspaceError("This workspace was closed.", op="run", code="workspace-closed")


@contextmanager
def making_folders(run: str) -> Iterator[None]:
    """Around the making of a run's folders: whatever goes wrong there is said of that run."""
    try:
        yield
    except FileExistsError:
        raise WorkspaceError(
            f"There was a run '{run}' in this workspace before.",
            op="run",
            code="run-exists",
            hint="Every run has a name of its own.",
        ) from None
    except OSError as error:
        raise WorkspaceError(
            f"The folders of the run '{run}' could not be made: {(error.strerror or str(error)).lower()}.",
            op="run",
            code="workspace-dir",
            hint="Is there room on the disk?",
        ) from error


def with_own_home(given: Mapping[str, str], usual: Mapping[str, str], own: str) -> dict[str, str]:
    """HOME and TMPDIR that are those of the workspace's environment, or are not there, become the run's own; "" when
    the usual ones are that already, because each run has a box of its own."""
    changed = {name: own or usual[name] for name in ("HOME", "TMPDIR") if given.get(name, usual[name]) == usual[name]}
    return {**given, **changed}
