"""Walks a root and finds its skills, within bounds: one walk, one open per skill.

`scan(root)` reads the head of each SKILL.md and keeps the result in one small file per root (stat signature -> head).
So a second scan costs one stat per skill. The file can be deleted at any time and is replaced as a whole. A row is used
only while its signature still matches: a cache may make an answer faster, never different.
"""

from __future__ import annotations

import operator
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from prowess._internal.files import kind_of
from prowess._internal.paths import is_inside
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.skills.nested import has_nested, look_below, without_nested
from prowess.skills.scan_cache import (
    NOTHING_KNOWN,
    Known,
    Row,
    Signature,
    changed_ns,
    load_known,
    save_known,
    still_holds,
)
from prowess.skills.skill import Entry, Root

SKIPPED = frozenset(
    ".git .hg .svn node_modules .venv venv __pycache__ .tox .nox .mypy_cache .pytest_cache .ruff_cache .cache"
    " .prowess".split()
)
# A file that changed so shortly before it was read could change again without a new time stamp (coarse clocks).
_SETTLED_NS = 50_000_000
_name_of = operator.attrgetter("name")
_new = tuple.__new__


class Bounds(NamedTuple):
    max_depth: int = 6
    max_entries: int = 20_000
    nested: bool = False  # also read the skills below a skill


class Scan(NamedTuple):
    entries: list[Entry]
    findings: list[Finding]
    exists: bool = True
    read: int = 0  # number of SKILL.md files opened; the others came from the cache


