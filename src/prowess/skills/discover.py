"""Reads roots into a Catalog: in order, each skill once, with a finding for every problem.

    discover("./skills")                        reads only the places you name
    discover("./skills", cache_dir="…")         the second call is much faster
    Library(["./skills"]).reload()              returns added, changed and removed skills

A bad skill never affects its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from prowess.core.catalog_values import Finding, Mode
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError
from prowess.skills.catalog import Catalog, matches_pattern
from prowess.skills.locked_names import without_renamed
from prowess.skills.roots import check_present, named_root, unique_roots
from prowess.skills.scanner import Bounds, scan
from prowess.skills.skill import MODES, PRIORITY, Changes, Entry, Root, RootReport, Skill

if TYPE_CHECKING:
    from prowess.core.ports import SkillSource

    Place = str | os.PathLike[str] | Root | Skill | SkillSource


def discover(
    *places: Place,
    modes: Mapping[str, Mode] | None = None,
    nested: bool = False,
    bounds: Bounds = Bounds(),
    cache_dir: str | os.PathLike[str] | None = None,
    accepts: Callable[[str, str], bool] = lambda place, digest: False,
    accepted: Mapping[str, str] | None = None,
    refuse_angle_brackets: bool = False,
) -> Catalog:
    """Reads all skills from the given places: folders, archive URLs, skills made in code, or skill sources.

    A path that does not exist is an error. `nested` also reads the skills below a skill. `accepts(place, digest)` says
    whether content from a URL or an MCP server was accepted; by default nothing is. `accepted` maps the folders of
    installed skills to the digests that a person accepted.
    """
    for pattern, mode in (modes or {}).items():
        if mode not in MODES:
            raise ConfigError(
                f"'{mode}' is not a mode, for '{pattern}'.", code="mode-unknown", hint=f"Use one of {', '.join(MODES)}."
            )
    bounds = bounds._replace(nested=nested or bounds.nested)
    folder = os.fspath(cache_dir) if cache_dir is not None else None
    entries: list[Entry] = []
    findings: list[Finding] = []
    reports: list[RootReport] = []
    memory: dict[str, Skill] = {}
    for root in unique_roots(_roots_of(places)):
        shown = None
        if root.url:
            root, shown, trouble = _open_url(root, folder, accepts)
            findings += trouble
            if root.path == root.url:  # the download failed and there is no cached copy
                reports.append(RootReport(root.source, shown, 0, False, False, shown, root.origin))
                continue
        if _is_cut_off(root.path):
            from prowess._internal.folder_swap import recover

            recover(root.path)
        found = scan(root, bounds=bounds, cache_dir=folder)
        listed = without_renamed(found.entries)
        entries += [_if_accepted(entry, accepted) for entry in listed] if accepted else listed
        findings += found.findings
        if root.expected and found.exists and not found.entries and not found.findings:
            findings.append(make_finding(Note("root-empty"), shown or root.path))
        reports.append(
            RootReport(root.source, root.path, len(found.entries), root.trusted, found.exists, shown, root.origin)
        )
    for number, skill in enumerate(_skills_of(places, accepts)):
        # Each skill made in code gets its own root, so two of them with the same name stay apart.
        entry = skill.entry._replace(root=f"memory:{number}")
        entries.append(entry)
        memory[entry.root] = skill._replace(entry=entry)
    entries = _each_once(entries)
    findings += _unmatched_modes(modes, entries)
    return Catalog(
        entries,
        findings=findings,
        roots=reports,
        modes=modes,
        memory=memory,
        refuse_angle_brackets=refuse_angle_brackets,
    )


class Library:
    """Catalog that can be read again. A reload makes a new catalog; the old one stays valid."""

    def __init__(self, places: Sequence[Place], read: Callable[..., Catalog] = discover, **options: object) -> None:
        self._read, self._options = read, options
        self.catalog = read(*places, **options)
        self._places = [_named(place) if isinstance(place, (str, os.PathLike)) else place for place in places]

    def reload(self) -> Changes:
        before = self.catalog
        self.catalog = self._read(*self._places, **self._options).remembering(before)
        return self.catalog.changes_since(before)

    def watch(self, on_change: Callable[[Changes], None], *, stop: object | None = None) -> None:
        """Reloads whenever something below the roots changes, until `stop` (a threading.Event) is set. Needs
        prowess[watch]."""
        from prowess.skills.watch import watch_roots

        for _ in watch_roots([root.path for root in self.catalog.roots if root.exists], stop=stop):
            changes = self.reload()
            if changes:
                on_change(changes)


def _is_cut_off(root: str) -> bool:
    """True when an installation was cut off here, or goes on."""
    try:
        return any(name == "journal.json" or name.startswith("new-") for name in os.listdir(f"{root}/.prowess"))
    except OSError:
        return False


def _if_accepted(entry: Entry, accepted: Mapping[str, str]) -> Entry:
    """Trusts a skill in an untrusted folder if a person accepted exactly this content. Only such skills are hashed."""
    if entry.trusted or not accepted.get(entry.real_path):
        return entry
    from prowess.skills.file_list import digest_of, hash_files

    digest = digest_of(hash_files(entry.real_path)[0])
    return entry._replace(trusted=True) if digest == accepted[entry.real_path] else changed_since_accepted(entry)


def changed_since_accepted(entry: Entry) -> Entry:
    note = Note("accepted-changed", None, {"name": entry.name})
    return entry._replace(trusted=False, notes=(*entry.notes, note))


def _roots_of(places: Iterable[Place]) -> list[Root]:
    found = []
    for place in places:
        if isinstance(place, Root):
            found.append(place)
        elif isinstance(place, (str, os.PathLike)):
            found.append(check_present(_named(place)))
        elif not isinstance(place, Skill) and not hasattr(place, "skills"):
            raise ConfigError(
                f"{place!r} is not a place where skills can be.",
                code="root-unknown",
                hint="Give a folder, an address, a Skill, or something with skills().",
            )
    return found


def _named(place: str | os.PathLike[str]) -> Root:
    return named_root(os.fspath(place), origin="given", base=os.getcwd(), home=os.path.expanduser("~"))


def _skills_of(places: Iterable[Place], accepts: Callable[[str, str], bool]) -> Iterable[Skill]:
    """Returns the skills made in code. A skill from a URL or an MCP server is untrusted until exactly this content was
    accepted."""
    for place in places:
        if isinstance(place, (str, os.PathLike, Root)):
            continue
        source = place.entry.source if isinstance(place, Skill) else place.source
        for skill in [place] if isinstance(place, Skill) else place.skills():
            entry = skill.entry._replace(source=source)
            if source in ("url", "mcp"):
                entry = entry._replace(trusted=accepts(entry.id, skill.digest))
            yield skill._replace(entry=entry)


def _open_url(
    root: Root, cache_dir: str | None, accepts: Callable[[str, str], bool]
) -> tuple[Root, str, tuple[Finding, ...]]:
    """Returns the root on disk, its URL without secrets, and the findings."""
    from prowess._internal.urls import shown_url  # both late: they import an archive reader and HTTP
    from prowess.skills.url_root import open_url_root

    assert root.url is not None
    pin = root.url.partition("#")[2]
    shown = shown_url(root.url) + (f"#{pin}" if pin.startswith("sha256=") else "")
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
    if len({entry.root for entry in entries}) < 2 and not any(entry.linked for entry in entries):
        return entries
    best: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda e: (not e.trusted, PRIORITY.index(e.source), bool(e.linked))):
        best.setdefault(entry.real_path, entry)
    kept = {id(entry) for entry in best.values()}
    return [entry for entry in entries if id(entry) in kept]


def _unmatched_modes(modes: Mapping[str, Mode] | None, entries: list[Entry]) -> list[Finding]:
    return [
        make_finding(Note("mode-unmatched", None, {"pattern": pattern, "mode": mode}), "[skills.modes]")
        for pattern, mode in (modes or {}).items()
        if not any(matches_pattern(pattern, entry) for entry in entries)
    ]
