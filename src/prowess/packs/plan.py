"""Plans an installation, an update or a restore, and carries it out: all skills of it, or none. Everything is obtained,
read and checked first, so a person sees the whole plan before anything changes. What was there is kept as a backup."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from prowess._internal.files import copy_regular, now
from prowess._internal.folder_swap import STATE, FolderMove, hold, stage, swap_errors
from prowess._internal.text import describe_letters, look_of, name_some
from prowess.core.findings import visible
from prowess.errors import PackDenied, PackError, PackMismatch
from prowess.packs.contents import find_skills
from prowess.packs.disk import find_digest, make_room, write
from prowess.packs.lock import PackPlace, check_name, edit_wanted, lock_missing, not_installed, read_lock, read_wanted
from prowess.packs.obtain import obtain
from prowess.packs.settings import PackSettings
from prowess.packs.source import is_remote, parse_source
from prowess.packs.values import Lock, LockedSkill, Obtained, Origins, PackedSkill
from prowess.policy.trust import load_trust
from prowess.runtime.config import ConfigPlaces
from prowess.runtime.services.capabilities import read_capabilities
from prowess.skills.file_list import FileDifference, digest_of, file_differences, find_files
from prowess.skills.metadata import name_notes
from prowess.skills.skill import SkillFile

# The last three leave the files as they are. accept: models may use them now; record: only lock or skills.toml change.
Action = Literal["install", "update", "restore", "accept", "record", "keep"]
_Found = tuple[PackedSkill, Obtained]
_ORIGIN = ("source", "kind", "skill", "commit", "sha256")  # what a restored skill must have as the lock says


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Planned change of one skill. `edits` are local changes that would be lost without a backup."""

    name: str
    action: Action
    skill: PackedSkill
    locked: LockedSkill
    before: LockedSkill | None = None
    edits: tuple[FileDifference, ...] = ()
    files: tuple[FileDifference, ...] = ()  # new content against the content that is installed
    is_ours: bool = False  # the files of `skill` may be moved
    found: str | None = None  # digest of what is there now


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """Skills that will be installed, updated or restored, and those that are as they should be."""

    place: PackPlace
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()  # what the sources left out
    failed: Mapping[str, PackError] = field(default_factory=dict)  # skills that are not updated
    staging: str = ""  # prepared folder in the root; "" for a plan that is only shown

    @property
    def pending(self) -> tuple[Change, ...]:
        """Changes that a person decides about."""
        return tuple(change for change in self.changes if change.action != "keep")

    @property
    def moved(self) -> tuple[Change, ...]:
        """Changes that write files."""
        return tuple(change for change in self.pending if change.action not in ("accept", "record"))

    def accepting(self, accepted: Mapping[str, str]) -> InstallPlan:
        """Returns the plan with a change for each skill that is there already and that nobody accepted."""
        changes = []
        for change in self.changes:
            is_there = change.action in ("keep", "record")
            if is_there and accepted.get(self.place.folder(change.name)) != change.skill.digest:
                change = replace(change, action="accept", files=tuple(file_differences((), change.skill.files)))
            changes.append(change)
        return replace(self, changes=tuple(changes))

    def apply(self) -> None:
        """Carries the plan out. After an error nothing is changed."""
        if all(change.action == "keep" and change.before for change in self.changes):
            return  # without reading the lock again
        with swap_errors(self.place.root), hold(self.place.root):
            lock = read_lock(self.place)
            changed = [change for change in self.changes if change.action != "keep" or change.name not in lock]
            after = lock | {change.name: change.locked for change in changed}
            wanted = {change.name: change.locked.wanted for change in changed}
            if not self.moved and after == lock and edit_wanted(self.place, wanted) is None:
                return
            for change in self.moved:
                self._check_still(change, lock.get(change.name))
            users = Counter(change.skill.folder for change in self.moved)
            moves = [self._materialise(change, users[change.skill.folder] == 1) for change in self.moved]
            write(self.place, moves, after, wanted)

    def _check_still(self, change: Change, locked: LockedSkill | None) -> None:
        """Refuses a plan that is out of date: somebody installed or edited the skill since it was made."""
        if locked != change.before or find_digest(self.place.folder(change.name)) != change.found:
            message = f"'{change.name}' was changed while it was being installed."
            raise PackError(message, code="target-changed", hint="Nothing was changed by this command. Run it again.")

    def _materialise(self, change: Change, only_user: bool) -> FolderMove:
        """Puts the files of a skill into the staging folder. A file that changed since it was read is refused."""
        skill = change.skill
        new = f"{self.staging}/skills/{change.name}"
        folder = os.path.join(self.place.root, STATE, new)
        if change.is_ours and only_user and not skill.left_out:
            # Nobody else can write there, and it has nothing but the files that were read.
            os.makedirs(os.path.dirname(folder), exist_ok=True)
            os.rename(skill.folder, folder)
        else:
            for file in skill.files:
                source = os.path.join(skill.folder, file.path)
                target = os.path.join(folder, file.path)
                if copy_regular(source, target, executable=file.executable) != file.sha256:
                    message = f"{visible(source)} changed while it was being installed."
                    hint = "Install it again when nothing writes to it."
                    raise PackMismatch(message, code="source-changed", hint=hint)
        return FolderMove(change.name, new, make_room(self.place, change.name, change.before, self.staging))


