"""Functions that install, update, remove, verify and write packs. `prowess.packs` exports them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

from prowess._internal.portable_names import shown_name
from prowess.errors import FetchError, PackError, StoreError
from prowess.packs.bundle import WrittenPack, write_pack
from prowess.packs.compare import Comparison, compare, verify_file
from prowess.packs.contents import find_skills
from prowess.packs.lock import PackPlace, check_name, lock_missing, not_installed, read_lock, read_wanted
from prowess.packs.obtain import obtain
from prowess.packs.plan import Change, InstallPlan, open_planner
from prowess.packs.remove import rollback, uninstall
from prowess.packs.settings import PackOptions, load_settings
from prowess.packs.source import parse_source
from prowess.packs.values import ConfirmAddresses, Lock, Progress, StrPath, no_progress
from prowess.policy.trust import grant_skills, load_trust

__all__ = ["FetchError", "PackError", "install", "pack", "rollback", "uninstall", "update", "verify", "verify_file"]

Confirm = Callable[[InstallPlan], bool]  # True: carry it out


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Result of an installation or update. Without `applied` nothing was changed. `failed` are not updated."""

    place: PackPlace
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    failed: Mapping[str, PackError]
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
    *sources: StrPath,
    skills: str | Sequence[str] = (),
    name: str | None = None,
    frozen: bool = False,
    dry_run: bool = False,
    force: bool = False,
    confirm: Confirm = lambda plan: True,
    confirm_addresses: ConfirmAddresses = lambda addresses: True,
    progress: Progress = no_progress,
    **options: Unpack[PackOptions],
) -> Installed:
    """Installs skills from folders, archives, addresses, repositories, sites or Python packages.

    Without a source it brings the disk to the state of `skills.lock`; `frozen` refuses a lock that is not up to date.
    `skills` chooses some, `name` gives the only one another name. `force` replaces edited skills and keeps a backup.
    `confirm` sees the plan before anything is changed. `confirm_addresses` sees those that only skills.toml and
    skills.lock of an untrusted folder name, before they are contacted. A path object is always a path.
    """
    if frozen and (sources or force):
        message = "--frozen restores exactly what the lock says."
        raise PackError(message, code="usage", hint="Leave the other options out.")
    if not sources and (skills or name):
        raise PackError("Skills can be chosen and named for a SOURCE only.", code="usage", hint="Name the source.")
    settings = load_settings(progress, confirm_addresses, **options)
    with open_planner(settings, dry_run=dry_run) as planner:
        if sources:
            texts = [each if isinstance(each, str) else os.path.join(settings.places.cwd, each) for each in sources]
            plan = planner.install(texts, [skills] if isinstance(skills, str) else skills, name, force)
        else:
            plan = planner.restore(frozen, force)
        return _carry_out(plan, confirm, settings.places.state_dir, dry_run, named=bool(sources))


def update(
    *names: str,
    dry_run: bool = False,
    force: bool = False,
    confirm: Confirm = lambda plan: True,
    confirm_addresses: ConfirmAddresses = lambda addresses: True,
    progress: Progress = no_progress,
    **options: Unpack[PackOptions],
) -> Installed:
    """Brings installed skills, or those of these names, to their newest content. Without names, some may fail."""
    settings = load_settings(progress, confirm_addresses, **options)
    with open_planner(settings, dry_run=dry_run) as planner:
        return _carry_out(planner.update(names, force), confirm, settings.places.state_dir, dry_run)


def verify(*names: str, progress: Progress = no_progress, **options: Unpack[PackOptions]) -> Verified:
    """Compares installed skills, or those of these names, with the lock. Each file is hashed once."""
    place = load_settings(**options).place
    lock = read_lock(place)
    if not os.path.exists(place.lock) and read_wanted(place):
        raise lock_missing(place)
    for name in names:
        if name not in lock:
            raise not_installed(check_name(name, "verify"), lock)
    chosen = [name for name in lock if not names or name in names]
    found: dict[str, Comparison] = {}
    for number, name in enumerate(chosen):
        progress("verifying", number, len(chosen))
        found[name] = compare(place.folder(name), lock[name])
    progress("verifying", len(chosen), len(chosen))
    return Verified(place=place, skills=found, unknown=() if names else tuple(_find_unknown(place, lock)))


def pack(*folders: StrPath, output: StrPath, force: bool = False, cwd: StrPath = ".") -> WrittenPack:
    """Writes the skills of some folders into one reproducible archive with a manifest."""
    base = os.path.abspath(cwd)
    skills = []
    for folder in folders:
        source = parse_source(os.path.join(base, os.fspath(folder)), cwd=base, home=base)
        if source.kind != "folder":
            hint = "Name a skill, or a folder of skills. Unpack an archive first."
            raise PackError(f"{shown_name(source.text)} is not a folder.", code="pack-not-folder", hint=hint)
        skills += find_skills(obtain(source, os.path.join(base, "."), environ={}))
    return write_pack(skills, output, force=force, cwd=base)


def _carry_out(plan: InstallPlan, confirm: Confirm, state_dir: str, dry_run: bool, named: bool = False) -> Installed:
    """Changes the disk, and accepts what the person was shown. A skill that was there already may have come with a
    repository together with its lock, so it is accepted only if the person named its source."""
    if named:
        plan = plan.accepting(load_trust(state_dir).accepted_skills)
    if dry_run:
        for change in plan.changes:
            if change.skill.folder != plan.place.folder(change.name):  # its files are removed with the plan
                change.skill.examine()
    notes = plan.notes
    applied = not dry_run and confirm(plan)
    if applied:
        plan.apply()
        shown = [change for change in plan.pending if change.action != "record"]
        digests = {plan.place.folder(change.name): change.skill.digest for change in shown}
        try:
            grant_skills(state_dir, digests)
        except StoreError as error:
            notes += (f"Installed, but not accepted: {error.message}",)
    return Installed(place=plan.place, changes=plan.changes, notes=notes, failed=plan.failed, applied=applied)


def _find_unknown(place: PackPlace, lock: Lock) -> Iterator[str]:
    if os.path.isdir(place.root):
        for name in sorted(os.listdir(place.root)):
            if name not in lock and os.path.isfile(os.path.join(place.root, name, "SKILL.md")):
                yield name
