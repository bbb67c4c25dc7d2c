"""Reads roots into a Catalog: in order, each skill once, with a finding for every problem.

    discover("./skills")                        reads only the places you name
    discover("./skills", cache_dir="…")         the second call is much faster
    discover(catalog, "./more")                 joins what was read before with more

A bad skill never affects its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from prowess.core.catalog_values import Finding, Mode
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError
from prowess.skills.catalog import Catalog, names_of
from prowess.skills.locked_names import without_renamed
from prowess.skills.name_patterns import matches_any
from prowess.skills.roots import check_present, named_root, unique_roots
from prowess.skills.scanner import Bounds, scan
from prowess.skills.skill import MODES, PRIORITY, CatalogPart, Entry, Root, RootReport, Skill

if TYPE_CHECKING:
    from typing import TypedDict

    from prowess.core.ports import SkillSource

    Place = str | os.PathLike[str] | Root | Skill | SkillSource | Catalog
    Accepts = Callable[[str, str], bool]  # place and digest -> True if a person accepted this content

    class DiscoverOptions(TypedDict, total=False):
        """Keywords of discover, for functions that call it."""

        modes: Mapping[str, Mode] | None
        nested: bool
        bounds: Bounds
        cache_dir: str | os.PathLike[str] | None
        accepts: Accepts
        accepted: Mapping[str, str] | None
        refuse_angle_brackets: bool


def discover(
    *places: Place,
    modes: Mapping[str, Mode] | None = None,
    nested: bool = False,
    bounds: Bounds = Bounds(),
    cache_dir: str | os.PathLike[str] | None = None,
    accepts: Accepts = lambda place, digest: False,
    accepted: Mapping[str, str] | None = None,
    refuse_angle_brackets: bool = False,
) -> Catalog:
    """Reads all skills from the given places: folders, archive URLs, skills made in code, skill sources, or catalogs.

    Skills of a catalog keep their source, trust and modes. A path that does not exist is an error. `nested` also reads
    the skills below a skill. `accepts(place, digest)` says whether content from a URL or an MCP server was accepted; by
    default nothing is. `accepted` maps the folders of installed skills to the digests that a person accepted.
    """
    modes = modes or {}
    _check_modes(modes)
    bounds = bounds._replace(nested=nested or bounds.nested)
    folder = os.fspath(cache_dir) if cache_dir is not None else None
    reading = _Reading(bounds, folder, accepts, accepted or {})
    found = _each_root_once(places)
    for place in found:
        reading.add(place)
    entries = reading.entries
    is_one_root = len(found) == 1 and isinstance(found[0], Root)
    if not is_one_root or any(entry.linked for entry in entries):
        entries = _each_once(entries)
    reading.findings += _unmatched_modes(modes, entries)
    return Catalog(
        entries,
        findings=reading.findings,
        roots=reading.reports,
        modes=modes,
        memory=reading.memory,
        removed=_still_missing(reading.removed, entries),
        given_modes=reading.given_modes,
        refuse_angle_brackets=refuse_angle_brackets,
    )


def _check_modes(modes: Mapping[str, Mode]) -> None:
    for pattern, mode in modes.items():
        if mode not in MODES:
            message = f"'{mode}' is not a mode, for '{pattern}'."
            known = ", ".join(MODES)
            raise ConfigError(message, code="mode-unknown", hint=f"Use one of {known}.")


class _Reading:
    """Skills, findings and reports of the roots that were read so far."""

    def __init__(self, bounds: Bounds, cache_dir: str | None, accepts: Accepts, accepted: Mapping[str, str]) -> None:
        self._bounds = bounds
        self._cache_dir = cache_dir
        self._accepts = accepts
        self._accepted = accepted
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.reports: list[RootReport] = []
        self.memory: dict[str, Skill] = {}
        self.removed: set[str] = set()
        self.given_modes: dict[str, tuple[Mode, str]] = {}
        self._numbers: dict[tuple[str, str, str], int] = {}

    def add(self, place: Root | Skill | SkillSource | Catalog) -> None:
        if isinstance(place, Root):
            self.add_root(place)
        elif isinstance(place, Catalog):
            self.add_catalog(place)
        else:
            for skill in _skills_of(place, self._accepts):
                self.add_skill(skill)

    def add_root(self, root: Root) -> None:
        shown = None
        if root.url:
            root, shown, trouble = _open_url(root, self._cache_dir, self._accepts)
            self.findings += trouble
            if root.path == root.url:  # the download failed and there is no cached copy
                self.reports.append(RootReport(root.source, shown, 0, False, False, shown, root.origin))
                return
        if _is_cut_off(root.path):
            from prowess._internal.folder_swap import recover

            recover(root.path)
        found = scan(root, bounds=self._bounds, cache_dir=self._cache_dir)
        listed = found.entries
        if any(entry.declared for entry in listed):
            listed = without_renamed(listed)
        if self._accepted:
            listed = [_if_accepted(entry, self._accepted) for entry in listed]
        self.entries += listed
        self.findings += found.findings
        is_silent = not found.entries and not found.findings
        if root.expected and found.exists and is_silent:
            self.findings.append(make_finding(Note("root-empty"), shown or root.path))
        count = len(found.entries)
        self.reports.append(RootReport(root.source, root.path, count, root.trusted, found.exists, shown, root.origin))

    def add_catalog(self, catalog: Catalog) -> None:
        """Adds the skills of a catalog as they are: nothing is read again."""
        for part in catalog.parts():
            self._add_part(part)
        self.findings += [each for each in catalog.root_findings if each not in self.findings]
        self.reports += [root for root in catalog.roots if root not in self.reports]
        self.removed |= catalog.removed

    def _add_part(self, part: CatalogPart) -> None:
        entry = part.entry
        if part.skill is not None:
            entry = self.add_skill(part.skill._replace(entry=entry))
        else:
            self.entries.append(entry)
        if part.mode is not None:
            self.given_modes[entry.location] = part.mode

    def add_skill(self, skill: Skill) -> Entry:
        """Adds a skill made in code. Each content gets its own root, so two of them with the same name stay apart."""
        key = (skill.entry.source, skill.entry.rel, skill.digest)
        number = self._numbers.setdefault(key, len(self._numbers))
        root = f"memory:{number}"
        entry = skill.entry._replace(root=root)
        self.entries.append(entry)
        if entry.trusted or root not in self.memory:
            self.memory[root] = skill._replace(entry=entry)
        return entry


def _is_cut_off(root: str) -> bool:
    """True when an installation was cut off here, or goes on."""
    try:
        names = os.listdir(f"{root}/.prowess")
    except OSError:
        return False
    return any(name == "journal.json" or name.startswith("new-") for name in names)


def _if_accepted(entry: Entry, accepted: Mapping[str, str]) -> Entry:
    """Trusts a skill in an untrusted folder if a person accepted exactly this content. Only such skills are hashed."""
    wanted = accepted.get(entry.real_path)
    if entry.trusted or not wanted:
        return entry
    from prowess.skills.file_list import digest_of, hash_files

    files, _ = hash_files(entry.real_path)
    if digest_of(files) != wanted:
        return changed_since_accepted(entry)
    return entry._replace(trusted=True)


def changed_since_accepted(entry: Entry) -> Entry:
    """Returns the entry of a skill that is not trusted any more, with a note about it."""
    note = Note("accepted-changed", None, {"name": entry.name})
    notes = (*entry.notes, note)
    return entry._replace(trusted=False, notes=notes)


def _each_root_once(places: Iterable[Place]) -> list[Root | Skill | SkillSource | Catalog]:
    """Returns the places in their order, with roots for paths and addresses. Each real folder is there once."""
    known = [_as_root(place) if isinstance(place, (str, os.PathLike)) else place for place in places]
    roots = unique_roots(place for place in known if isinstance(place, Root))
    left = {(root.url, root.path): root for root in roots}
    found: list[Root | Skill | SkillSource | Catalog] = []
    for place in known:
        if isinstance(place, Root):
            root = left.pop((place.url, place.path), None)
            if root is not None:
                found.append(root)
        elif isinstance(place, (Skill, Catalog)) or hasattr(place, "skills"):
            found.append(place)
        else:
            message = f"{place!r} is not a place where skills can be."
            hint = "Give a folder, an address, a Skill, a Catalog, or something with skills()."
            raise ConfigError(message, code="root-unknown", hint=hint)
    return found


def _as_root(place: str | os.PathLike[str]) -> Root:
    """Makes a root from a path or URL that a caller named in code. Raises ConfigError when it is missing."""
    text = os.fspath(place)
    home = os.path.expanduser("~")
    root = named_root(text, origin="given", base=os.getcwd(), home=home)
    return check_present(root)


def _skills_of(place: Skill | SkillSource, accepts: Accepts) -> Iterable[Skill]:
    """Returns the skills made in code. A skill from a URL or an MCP server is untrusted until exactly this content was
    accepted."""
    if isinstance(place, Skill):
        source = place.entry.source
        skills: Iterable[Skill] = [place]
    else:
        source = place.source
        skills = place.skills()
    for skill in skills:
        entry = skill.entry._replace(source=source)
        if source in ("url", "mcp"):
            is_accepted = accepts(entry.id, skill.digest)
            entry = entry._replace(trusted=is_accepted)
        yield skill._replace(entry=entry)


def _still_missing(removed: set[str], entries: list[Entry]) -> set[str]:
    for entry in entries if removed else ():
        removed -= names_of(entry)
    return removed


def _open_url(root: Root, cache_dir: str | None, accepts: Accepts) -> tuple[Root, str, tuple[Finding, ...]]:
    """Returns the root on disk, its URL without secrets, and the findings."""
    from prowess._internal.urls import shown_url  # both late: they import an archive reader and HTTP
    from prowess.skills.url_root import open_url_root

    assert root.url is not None
    shown = shown_url(root.url)
    _, _, pin = root.url.partition("#")
    if pin.startswith("sha256="):
        shown += f"#{pin}"
    opened = open_url_root(root.url, cache_dir or _own_folder())
    if opened.path is None:
        return root._replace(path=root.url), shown, opened.findings
    trusted = opened.digest is not None and accepts(root.url, opened.digest)
    return root._replace(path=opened.path, trusted=trusted), shown, opened.findings


@cache
def _own_folder() -> str:
    """Temporary cache for callers without a cache folder. Only this user can write to it; it is deleted at exit."""
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="prowess-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _each_once(entries: list[Entry]) -> list[Entry]:
    """Keeps one entry per real folder, even when several links lead to it. Prefers a trusted path, then the higher
    priority."""
    best: dict[str, Entry] = {}
    for entry in sorted(entries, key=_preference):
        best.setdefault(entry.real_path, entry)
    kept = {id(entry) for entry in best.values()}
    return [entry for entry in entries if id(entry) in kept]


def _preference(entry: Entry) -> tuple[bool, int, bool]:
    """Sort key of entries for one folder, the best first."""
    priority = PRIORITY.index(entry.source)
    is_linked = bool(entry.linked)
    return not entry.trusted, priority, is_linked


def _unmatched_modes(modes: Mapping[str, Mode], entries: list[Entry]) -> list[Finding]:
    findings: list[Finding] = []
    for pattern, mode in modes.items():
        if not matches_any(pattern, entries):
            note = Note("mode-unmatched", None, {"pattern": pattern, "mode": mode})
            findings.append(make_finding(note, "[skills.modes]"))
    return findings