def scan(root: Root, *, bounds: Bounds = Bounds(), cache_dir: str | None = None) -> Scan:
    """Finds every skill below a root. Every problem becomes a finding and does not affect other skills."""
    base = os.path.realpath(root.path)
    problem = _root_problem(root, base)
    if problem is not None:
        return Scan([], problem, exists=False)
    key = base
    if bounds.nested:
        key = os.path.join(base, "**")  # nested and plain scans have separate caches
    known = NOTHING_KNOWN
    trouble: list[Finding] = []
    if cache_dir:
        known, trouble = load_known(cache_dir, key)
    walk = _Walk(root, base, bounds, known)
    with _no_collector():
        walk.run()
    if cache_dir and (walk.fresh or walk.hits != len(known.rows)):
        signatures = {**known.rows, **walk.fresh}
        trouble += save_known(cache_dir, key, walk.entries, signatures)
    return Scan(walk.entries, walk.findings + trouble, read=walk.read)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Switches the garbage collector off. A scan makes tens of thousands of small objects and no cycles, so the
    collector would only cost time."""
    import gc

    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _root_problem(root: Root, base: str) -> list[Finding] | None:
    """Returns findings when a root cannot be searched. None when it can."""
    try:
        mode = os.stat(base).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not root.expected:
            return []
        note = Note("root-missing")
    except OSError as error:
        note = Note("unreadable", None, {"reason": reason(error)})
    else:
        if stat.S_ISDIR(mode):
            return None
        note = Note("root-not-folder", None, {"kind": kind_of(mode)})
    return [make_finding(note, root.path)]


_Folder = tuple[str, str, int, str | None]  # real path, path below the root, depth, real path if reached by a link


class _Walk:
    """Walk over one root, breadth first and sorted, so the same tree always gives the same result."""

    def __init__(self, root: Root, base: str, bounds: Bounds, known: Known) -> None:
        self.root = root
        self.base = base
        self.bounds = bounds
        self.known = known
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.fresh: dict[str, Signature] = {}
        self.hits = 0
        self.read = 0
        self.budget = bounds.max_entries
        self.searched: set[str] = {base}
        self.too_deep: str | None = None

    def run(self) -> None:
        top: _Folder = (self.base, "", 0, None)
        queue: list[_Folder] = []
        if not self._is_skill(top) or self.bounds.nested:
            queue.append(top)
        for folder in queue:  # grows while it is walked
            queue += self._search(folder)
        if self.too_deep is not None:
            self._note("depth-limit", self.too_deep, limit=self.bounds.max_depth, folder=self.too_deep)
        self.entries.sort(key=lambda entry: entry.rel)

    # --- folders -------------------------------------------------------------------------------------------------

    def _search(self, folder: _Folder) -> list[_Folder]:
        """Adds the skills directly below a folder. Returns the other folders, to be searched next."""
        path, rel, depth, linked = folder
        try:
            with os.scandir(path) as listing:
                children = sorted(listing, key=_name_of)
        except OSError as error:
            self._note("unreadable", path, reason=reason(error))
            return []
        is_leaf = self._has_odd_skill(folder, children)
        if is_leaf:
            return []
        children = self._within_budget(children)
        others: list[_Folder] = []
        prefix = f"{rel}/" if rel else ""
        unknown: Iterable[os.DirEntry[str]] = children
        if self.known.rows and not linked and not self.bounds.nested:
            unknown = self._without_known(children, prefix)
        for child in unknown:
            target = self._folder_behind(child)
            if target is None:
                continue
            link = target if linked or target != child.path else None
            below: _Folder = (target, prefix + child.name, depth + 1, link)
            if depth >= self.bounds.max_depth:
                self.too_deep = self.too_deep or child.path
            elif not self._is_skill(below) or self.bounds.nested:
                others.append(below)
        return others

    def _has_odd_skill(self, folder: _Folder, children: list[os.DirEntry[str]]) -> bool:
        """True when the folder is a skill by another spelling, such as Skill.md, and so a leaf; adds it.

        SKILL.md and skill.md were handled before, so they are here only when nested skills are requested.
        """
        names = [child.name for child in children]
        spellings = [name for name in names if name.lower() == "skill.md"]
        if not spellings:
            return False
        is_handled = "SKILL.md" in spellings or "skill.md" in spellings
        if not self.bounds.nested or not is_handled:
            location = os.path.join(folder[0], spellings[0])
            self._take_in(folder, spellings[0], os.lstat(location))
        return not self.bounds.nested

    def _within_budget(self, children: list[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
        """Returns the entries that may still be looked at, and counts them. Reports the first that may not."""
        if len(children) > self.budget:
            if self.budget >= 0:
                first = children[self.budget].path
                self._note("entry-limit", self.root.path, limit=self.bounds.max_entries, folder=first)
            children = children[: max(self.budget, 0)]
            self.budget = -1
        self.budget -= len(children)
        return children

    def _without_known(self, children: list[os.DirEntry[str]], prefix: str) -> Iterator[os.DirEntry[str]]:
        """Adds the known and unchanged skills; yields the other folders. In a library that was read before, nearly all
        are known, so this is written for speed: one stat per skill and few calls."""
        rows, kinds = self.known
        lstat = os.lstat
        ending = f"{os.sep}SKILL.md"
        source = self.root.source
        trusted = self.root.trusted
        base = self.base
        take_in = self.entries.append
        hits = 0
        for child in children:
            rel = prefix + child.name
            row = rows.get(rel)
            if row is None or not child.is_dir(follow_symlinks=False):
                yield child
                continue
            try:
                found = lstat(child.path + ending)
            except OSError:
                yield child
                continue
            changed, size, inode, tokens, said, kind = row
            if changed != changed_ns(found) or size != found.st_size or inode != found.st_ino:
                yield child
                continue
            hits += 1
            name, declared, version, words, controls, notes = kinds[kind]
            # The same as Entry(…), at half the cost.
            head = (name or child.name, declared, said, version, words, controls, size, notes)
            entry = _new(Entry, (source, base, rel, "SKILL.md", *head, trusted, None, "", tokens))
            if notes and has_nested(notes):
                entry = self._look_again(entry, row)
            take_in(entry)
        self.hits += hits

    def _folder_behind(self, child: os.DirEntry[str]) -> str | None:
        """Returns the real folder of a directory entry, or None when there is nothing to search."""
        try:
            is_folder = child.is_dir(follow_symlinks=False)
            if not is_folder and not child.is_symlink():
                return None
            if child.name in SKIPPED:
                if os.path.lexists(os.path.join(child.path, "SKILL.md")):
                    self._note("skipped-folder", child.path, folder=child.name)
                return None
            if is_folder:
                return child.path
            target = os.path.realpath(child.path)
            if not os.path.exists(target):
                self._note("link-broken", child.path, target=target)
                return None
            if not os.path.isdir(target):
                return None
        except OSError as error:
            self._note("unreadable", child.path, reason=reason(error))
            return None
        if target in self.searched or is_inside(target, self.base) or self._is_searched_anyway(target):
            self._note("link-again", child.path, target=target)
            return None
        self.searched.add(target)
        return target

    def _is_searched_anyway(self, target: str) -> bool:
        """True for a folder below the root that is not inside a skipped folder."""
        if not is_inside(self.base, target):
            return False
        rel = os.path.relpath(target, self.base)
        return SKIPPED.isdisjoint(rel.split(os.sep))

    # --- skills --------------------------------------------------------------------------------------------------

    def _is_skill(self, folder: _Folder) -> bool:
        """True when the folder is a skill, valid or not; adds it. A skill is a leaf: everything below belongs to it,
        unless nested skills are requested."""
        path, rel, _, linked = folder
        location = f"{path}{os.sep}SKILL.md"
        try:
            found = os.lstat(location)
        except FileNotFoundError:
            return self._is_lower_case_skill(folder)
        except OSError as error:
            self._note("unreadable", location, reason=reason(error))
            return True
        row = self.known.rows.get(rel)
        if row is not None and still_holds(row, found):
            self.hits += 1
            entry = self.known.entry(row, self.root, self.base, rel, linked)
            self.entries.append(self._look_again(entry, row))
        else:
            self._take_in(folder, "SKILL.md", found)
        return True

    def _is_lower_case_skill(self, folder: _Folder) -> bool:
        try:
            found = os.lstat(os.path.join(folder[0], "skill.md"))
        except OSError:
            return False
        self._take_in(folder, "skill.md", found)
        return True

    def _take_in(self, folder: _Folder, file: str, found: os.stat_result) -> None:
        from prowess.skills.entry_reader import read_entry  # late: a fully cached scan needs no parser

        path, rel, _, linked = folder
        self.read += 1
        started_ns = time.time_ns()
        location = os.path.join(path, file)
        entry = read_entry(self.root, self.base, rel, location, found, linked=linked)
        nested = look_below_entry(entry, self.bounds)
        if nested:
            entry = entry._replace(notes=(*entry.notes, *nested))
        self.entries.append(entry)
        settled = changed_ns(found) < started_ns - _SETTLED_NS
        is_plain = stat.S_ISREG(found.st_mode) and file == "SKILL.md"
        if settled and is_plain and not _passing(entry.notes):
            self.fresh[rel] = (changed_ns(found), found.st_size, found.st_ino)

    def _look_again(self, entry: Entry, row: Row) -> Entry:
        """Updates remembered notes about nested files, which may be gone.

        A skill without such notes is not searched again, because that would make a cached scan as slow as a first one.
        A root that is itself a skill is always searched, because it may hide a whole library.
        """
        if self.bounds.nested or (entry.rel and not has_nested(entry.notes)):
            return entry
        notes = (*without_nested(entry.notes), *look_below_entry(entry, self.bounds))
        if notes == entry.notes:
            return entry
        self.fresh[entry.rel] = row[:3]
        return entry._replace(notes=notes)

    def _note(self, code: str, path: str, **details: Any) -> None:
        self.findings.append(make_finding(Note(code, None, details), path))


def look_below_entry(entry: Entry, bounds: Bounds) -> tuple[Note, ...]:
    """Returns a note for each nested SKILL.md that is not loaded."""
    if bounds.nested:
        return ()
    return look_below(entry.real_path, entry.name, skipped=SKIPPED, max_entries=bounds.max_entries)


def reason(error: OSError) -> str:
    """Returns the words of the system about an error."""
    return (error.strerror or type(error).__name__).lower()


def _passing(notes: tuple[Note, ...]) -> bool:
    """True when a problem may disappear without a new signature, so the entry must not be remembered."""
    codes = {note.code for note in notes}
    return not codes.isdisjoint(("unreadable", "file-outside"))
