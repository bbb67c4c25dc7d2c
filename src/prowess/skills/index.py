"""A root becomes entries: one walk, one open per skill, and next time nearly for free.

`scan(root)` walks a root within bounds and reads the head of each SKILL.md. What it learned is kept in one small file
per root (stat signature -> head), so that a second scan costs one stat per skill. The file can be deleted at any
time, is replaced as a whole, and is believed only as far as the signatures still hold: a cache may make an answer
faster, never different.
"""

from __future__ import annotations

import json
import operator
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from prowess._files import kind_of, write_whole
from prowess._nouns import Finding
from prowess._paths import is_inside
from prowess.skills.findings import Note, make_finding
from prowess.skills.head import Controls
from prowess.skills.model import Entry, Root

FORMAT = 1
SKIPPED = frozenset(
    [
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        ".venv",
        "venv",
        "__pycache__",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".cache",
    ]
)
# A file changed within this time of being read could change again without a new time stamp (coarse clocks).
_SETTLED_NS = 50_000_000
_DEFAULT_CONTROLS = Controls()
_name_of = operator.attrgetter("name")
_new = tuple.__new__


class Bounds(NamedTuple):
    max_depth: int = 6
    max_entries: int = 20_000


class Scan(NamedTuple):
    entries: list[Entry]
    findings: list[Finding]
    exists: bool = True
    read: int = 0  # how many SKILL.md were opened, the others were known


def scan(root: Root, *, bounds: Bounds = Bounds(), cache_dir: str | None = None) -> Scan:
    """Every skill below a root. Whatever is wrong becomes a finding, and costs its neighbours nothing."""
    base = os.path.realpath(root.path)
    problem = _root_problem(root, base)
    if problem is not None:
        return Scan([], problem, exists=False)
    walk = _Walk(root, base, bounds)
    known, trouble = _load_known(cache_dir, base) if cache_dir else ({}, [])
    walk.known = known
    with _no_collector():
        walk.run()
    walk.findings += trouble
    if cache_dir and (walk.fresh or walk.hits != len(known)):
        walk.findings += _save_known(cache_dir, base, walk.rows_to_keep())
    return Scan(walk.entries, walk.findings, read=walk.read)


@contextmanager
def _no_collector() -> Iterator[None]:
    """A scan makes tens of thousands of small objects and no cycles: the collector would only walk over them."""
    import gc

    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _root_problem(root: Root, base: str) -> list[Finding] | None:
    try:
        mode = os.stat(base).st_mode
    except FileNotFoundError:
        return [make_finding(Note("root-missing"), root.path)] if root.expected else []
    except OSError as error:
        return [make_finding(Note("unreadable", None, {"reason": reason(error)}), root.path)]
    if not stat.S_ISDIR(mode):
        return [make_finding(Note("root-not-folder", None, {"kind": kind_of(mode)}), root.path)]
    return None


_Folder = tuple[str, str, int, str | None]  # real path, path below the root, depth, real path if reached by a link


