"""Plans an installation, an update or a restore, and carries it out: all skills of it, or none.

Everything is obtained, read and checked first, in a folder beside the target. So a person sees the whole plan before
anything changes. Then all folders are swapped at once, and what was there before is kept as a backup.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from prowess._internal.files import open_regular
from prowess._internal.folder_swap import STATE, FolderMove, SwapBusy, hold, stage, swap
from prowess._internal.json_file import now
from prowess.core.findings import visible
from prowess.errors import PackError, PackMismatch
from prowess.packs.backups import backup_of, note_backup, remove_old
from prowess.packs.contents import find_skills
from prowess.packs.lock import PackPlace, WantedSkill, check_name, edit_wanted, read_lock, read_wanted, render_lock
from prowess.packs.obtain import obtain
from prowess.packs.source import parse_source
from prowess.packs.values import LockedSkill, Obtained, PackedSkill, Progress, no_progress
from prowess.runtime.config import ConfigPlaces
from prowess.skills.file_list import FileDifference, digest_of, file_differences, find_files
from prowess.skills.metadata import name_notes

Action = Literal["install", "update", "restore", "accept", "keep"]  # accept: it is there, and models may use it


_ORIGIN = ("source", "kind", "skill", "commit", "sha256")  # what a restored skill must have as the lock says


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSettings:
    """Surroundings of an installation."""

    place: PackPlace
    places: ConfigPlaces
    environ: Mapping[str, str]
    denied: Collection[str] = ()  # digests that policy refuses
    progress: Progress = no_progress


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
    staging: str = ""  # prepared folder in the root; "" for a plan that is only shown

    @property
    def pending(self) -> tuple[Change, ...]:
        """Changes that a person decides about."""
        return tuple(change for change in self.changes if change.action != "keep")

    @property
    def moved(self) -> tuple[Change, ...]:
        """Changes that write files."""
        return tuple(change for change in self.pending if change.action != "accept")

    def accepting(self, accepted: Mapping[str, str]) -> InstallPlan:
        """Returns the plan with a change for each skill that is there already and that nobody accepted."""
        changes = []
        for change in self.changes:
            if change.action == "keep" and accepted.get(self.place.folder(change.name)) != change.skill.digest:
                files = tuple(file_differences((), change.skill.files))
                change = replace(change, action="accept", files=files)
            changes.append(change)
        return replace(self, changes=tuple(changes))

    def apply(self) -> tuple[Change, ...]:
        """Carries the plan out, and returns what was changed. After an error nothing is changed."""
        with as_pack_error(self.place.root), hold(self.place.root):
            lock = read_lock(self.place)
            new = [change for change in self.changes if change.action != "keep" or change.name not in lock]
            after = {**lock, **{change.name: change.locked for change in new}}
            wanted = {change.name: WantedSkill(change.locked.source, change.locked.skill) for change in new}
            if not self.moved and after == lock and edit_wanted(self.place, wanted) is None:
                return ()
            for change in self.moved:
                self._check_still(change, lock.get(change.name))
            used = Counter(change.skill.folder for change in self.moved)
            moves = [self._materialise(change, used[change.skill.folder] == 1) for change in self.moved]
            write(self.place, moves, after, wanted)
            for move in moves:
                if move.old.startswith("backups/"):
                    remove_old(self.place, move.target)
        return self.moved

    def _check_still(self, change: Change, locked: LockedSkill | None) -> None:
        """Refuses a plan that is out of date: somebody installed or edited the skill since it was made."""
        if locked != change.before or _find_digest(self.place.folder(change.name)) != change.found:
            message = f"'{change.name}' was changed while it was being installed."
            hint = "Nothing was changed by this command. Run it again."
            raise PackError(message, code="target-changed", hint=hint)

    def _materialise(self, change: Change, only_user: bool) -> FolderMove:
        """Puts the files of a skill into the staging folder. A file that changed since it was read is refused."""
        state = os.path.join(self.place.root, STATE)
        new = f"{self.staging}/skills/{change.name}"
        is_whole = change.is_ours and only_user and not change.skill.left_out
        if is_whole:  # nobody else can write there, and it has nothing but the files that were read
            os.makedirs(os.path.dirname(os.path.join(state, new)), exist_ok=True)
            os.rename(change.skill.folder, os.path.join(state, new))
        for file in () if is_whole else change.skill.files:
            target = os.path.join(state, new, file.path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _copy(os.path.join(change.skill.folder, file.path), target, file.sha256)
            os.chmod(target, 0o755 if file.executable else 0o644)
        old = backup_of(self.place, change.name) if os.path.lexists(self.place.folder(change.name)) else ""
        if old:
            note_backup(self.place, old, change.before)
        return FolderMove(change.name, new, f"{old}/tree" if old else f"{self.staging}/none-{change.name}")


def write(
    place: PackPlace,
    moves: Sequence[FolderMove],
    lock: Mapping[str, LockedSkill],
    wanted: Mapping[str, WantedSkill | None],
) -> None:
    """Swaps folders, lock and wanted file together."""
    files: dict[str, bytes | None] = {place.lock: render_lock(lock)}
    edited = edit_wanted(place, wanted)
    if edited is not None:
        files[place.wanted] = edited
    swap(place.root, moves, files)


@contextlib.contextmanager
def open_planner(settings: PackSettings, *, dry_run: bool = False) -> Iterator[Planner]:
    """Yields a planner with a folder for prepared content: beside the target, or elsewhere when nothing may be
    written."""
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="prowess-install-") as folder:
            yield Planner(settings, "", folder)
        return
    with contextlib.ExitStack() as stack:
        with as_pack_error(settings.place.root):
            name = stack.enter_context(stage(settings.place.root))
        yield Planner(settings, name, os.path.join(settings.place.root, STATE, name))


def _relative_to(base: str, text: str, places: ConfigPlaces) -> str:
    """Returns a source that was named in the working folder as the files of the place name it."""
    source = parse_source(text, cwd=places.cwd, home=places.home)
    if not os.path.isabs(source.location):
        return text  # an address may have credentials, which the text of a source has not
    is_relative = source.text == "." or source.text.startswith("./")
    named = os.path.join(places.cwd, source.text) if is_relative else source.text
    return parse_source(named, cwd=base, home=places.home).text


# --- planning ---------------------------------------------------------------------------------------------------------


class Planner:
    """Obtains sources into one staging folder, and plans the changes of their skills."""

    def __init__(self, settings: PackSettings, staging: str, folder: str) -> None:
        self._settings, self._place = settings, settings.place
        self._staging, self._folder = staging, folder
        self._lock = read_lock(settings.place)
        self._notes: list[str] = []
        self._sources = 0

    def install(self, sources: Sequence[str], skills: Sequence[str], rename: str | None, force: bool) -> InstallPlan:
        """Plans the skills of some sources. `rename` gives the only skill another name."""
        texts = [_relative_to(self._place.base, text, self._settings.places) for text in sources]
        found = [each for text in texts for each in self._obtain(text, skills)]
        if rename is not None and any(note.code != "name-not-portable" for note in name_notes(rename)):
            hint = "Use lower-case letters, digits and single hyphens."
            raise PackError(f"'{visible(rename)[:80]}' is no name of a skill.", code="name-unsafe", hint=hint)
        if rename is not None and len(found) != 1:
            message = f"--as names one skill, and there are {len(found)}."
            raise PackError(message, code="pack-several-skills", hint="Choose one with --skill NAME.")
        return self._finish([self._plan(rename or skill.name, skill, got) for skill, got in found], force)

    def restore(self, frozen: bool, force: bool) -> InstallPlan:
        """Plans to bring the disk to the state of the lock. `frozen` refuses a lock that is not up to date. Skills that
        are wanted and not in the lock are installed, too."""
        wanted = read_wanted(self._place)
        if frozen and not os.path.exists(self._place.lock):
            hint = "Commit skills.lock, or run this where it is."
            raise PackError(f"There is no {self._place.lock}.", code="lock-missing", hint=hint)
        _check_agreement(self._place, self._lock, wanted, frozen=frozen)
        if os.path.exists(self._place.wanted):
            for name in sorted(self._lock.keys() - wanted.keys()):
                told = f"'{name}' is installed, and skills.toml does not name it. Remove it: prowess uninstall {name}"
                self._notes.append(told)
        changes = self._restore(force)
        changes += self._resolve({name: skill for name, skill in wanted.items() if name not in self._lock})
        return self._finish(changes, force)

    def update(self, names: Sequence[str], force: bool) -> InstallPlan:
        """Plans to bring skills to the newest content of their sources."""
        locked = {name: WantedSkill(row.source, row.skill) for name, row in self._lock.items()}
        known = {**locked, **read_wanted(self._place)}
        for name in names:
            if name not in known:
                raise not_installed(name, known)
        chosen = {name: skill for name, skill in known.items() if not names or name in names}
        return self._finish(self._resolve(chosen), force)

    def _obtain(
        self, text: str, skills: Sequence[str], pin: LockedSkill | None = None
    ) -> list[tuple[PackedSkill, Obtained]]:
        """Returns the skills of a source. `skills` names those that are wanted; `pin` is the content of the lock."""
        settings, self._sources = self._settings, self._sources + 1
        got = obtain(
            parse_source(text, cwd=self._place.base, home=settings.places.home),
            os.path.join(self._folder, f"source-{self._sources}"),
            commit=pin.commit if pin else None,
            sha256=pin.sha256 if pin else None,
            skills=skills,
            progress=settings.progress,
            environ=settings.environ,
        )
        self._notes += got.notes
        found = find_skills(got, only=skills, progress=settings.progress, notes=self._notes)
        return [(skill, got) for skill in found]

    def _plan(self, name: str, skill: PackedSkill, got: Obtained) -> Change:
        folder, before = self._place.folder(name), self._lock.get(name)
        there = find_files(folder)
        digest = None if there is None else digest_of(there)
        edits = file_differences(before.files if before else (), there or ())
        if there is None:  # a link or a file may be in the way
            edits = [FileDifference("changed", ".")] if os.path.lexists(folder) else []
        locked = LockedSkill(
            source=got.source.text,
            kind=got.source.kind,
            skill=skill.name,
            path=skill.path,
            ref=got.source.ref,
            commit=got.commit,
            sha256=got.sha256,
            version=skill.version or got.version,
            digest=skill.digest,
            files=skill.files,
            installed_at=before.installed_at if before and before.digest == skill.digest else now(),
        )
        action: Action = "install" if there is None and before is None else "update"
        if there is None and before is not None and before.digest == skill.digest:
            action = "restore"
        if digest == skill.digest:
            return Change(name=name, action="keep", skill=skill, locked=locked, before=before)
        return Change(
            name=name,
            action=action,
            skill=skill,
            locked=locked,
            before=before,
            edits=tuple(edits),
            files=tuple(file_differences(there if there is not None else before.files if before else (), skill.files)),
            is_ours=got.is_ours,
            found=digest,
        )

    def _resolve(self, wanted: Mapping[str, WantedSkill]) -> list[Change]:
        """Plans the newest content of wanted skills. Each source is obtained once."""
        groups: dict[str, dict[str, str]] = {}
        for name, skill in wanted.items():
            groups.setdefault(skill.source, {})[name] = skill.skill
        changes = []
        for text, names in groups.items():
            found = {skill.name: (skill, got) for skill, got in self._obtain(text, sorted({*names.values()}))}
            changes += [self._plan(name, *found[there]) for name, there in names.items()]
        return changes

    def _restore(self, force: bool) -> list[Change]:
        """Plans what the lock has and the disk has not. Edited skills are refused unless `force`."""
        changes = []
        groups: dict[tuple[str, str | None, str | None], dict[str, LockedSkill]] = {}
        for name, row in self._lock.items():
            there = find_files(self._place.folder(name))
            if there is not None and digest_of(there) == row.digest:
                changes.append(_kept(name, row, self._place))
            elif there is not None and not force:
                raise _edited(self._place, name, file_differences(row.files, there))
            else:
                groups.setdefault((row.source, row.commit, row.sha256), {})[name] = row
        for group in groups.values():
            changes += self._restore_from_source(group)
        return changes

    def _restore_from_source(self, group: Mapping[str, LockedSkill]) -> list[Change]:
        first = next(iter(group.values()))
        found = self._obtain(first.source, sorted({row.skill for row in group.values()}), pin=first)
        by_name = {skill.name: (skill, got) for skill, got in found}
        changes = []
        for name, row in group.items():
            skill, got = by_name[row.skill]
            if skill.digest != row.digest:
                raise PackMismatch(
                    f"{visible(row.source)} has another content of '{name}' than the lock: {skill.digest[:19]}…, not "
                    f"{row.digest[:19]}….",
                    code="lock-mismatch",
                    hint=f"If you accept the new content: prowess update {name}",
                )
            planned = self._plan(name, skill, got)
            said, found = ([getattr(each, field) for field in _ORIGIN] for each in (row, planned.locked))
            if said != found:
                message = f"The lock names another origin of '{name}' than {visible(planned.locked.source)}."
                raise PackMismatch(message, code="lock-mismatch", hint=f"Look at it, then: prowess update {name}")
            changes.append(replace(planned, locked=replace(planned.locked, installed_at=row.installed_at)))
        return changes

    def _finish(self, changes: Sequence[Change], force: bool) -> InstallPlan:
        _check(self._settings, changes, self._lock, force=force)
        return InstallPlan(place=self._place, changes=tuple(changes), notes=tuple(self._notes), staging=self._staging)


def _find_digest(folder: str) -> str | None:
    there = find_files(folder)
    return None if there is None else digest_of(there)


def _kept(name: str, row: LockedSkill, place: PackPlace) -> Change:
    skill = PackedSkill(
        name=row.skill,
        folder=place.folder(name),
        path=row.path,
        version=row.version,
        digest=row.digest,
        files=row.files,
        examine=lambda: ((), ()),
    )
    return Change(name=name, action="keep", skill=skill, locked=row, before=row)


def _check(settings: PackSettings, changes: Sequence[Change], lock: Mapping[str, LockedSkill], *, force: bool) -> None:
    """Refuses a plan that would lose something, or that policy forbids."""
    seen: dict[str, Change] = {}
    spelled = {name.casefold(): name for name in lock}
    for change in changes:
        check_name(change.name, visible(change.locked.source))
        if (other := spelled.get(change.name.casefold(), change.name)) != change.name:
            message = f"'{change.name}' differs from the installed '{other}' only in case."
            hint = "macOS and Windows take them for one. Use --as NAME."
            raise PackError(message, code="pack-duplicate-skill", hint=hint)
        if (other := seen.setdefault(change.name.casefold(), change)) is not change:
            raise PackError(
                f"Two skills would be installed as '{change.name}': from {visible(other.locked.source)} and from "
                f"{visible(change.locked.source)}.",
                code="pack-duplicate-skill",
                hint="Install one of them, or give one another name with --as.",
            )
        if change.skill.digest in settings.denied:
            raise denied_content(change.name, change.skill.digest)
        if change.action != "keep" and change.edits and not force:
            is_link = os.path.islink(settings.place.folder(change.name))
            raise _edited(settings.place, change.name, change.edits, known=bool(change.before) and not is_link)


def denied_content(name: str, digest: str) -> PackError:
    message = f"Policy denies this content of '{name}': {digest}."
    hint = "It is listed under denied_digests in a policy. Install another version."
    return PackError(message, code="digest-denied", hint=hint)


def _edited(place: PackPlace, name: str, edits: Sequence[FileDifference], *, known: bool = True) -> PackError:
    if not known:
        message = f"{place.folder(name)} is there already, and was not installed by Prowess."
        hint = "Use --as NAME, or --force to replace it; a backup is kept."
        return PackError(message, code="skill-exists", hint=hint)
    paths = [edit.path for edit in edits]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    message = f"'{name}' was edited here: {visible(', '.join(paths[:3]))}{more}."
    hint = "Keep your edits elsewhere, or use --force; a backup is kept."
    return PackError(message, code="local-edits", hint=hint)


def _check_agreement(
    place: PackPlace, lock: Mapping[str, LockedSkill], wanted: Mapping[str, WantedSkill], *, frozen: bool
) -> None:
    locked = {name: WantedSkill(row.source, row.skill) for name, row in lock.items()}
    stale = [name for name, skill in wanted.items() if locked.get(name, skill) != skill]
    if frozen:
        stale += [name for name in wanted.keys() ^ lock.keys() if name not in stale]
    if stale:
        message = f"{place.wanted} and {place.lock} disagree about {visible(', '.join(sorted(stale)[:5]))}."
        hint = f"Bring the lock up to date: prowess update {sorted(stale)[0]}"
        raise PackError(message, code="lock-stale", hint=hint)


def not_installed(name: str, known: Collection[str]) -> PackError:
    import difflib

    near = difflib.get_close_matches(name, [*known], n=3)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return PackError(
        f"'{visible(name)[:80]}' is not installed here.", code="not-installed", hint=f"{meant}See: prowess verify --all"
    )


# --- files ------------------------------------------------------------------------------------------------------------


def _copy(source: str, target: str, sha256: str) -> None:
    """Copies a regular file that has this content."""
    import hashlib

    whole = hashlib.sha256()
    with open(open_regular(source, follow=True), "rb") as read, open(target, "xb") as written:
        while chunk := read.read(1 << 20):
            whole.update(chunk)
            written.write(chunk)
    if whole.hexdigest() != sha256:
        message = f"{visible(source)} changed while it was being installed."
        hint = "Install it again when nothing writes to it."
        raise PackMismatch(message, code="source-changed", hint=hint)


@contextlib.contextmanager
def as_pack_error(place: str) -> Iterator[None]:
    """Turns an error of the system into a PackError."""
    try:
        yield
    except SwapBusy as error:
        raise PackError(
            f"Another process is installing into {place}.", code="target-busy", hint="Try again when it has ended."
        ) from error
    except OSError as error:
        why = error.strerror or str(error)
        message = f"Cannot write to {place}: {why.lower()}."
        hint = "Check that the folder can be written to and that the disk has room. Nothing was changed."
        raise PackError(message, code="target-not-writable", hint=hint) from error