@contextlib.contextmanager
def open_planner(settings: PackSettings, *, dry_run: bool = False) -> Iterator[Planner]:
    """Yields a planner that prepares content beside the target, or elsewhere when nothing may be written."""
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="prowess-install-") as folder:
            yield Planner(settings, "", folder)
        return
    root = settings.place.root
    with contextlib.ExitStack() as stack:
        with swap_errors(root):
            name = stack.enter_context(stage(root))
        yield Planner(settings, name, os.path.join(root, STATE, name))


def _relative_to(base: str, text: str, places: ConfigPlaces) -> str:
    """Returns a source that was named in the working folder as the files of the place name it."""
    source = parse_source(text, cwd=places.cwd, home=places.home)
    if not os.path.isabs(source.location):
        return text  # an address may have credentials, which the text of a source has not
    named = source.text
    if named == "." or named.startswith("./"):
        named = os.path.join(places.cwd, named)
    return parse_source(named, cwd=base, home=places.home).text


class Planner:
    """Obtains sources into one staging folder, and plans the changes of their skills."""

    def __init__(self, settings: PackSettings, staging: str, folder: str) -> None:
        self._settings = settings
        self._place = settings.place
        self._staging = staging
        self._folder = folder
        self._lock = read_lock(settings.place)
        self._wanted = read_wanted(settings.place)
        self._notes = list(settings.notes)
        self._failed: dict[str, PackError] = {}
        self._sources = 0

    def install(self, sources: Sequence[str], skills: Sequence[str], rename: str | None, force: bool) -> InstallPlan:
        """Plans the skills of some sources. `rename` gives the only skill another name."""
        texts = [_relative_to(self._place.base, text, self._settings.places) for text in sources]
        found = [each for text in texts for each in self._obtain(text, skills, None, None)]
        if rename is not None and any(note.code != "name-not-portable" for note in name_notes(rename)):
            hint = "Use lower-case letters, digits and single hyphens."
            raise PackError(f"'{visible(rename)[:80]}' is no name of a skill.", code="name-unsafe", hint=hint)
        if rename is not None and len(found) != 1:
            message = f"--as names one skill, and there are {len(found)}."
            raise PackError(message, code="pack-several-skills", hint="Choose one with --skill NAME.")
        changes = [self._plan(rename or skill.name, skill, got) for skill, got in found]
        return self._finish(changes, force)

    def restore(self, frozen: bool, force: bool) -> InstallPlan:
        """Plans to bring the disk to the state of the lock. `frozen` refuses a lock that is not up to date. Skills that
        are wanted and not in the lock are installed, too. Edited skills are refused unless `force`."""
        if frozen and not os.path.exists(self._place.lock):
            raise lock_missing(self._place)
        self._check_agreement(frozen)
        if os.path.exists(self._place.wanted):
            for name in sorted(self._lock.keys() - self._wanted.keys()):
                what = f"'{name}' is installed, and skills.toml does not name it"
                self._notes.append(f"{what}. Remove it: prowess uninstall {name}")
        changes = []
        missing: dict[str, LockedSkill] = {}
        for name, row in self._lock.items():
            there = find_files(self._place.folder(name))
            if there is not None and digest_of(there) == row.digest:
                changes.append(_kept(name, row, self._place))
            elif there is not None and not force:
                raise _edited(self._place, name, file_differences(row.files, there))
            else:
                missing[name] = row
        new = {name: skill for name, skill in self._wanted.items() if name not in self._lock}
        self._ask_first(missing | new)
        changes += [_as_locked(change, missing[change.name]) for change in self._obtain_all(missing, pinned=True)]
        changes += self._obtain_all(new)
        return self._finish(changes, force)

    def _check_agreement(self, frozen: bool) -> None:
        """Refuses a lock that says something else than skills.toml, or if `frozen` one that says more or less."""
        locked = {name: row.wanted for name, row in self._lock.items()}
        stale = [name for name, skill in self._wanted.items() if locked.get(name, None if frozen else skill) != skill]
        removed = [name for name in locked if frozen and name not in self._wanted]
        if stale or removed:
            told = visible(name_some(sorted(stale + removed)))
            message = f"{self._place.wanted} and {self._place.lock} disagree about {told}."
            command = f"update {_listed(stale)}" if stale else f"uninstall {_listed(removed)}"
            raise PackError(message, code="lock-stale", hint=f"Bring the lock up to date: prowess {command}")

    def update(self, names: Sequence[str], force: bool) -> InstallPlan:
        """Plans to bring skills to their newest content. Without names, one that fails does not stop the others."""
        # A skill that somebody removed from skills.toml is updated, but not wanted again for that.
        self._wanted = {name: row.wanted for name, row in self._lock.items()} | self._wanted
        for name in names:
            if name not in self._wanted:
                raise not_installed(name, self._wanted)
        chosen = {name: skill for name, skill in self._wanted.items() if not names or name in names}
        self._ask_first(chosen)
        go_on = not names and len(chosen) > 1
        return self._finish(self._obtain_all(chosen, go_on=go_on), force, go_on=go_on)

    def _ask_first(self, skills: Origins) -> None:
        """Shows the person the addresses that only the files of an untrusted folder name, before any is contacted. The
        source of a skill that this person accepted here was shown to them before."""
        place = self._place
        places = self._settings.places
        remote = {name: skill.source for name, skill in skills.items() if is_remote(skill.source)}
        if not remote or place.base == places.home:
            return
        trust = load_trust(places.state_dir)
        addresses: set[str] = set()
        for name, source in remote.items():
            row = self._lock.get(name)
            accepted = trust.accepted_skills.get(place.folder(name))
            was_shown = row is not None and row.source == source and row.digest == accepted
            if not was_shown:
                addresses.add(source)
        if not addresses or trust.trusts_folder(place.base):
            return
        if not self._settings.confirm_addresses(sorted(addresses)):
            raise PackError("No address was contacted.", code="not-confirmed", hint="Nothing was changed.")

    def _obtain_all(self, skills: Origins, *, pinned: bool = False, go_on: bool = False) -> list[Change]:
        """Plans some skills by their names here. Each source is obtained once: its newest content, or if `pinned` that
        of the lock. With `go_on`, the skills of a source that cannot be used are noted, if there is another source."""
        groups: dict[tuple[str, str | None, str | None], dict[str, str]] = {}
        for name, skill in skills.items():
            pin = skill if pinned and isinstance(skill, LockedSkill) else None
            key = (skill.source, pin and pin.commit, pin and pin.sha256)
            groups.setdefault(key, {})[name] = skill.skill
        changes: list[Change] = []
        for (text, commit, sha256), names in groups.items():
            try:
                found = self._obtain(text, sorted({*names.values()}), commit, sha256)
            except PackError as error:
                if pinned:
                    _tell_restored(error, sorted(names), is_pinned=sha256 is not None)
                if not go_on or len(groups) == 1:
                    raise
                self._fail(names, error)
                continue
            by_name = {skill.name: (skill, got) for skill, got in found}
            changes += [self._plan(name, *by_name[there]) for name, there in names.items()]
        return changes

    def _fail(self, names: Collection[str], error: PackError) -> None:
        self._failed |= dict.fromkeys(names, error)
        self._notes.append(f"Not updated: {name_some(sorted(names))}. {error.message}")

    def _obtain(self, text: str, skills: Sequence[str], commit: str | None, sha256: str | None) -> list[_Found]:
        """Returns the skills of a source. `skills` names those that are wanted; the others are pins of the lock."""
        self._sources += 1
        into = os.path.join(self._folder, f"source-{self._sources}")
        progress = self._settings.progress
        environ = self._settings.environ
        source = parse_source(text, cwd=self._place.base, home=self._settings.places.home)
        got = obtain(source, into, commit=commit, sha256=sha256, skills=skills, progress=progress, environ=environ)
        self._notes += got.notes
        found = find_skills(got, only=skills, outside=self._place.root, progress=progress, notes=self._notes)
        return [(skill, got) for skill in found]

    def _plan(self, name: str, skill: PackedSkill, got: Obtained) -> Change:
        folder = self._place.folder(name)
        before = self._lock.get(name)
        there = find_files(folder)
        locked = _make_locked(skill, got, before)
        action = self._find_action(name, locked, there)
        installed = before.files if before else ()
        edits = file_differences(installed, there or ())
        if there is None:  # a link or a file may be in the way
            edits = [FileDifference("changed", ".")] if os.path.lexists(folder) else []
        if action in ("keep", "record"):
            edits = []
        compared = installed if there is None else there
        if action == "restore":
            compared = ()
        files = tuple(file_differences(compared, skill.files))
        found = digest_of(there) if there else None
        change = Change(name=name, action=action, skill=skill, locked=locked, before=before, found=found)
        return replace(change, edits=tuple(edits), files=files, is_ours=got.is_ours)

    def _find_action(self, name: str, new: LockedSkill, there: Sequence[SkillFile] | None) -> Action:
        """Compares the new entry of the lock with the old one, and with the files that are there."""
        before = self._lock.get(name)
        if there is not None and digest_of(there) != new.digest:
            return "update"
        if before is None:
            return "install" if there is None else "keep"
        if there is None:
            return "restore" if before.digest == new.digest else "update"
        # A restore can get the skill only if lock and skills.toml have its origin.
        is_recorded = before.digest == new.digest and before.sha256 == new.sha256
        if is_recorded and before.wanted == new.wanted == self._wanted.get(name):
            return "keep"
        return "record"

    def _finish(self, changes: Sequence[Change], force: bool, *, go_on: bool = False) -> InstallPlan:
        """Returns the plan. With `go_on`, a skill that may not be replaced is noted and left out."""
        _check_names(changes, self._place, self._lock)
        for change in changes:
            if error := _find_refusal(self._settings, change, force=force):
                if not go_on:
                    raise error
                self._fail([change.name], error)
        kept = tuple(change for change in changes if change.name not in self._failed)
        told = [self._settings.tell_precedence(change.name) for change in kept if change.action == "install"]
        self._notes += filter(None, told)
        notes = tuple(self._notes)
        return InstallPlan(place=self._place, changes=kept, notes=notes, failed=self._failed, staging=self._staging)