class _Walk:
    """One walk over one root, breadth first and sorted, so that the same tree always gives the same answer."""

    def __init__(self, root: Root, base: str, bounds: Bounds) -> None:
        self.root, self.base, self.bounds = root, base, bounds
        self.source, self.trusted = root.source, root.trusted
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.known: dict[str, list[Any]] = {}
        self.fresh: dict[str, list[Any]] = {}
        self.hits = self.read = 0
        self.budget = bounds.max_entries
        self.searched: set[str] = {base}
        self.too_deep: str | None = None

    def run(self) -> None:
        top: _Folder = (self.base, "", 0, None)
        queue = [] if self._is_skill(top) else [top]
        for folder in queue:  # grows while it is walked
            queue += self._search(folder)
        if self.too_deep is not None:
            self._note("depth-limit", self.too_deep, limit=self.bounds.max_depth, folder=self.too_deep)
        self.entries.sort(key=lambda entry: entry.rel)

    def rows_to_keep(self) -> dict[str, list[Any]]:
        kept = {entry.rel: self.known[entry.rel] for entry in self.entries if entry.rel in self.known}
        return {**kept, **self.fresh}

    # --- folders -------------------------------------------------------------------------------------------------

    def _search(self, folder: _Folder) -> list[_Folder]:
        """Take in the skills right below a folder; return the other folders, which are to be searched in their turn."""
        path, rel, depth, linked = folder
        try:
            with os.scandir(path) as listing:
                children = sorted(listing, key=_name_of)
        except OSError as error:
            self._note("unreadable", path, reason=reason(error))
            return []
        if len(children) > self.budget:
            if self.budget >= 0:
                first = children[self.budget].path
                self._note("entry-limit", self.root.path, limit=self.bounds.max_entries, folder=first)
            children = children[: max(self.budget, 0)]
            self.budget = -1
        self.budget -= len(children)
        others: list[_Folder] = []
        prefix = f"{rel}/" if rel else ""
        for child in children:
            target = self._folder_behind(child)
            if target is None:
                continue
            link = target if linked or target != child.path else None
            below: _Folder = (target, prefix + child.name, depth + 1, link)
            if depth >= self.bounds.max_depth:
                self.too_deep = self.too_deep or child.path
            elif not self._is_skill(below):
                others.append(below)
        return others

    def _folder_behind(self, child: os.DirEntry[str]) -> str | None:
        """The real folder behind an entry, or None when there is nothing to search."""
        try:
            if child.is_dir(follow_symlinks=False):
                if child.name in SKIPPED:
                    if os.path.lexists(os.path.join(child.path, "SKILL.md")):
                        self._note("skipped-folder", child.path, folder=child.name)
                    return None
                return child.path
            if not child.is_symlink():
                return None
            target = os.path.realpath(child.path)
            if not os.path.exists(target):
                self._note("link-broken", child.path, target=target)
                return None
            if not os.path.isdir(target):
                return None
        except OSError as error:
            self._note("unreadable", child.path, reason=reason(error))
            return None
        if target in self.searched or is_inside(target, self.base) or is_inside(self.base, target):
            self._note("link-again", child.path, target=target)
            return None
        self.searched.add(target)
        return target

    # --- skills --------------------------------------------------------------------------------------------------

    def _is_skill(self, folder: _Folder) -> bool:
        """Whether the folder is a skill, good or bad, which is then taken in. A skill is a leaf: nothing is searched
        below it. This runs for every folder, so the way of a skill that is known and unchanged is short."""
        path, rel, _, linked = folder
        location = f"{path}{os.sep}SKILL.md"
        try:
            found = os.lstat(location)
        except FileNotFoundError:
            return self._is_lower_case_skill(folder)
        except OSError as error:
            self._note("unreadable", location, reason=reason(error))
            return True
        row = self.known.get(rel)
        if row is not None and _still_holds(row, found):
            self.hits += 1
            if len(row) > 4:
                self.entries.append(_entry_from_row(row, self.root, self.base, rel, linked))
            else:  # nothing out of the ordinary; twice as fast as calling Entry
                plain = (self.source, self.base, rel, "SKILL.md", rel, None, row[3], None, (), _DEFAULT_CONTROLS)
                self.entries.append(_new(Entry, (*plain, row[1], (), self.trusted, linked, "")))
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
        from prowess.skills.read import read_entry  # late: where everything is known nothing needs the parser

        path, rel, _, linked = folder
        self.read += 1
        started_ns = time.time_ns()
        entry = read_entry(self.root, self.base, rel, os.path.join(path, file), found, linked=linked)
        self.entries.append(entry)
        settled = _changed_ns(found) < started_ns - _SETTLED_NS
        if settled and stat.S_ISREG(found.st_mode) and file == "SKILL.md" and not _passing(entry.notes):
            self.fresh[rel] = _row_from_entry(found, entry)

    def _note(self, code: str, path: str, **details: Any) -> None:
        self.findings.append(make_finding(Note(code, None, details), path))


def reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _passing(notes: tuple[Note, ...]) -> bool:
    """Whether what was wrong could be gone next time without a new signature."""
    return any(note.code in ("unreadable", "file-outside") for note in notes)


# --- what a scan remembers ------------------------------------------------------------------------------------------


def _still_holds(row: list[Any], found: os.stat_result) -> bool:
    return row[0] == _changed_ns(found) and row[1] == found.st_size and row[2] == found.st_ino


def _row_from_entry(found: os.stat_result, entry: Entry) -> list[Any]:
    """[time, size, inode, description] and, for what is not the ordinary case, a fifth item with the rest.

    The time is that of the last change of anything about the file: unlike mtime it cannot be set back.
    """
    row: list[Any] = [_changed_ns(found), found.st_size, found.st_ino, entry.description]
    notes = [[note.code, note.line, note.details] for note in entry.notes]
    controls = None if entry.controls == _DEFAULT_CONTROLS else entry.controls
    name = None if entry.name == entry.rel else entry.name
    rest = [name, entry.declared, entry.version, entry.keywords, controls, notes]
    return [*row, rest] if any(rest) else row


# On Windows st_ctime is the time of creation.
_changed_ns = operator.attrgetter("st_mtime_ns" if os.name == "nt" else "st_ctime_ns")


def _entry_from_row(row: list[Any], root: Root, base: str, rel: str, linked: str | None) -> Entry:
    name, declared, version, keywords, controls, notes = row[4]
    return Entry(
        root.source,
        base,
        rel,
        "SKILL.md",
        name or rel,
        declared,
        row[3],
        version,
        tuple(keywords),
        _controls_from_row(controls) if controls else _DEFAULT_CONTROLS,
        row[1],
        tuple([Note(*note) for note in notes]),
        root.trusted,
        linked,
    )


def _controls_from_row(row: list[Any]) -> Controls:
    mode, tools, run_mode, role, user_invocable, hint, paths, requires = row
    return Controls(
        mode,
        None if tools is None else tuple(tools),
        run_mode,
        role,
        user_invocable,
        hint,
        tuple(paths),
        tuple((kind, tuple(items)) for kind, items in requires),
    )


def _index_path(cache_dir: str, base: str) -> str:
    from zlib import crc32  # a collision costs a re-read, because the file says which root it is of

    raw = base.encode("utf-8", "surrogateescape")
    return os.path.join(cache_dir, "index", f"{crc32(raw):08x}{crc32(raw[::-1]):08x}.json")


def _load_known(cache_dir: str, base: str) -> tuple[dict[str, list[Any]], list[Finding]]:
    path = _index_path(cache_dir, base)
    try:
        with open(path, "rb") as file:
            checksum, _, payload = file.read().partition(b"\n")
        if checksum != _checksum(payload):
            raise ValueError("checksum")
        stored = json.loads(payload)
        if stored["format"] != FORMAT or stored["root"] != base:
            return {}, []  # an older release's, or another root's with the same hash
        return stored["skills"], []
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {}, [make_finding(Note("cache-corrupt", None, {"reason": str(error)[:80]}), path)]


def _save_known(cache_dir: str, base: str, seen: dict[str, list[Any]]) -> list[Finding]:
    path = _index_path(cache_dir, base)
    document = {"schema": "prowess.index/1", "format": FORMAT, "root": base, "skills": seen}
    payload = json.dumps(document, separators=(",", ":")).encode()
    try:
        write_whole(path, _checksum(payload) + b"\n" + payload)
        return []
    except OSError as error:
        return [make_finding(Note("cache-unwritable", None, {"reason": reason(error)}), path)]


def _checksum(payload: bytes) -> bytes:
    """A flipped bit must not become a different description."""
    from zlib import crc32

    return f"{crc32(payload):08x}".encode()
