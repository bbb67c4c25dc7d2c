"""Functions that install, update, remove, verify and write packs. `prowess.packs` exports them.

from prowess import packs

packs.install("acme/skills@v1", skills=["pdf"])
assert packs.verify().same
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from prowess._internal.folder_swap import recover
from prowess.errors import FetchError, PackError, StoreError
from prowess.packs.bundle import WrittenPack, write_pack
from prowess.packs.compare import Comparison, compare
from prowess.packs.contents import find_skills
from prowess.packs.lock import PackPlace, check_name, find_place, read_lock
from prowess.packs.obtain import obtain
from prowess.packs.plan import Change, InstallPlan, PackSettings, not_installed, open_planner
from prowess.packs.remove import Removed, RolledBack
from prowess.packs.remove import rollback as roll_back
from prowess.packs.remove import uninstall as remove
from prowess.packs.source import parse_source
from prowess.packs.values import Progress, no_progress
from prowess.policy.trust import grant_skills, load_trust
from prowess.runtime.policy_files import find_denied_digests
from prowess.runtime.runtime import open_runtime

__all__ = ["FetchError", "PackError", "install", "pack", "rollback", "uninstall", "update", "verify"]

Confirm = Callable[[InstallPlan], bool]  # True: carry it out


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Result of an installation or update. Without `applied` nothing was changed."""

    place: PackPlace
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Installed skills compared with the lock. `unknown` are folders with a SKILL.md that no lock names."""

    place: PackPlace
    skills: Mapping[str, Comparison]
    unknown: tuple[str, ...]

    @property
    def same(self) -> bool:
        return all(comparison.same for comparison in self.skills.values())


def install(
    *sources: str,
    to: str = "project",
    skills: Sequence[str] = (),
    name: str | None = None,
    frozen: bool = False,
    dry_run: bool = False,
    force: bool = False,
    confirm: Confirm = lambda plan: True,
    progress: Progress = no_progress,
    cwd: str | os.PathLike[str] = ".",
    environ: Mapping[str, str] | None = None,
) -> Installed:
    """Installs skills from folders, archives, addresses, repositories, sites or Python packages.

    Without a source it brings the disk to the state of `skills.lock`; `frozen` refuses a lock that is not up to date.
    `to` is `project`, `user` or a folder. `skills` chooses some, `name` gives the only one another name. `force`
    replaces edited skills and keeps a backup. `confirm` sees the plan before anything is changed.
    """
    if frozen and (sources or force):
        raise PackError(
            "--frozen restores exactly what the lock says.", code="usage", hint="Leave the other options out."
        )
    if not sources and (skills or name):
        raise PackError("Skills can be chosen and named for a SOURCE only.", code="usage", hint="Name the source.")
    with (
        _settings(to, cwd, environ, progress) as (settings, state_dir),
        open_planner(settings, dry_run=dry_run) as planner,
    ):
        plan = planner.install(sources, skills, name, force) if sources else planner.restore(frozen, force)
        return _carry_out(plan, confirm, state_dir, dry_run, named=bool(sources))


def update(
    *names: str,
    to: str = "project",
    dry_run: bool = False,
    force: bool = False,
    confirm: Confirm = lambda plan: True,
    progress: Progress = no_progress,
    cwd: str | os.PathLike[str] = ".",
    environ: Mapping[str, str] | None = None,
) -> Installed:
    """Brings installed skills, or those of these names, to the newest content of their sources."""
    with (
        _settings(to, cwd, environ, progress) as (settings, state_dir),
        open_planner(settings, dry_run=dry_run) as planner,
    ):
        return _carry_out(planner.update(names, force), confirm, state_dir, dry_run)


def uninstall(
    *names: str,
    to: str = "project",
    purge: bool = False,
    cwd: str | os.PathLike[str] = ".",
    environ: Mapping[str, str] | None = None,
) -> list[Removed]:
    """Removes installed skills, all or none. Keeps a backup unless `purge`."""
    with _settings(to, cwd, environ) as (settings, state_dir):
        removed = remove(settings.place, names, purge=purge)
        grant_skills(state_dir, {each.path: "" for each in removed})
        return removed


def rollback(
    name: str, *, to: str = "project", cwd: str | os.PathLike[str] = ".", environ: Mapping[str, str] | None = None
) -> RolledBack:
    """Returns a skill to the version before. A second rollback returns to the one of now."""
    with _settings(to, cwd, environ) as (settings, state_dir):
        done = roll_back(settings.place, name, denied=settings.denied)
        # A backup may have come with a repository: only what a person accepted here before is accepted again.
        if done.digest is not None and load_trust(state_dir).accepted_once(done.path, done.digest):
            grant_skills(state_dir, {done.path: done.digest})
        return done


def verify(
    *names: str,
    to: str = "project",
    progress: Progress = no_progress,
    cwd: str | os.PathLike[str] = ".",
    environ: Mapping[str, str] | None = None,
) -> Verified:
    """Compares installed skills, or those of these names, with the lock. Each file is hashed once."""
    with _settings(to, cwd, environ) as (settings, _):
        place, lock = settings.place, read_lock(settings.place)
        for name in names:
            if name not in lock:
                raise not_installed(check_name(name, "verify"), lock)
        chosen = [name for name in lock if not names or name in names]
        found = {}
        for number, name in enumerate(chosen):
            progress("verifying", number, len(chosen))
            found[name] = compare(place.folder(name), lock[name])
        progress("verifying", len(chosen), len(chosen))
        return Verified(place=place, skills=found, unknown=() if names else tuple(_find_unknown(place, lock)))


def pack(
    *folders: str | os.PathLike[str],
    output: str | os.PathLike[str],
    force: bool = False,
    cwd: str | os.PathLike[str] = ".",
) -> WrittenPack:
    """Writes the skills of some folders into one reproducible archive with a manifest."""
    base = os.path.abspath(cwd)
    skills = []
    for folder in folders:
        source = parse_source(os.path.join(base, os.fspath(folder)), cwd=base, home=base)
        skills += find_skills(obtain(source, os.path.join(base, "."), environ={}))
    return write_pack(skills, os.path.join(base, os.fspath(output)), force=force)


def _carry_out(plan: InstallPlan, confirm: Confirm, state_dir: str, dry_run: bool, named: bool = False) -> Installed:
    """Changes the disk, and accepts what the person was shown. A skill that was there already may have come with a
    repository together with its lock, so it is accepted only if the person named its source."""
    if named:
        plan = plan.accepting(load_trust(state_dir).accepted_skills)
    if dry_run:
        for change in plan.changes:  # while the files are there
            change.skill.examine()
    applied, notes = not dry_run and confirm(plan), plan.notes
    if applied:
        plan.apply()
        try:
            grant_skills(state_dir, {plan.place.folder(change.name): change.skill.digest for change in plan.pending})
        except StoreError as error:
            notes += (f"Installed, but not accepted: {error.message}",)
    return Installed(place=plan.place, changes=plan.changes, notes=notes, applied=applied)


@contextmanager
def _settings(
    to: str, cwd: str | os.PathLike[str], environ: Mapping[str, str] | None, progress: Progress = no_progress
) -> Iterator[tuple[PackSettings, str]]:
    environ = os.environ if environ is None else environ
    with open_runtime(cwd=os.path.abspath(cwd), environ=environ) as runtime:
        place = find_place(to, runtime.places)
        recover(place.root)
        settings = PackSettings(
            place=place, places=runtime.places, environ=environ, denied=find_denied_digests(runtime), progress=progress
        )
        yield settings, runtime.places.state_dir


def _find_unknown(place: PackPlace, lock: Mapping[str, object]) -> Iterator[str]:
    if os.path.isdir(place.root):
        for name in sorted(os.listdir(place.root)):
            if name not in lock and os.path.isfile(os.path.join(place.root, name, "SKILL.md")):
                yield name