def _make_locked(skill: PackedSkill, got: Obtained, before: LockedSkill | None) -> LockedSkill:
    """Returns the entry of the lock. The same content keeps the time of its installation."""
    source = got.source
    path = f"{source.path or ''}/{skill.path}"
    installed_at = now()
    if before is not None and before.digest == skill.digest:
        installed_at = before.installed_at
    return LockedSkill(
        source=source.text,
        kind=source.kind,
        skill=skill.name,
        path=path.strip("/"),
        ref=source.ref,
        commit=got.commit,
        sha256=got.sha256,
        version=skill.version or got.version,
        digest=skill.digest,
        files=skill.files,
        installed_at=installed_at,
    )


def _kept(name: str, row: LockedSkill, place: PackPlace) -> Change:
    folder = place.folder(name)
    skill = PackedSkill(
        name=row.skill,
        folder=folder,
        path=row.path,
        version=row.version,
        digest=row.digest,
        files=row.files,
        examine=cache(lambda: (read_capabilities(folder) or (), ())),
    )
    return Change(name=name, action="keep", skill=skill, locked=row, before=row)


def _tell_restored(error: PackError, names: Sequence[str], *, is_pinned: bool) -> None:
    """Adds the skills to the error of their source, and what can be done about the lock."""
    error.message = f"Cannot restore {visible(name_some(names))}. {error.message}"
    if error.code == "source-missing":
        error.hint = "Name a source that every machine can read: prowess install SOURCE"
    elif error.code == "digest-mismatch" and is_pinned:
        error.hint = f"The lock has the pin. If you accept the new content: prowess update {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    """Renders arguments of a command, the first ten of them."""
    some = visible(shlex.join(sorted(names)[:10]))
    return some if len(names) <= 10 else f"{some} …"


def _as_locked(change: Change, row: LockedSkill) -> Change:
    """Returns a change that restores exactly what the lock says. PackMismatch if its content or origin is another."""
    name = change.name
    found = change.locked
    if found.digest != row.digest:
        digests = f"{found.digest[:19]}…, not {row.digest[:19]}…"
        message = f"{visible(row.source)} has another content of '{name}' than the lock: {digests}."
        raise PackMismatch(message, code="lock-mismatch", hint=f"If you accept the new content: prowess update {name}")
    if any(getattr(row, part) != getattr(found, part) for part in _ORIGIN):
        message = f"The lock names another origin of '{name}' than {visible(found.source)}."
        raise PackMismatch(message, code="lock-mismatch", hint=f"Look at it, then: prowess update {name}")
    return replace(change, locked=replace(found, installed_at=row.installed_at))


def _check_names(changes: Sequence[Change], place: PackPlace, lock: Lock) -> None:
    """Refuses a plan with a name that is not safe, with two skills of one name, or with a new one whose name looks like
    one that is there."""
    seen: dict[str, Change] = {}
    there = os.listdir(place.root) if os.path.isdir(place.root) else []
    taken = {look_of(name): name for name in (*there, *lock)}
    for change in changes:
        source = visible(change.locked.source)
        check_name(change.name, source)
        folded = look_of(change.name)
        other_name = taken.get(folded, change.name)
        if other_name != change.name and change.name not in lock:
            raise _looks_like(change.name, other_name)
        other = seen.setdefault(folded, change)
        if other.name != change.name:
            raise _looks_like(change.name, other.name)
        if other is not change:
            both = f"from {visible(other.locked.source)} and from {source}"
            hint = "Install one of them, or give one another name with --as."
            message = f"Two skills would be installed as '{change.name}': {both}."
            raise PackError(message, code="pack-duplicate-skill", hint=hint)


def _looks_like(name: str, other: str) -> PackError:
    if name.casefold() == other.casefold():
        message = f"'{name}' differs from '{other}' only in case."
        hint = "macOS and Windows take them for one. Use --as NAME."
        return PackError(message, code="pack-duplicate-skill", hint=hint)
    odd = other if name.isascii() else name
    letters = f"'{odd}' {describe_letters(odd)}"
    message = f"'{name}' looks like '{other}', and is another name: {letters}."
    hint = "If you want both, give one another name with --as NAME."
    return PackError(visible(message), code="name-looks-alike", hint=hint)


def _find_refusal(settings: PackSettings, change: Change, *, force: bool) -> PackError | None:
    """Returns an error for a change that would lose something, or that policy forbids."""
    if policy := settings.denied.get(change.skill.digest):
        return denied_content(change.name, policy)
    if not change.edits or force:
        return None
    is_link = os.path.islink(settings.place.folder(change.name))
    return _edited(settings.place, change.name, change.edits, known=bool(change.before) and not is_link)


def denied_content(name: str, policy: str) -> PackDenied:
    hint = f"Install another version. If it is installed: prowess uninstall {name}"
    return PackDenied(f"{policy} denies this content of '{name}', under denied_digests.", hint=hint)


def _edited(place: PackPlace, name: str, edits: Sequence[FileDifference], *, known: bool = True) -> PackError:
    if not known:
        message = f"{place.folder(name)} is there already, and was not installed by Prowess."
        hint = "Use --as NAME, or --force to replace it; a backup is kept."
        return PackError(message, code="skill-exists", hint=hint)
    message = f"'{name}' was edited here: {visible(name_some([edit.path for edit in edits], quote=''))}."
    return PackError(message, code="local-edits", hint="Keep your edits elsewhere, or use --force; a backup is kept.")
