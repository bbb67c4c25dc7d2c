"""Places of skills, as `skills=`, `discover` and `Library` take them, and libraries that can be read again.

    discover("./skills", "builtin")             Catalog: what is there now
    Library(["./skills"]).reload()              returns added, changed and removed skills
    library.where(names=["pdf"])                live view: follows the library

A Catalog that is given is a snapshot. A Library that is given is followed, and only its owner reloads it.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from prowess.errors import ConfigError
from prowess.skills.catalog import Catalog
from prowess.skills.discover import discover as read_catalog
from prowess.skills.filters import Keep, make_filter
from prowess.skills.roots import BUILTIN_ROOT, WORDS, check_file, is_missing, named_root
from prowess.skills.skill import Changes, Entry, Root, Skill
from prowess.skills.watch import watch_roots

if TYPE_CHECKING:
    from threading import Event
    from typing import Literal, TypeAlias, TypeGuard, Unpack

    from prowess.core.catalog_values import Source
    from prowess.core.ports import SkillSource
    from prowess.runtime.arguments import SkillPlaces
    from prowess.skills.discover import DiscoverOptions

    FixedPlace = Root | Skill | SkillSource | Catalog
    KnownPlace: TypeAlias = "FixedPlace | Library | LibraryView | Literal['default']"


def discover(*places: SkillPlaces, **options: Unpack[DiscoverOptions]) -> Catalog:
    """Reads all skills from the given places, and only from these: folders, archive addresses, skills made in code,
    skill sources, catalogs, libraries, and the words "builtin" and "default".

    Skills of a catalog or a library keep their source, trust and modes. A path that does not exist is an error.
    `nested` also reads the skills below a skill. `accepts(place, digest)` says whether content from an address or an
    MCP server was accepted; by default nothing is. `accepted` maps the folders of installed skills to the digests that
    a person accepted. With "default", both default to what `prowess trust` recorded.
    """
    return Library(as_places(*places), **options).catalog


class Library:
    """Catalog that can be read again. A reload makes a new catalog; the old one stays valid."""

    def __init__(self, places: SkillPlaces, **options: Unpack[DiscoverOptions]) -> None:
        self._options = options
        self._places = self._find_defaults(as_places(places))
        self._parts = self._read()
        self._joined: tuple[list[Catalog], Catalog] | None = None
        self._joined = self._join()

    @property
    def catalog(self) -> Catalog:
        """Skills as they were last read. Follows the libraries among the places."""
        self._joined = joined = self._join()
        return joined[1]

    @property
    def is_view(self) -> bool:
        """True if `where` left skills out of one of the places."""
        return any(place.is_view for place in self._places if isinstance(place, (Catalog, Library, LibraryView)))

    def reload(self) -> Changes:
        """Reads the places again, but no library among them: its owner does that. Returns the differences."""
        before = self.catalog
        self._parts = self._read()
        return self.catalog.changes_since(before)

    def watch(self, on_change: Callable[[Changes], None], *, stop: Event | None = None) -> None:
        """Reloads whenever something below the roots changes, until `stop` is set. Needs prowess[watch]."""
        folders = [root.path for root in self.catalog.roots if root.exists]
        for _ in watch_roots(folders, stop=stop):
            changes = self.reload()
            if changes:
                on_change(changes)

    def where(
        self, keep: Keep | None = None, *, names: str | Iterable[str] | None = None, source: Source | None = None
    ) -> LibraryView:
        """Returns a live view of the skills that satisfy all conditions. See `Catalog.where`."""
        return LibraryView(self, make_filter(self.catalog, keep, names, source))

    def _find_defaults(self, places: Sequence[KnownPlace]) -> list[FixedPlace | Library | LibraryView]:
        """Puts the default places where the word is. Content that a person accepted for them is trusted."""
        found: list[FixedPlace | Library | LibraryView] = []
        for place in places:
            if place != "default":
                found.append(place)
                continue
            from prowess.runtime.default_places import find_default_places  # late: it imports the configuration

            defaults = find_default_places()
            found += defaults.roots
            self._options.setdefault("accepts", defaults.trust.accepts_url)
            self._options.setdefault("accepted", defaults.trust.accepted_skills)
        return found

    def _read(self) -> list[Catalog | Library | LibraryView]:
        """Reads what stands between libraries, each group into one catalog."""
        options = self._options.copy()
        if self._follows:  # these two are about all skills together
            options.pop("modes", None)
            options.pop("refuse_angle_brackets", None)
        parts: list[Catalog | Library | LibraryView] = []
        group: list[FixedPlace] = []
        for place in self._places:
            if not isinstance(place, (Library, LibraryView)):
                group.append(place)
                continue
            parts += [read_catalog(*group, **options), place]
            group = []
        parts.append(read_catalog(*group, **options))
        return parts

    @property
    def _follows(self) -> bool:
        return any(isinstance(place, (Library, LibraryView)) for place in self._places)

    def _join(self) -> tuple[list[Catalog], Catalog]:
        """Returns the catalogs of the parts, and one of all their skills. Joins only what has changed."""
        parts = [part if isinstance(part, Catalog) else part.catalog for part in self._parts]
        before = self._joined
        if before is not None and not any(map(operator.is_not, before[0], parts)):
            return before
        catalog = parts[0]
        if self._follows:
            modes = self._options.get("modes")
            strict = self._options.get("refuse_angle_brackets", False)
            catalog = read_catalog(*parts, modes=modes, refuse_angle_brackets=strict)
        if before is not None:
            catalog = catalog.remembering(before[1])
        return parts, catalog


class LibraryView:
    """Skills of a library that satisfy a condition. Follows the library: what it reads later is seen, filtered."""

    def __init__(self, library: Library | LibraryView, keep: Keep) -> None:
        self.is_view: bool = True
        self._library = library
        self._keep = keep
        self._made: tuple[Catalog, Catalog] | None = None  # the library's catalog, and the view of it

    @property
    def catalog(self) -> Catalog:
        whole = self._library.catalog
        made = self._made
        if made is not None and made[0] is whole:
            return made[1]
        view = whole.where(self._keep)
        if made is not None:
            view = view.remembering(made[1])
        self._made = (whole, view)
        return view

    def where(
        self, keep: Keep | None = None, *, names: str | Iterable[str] | None = None, source: Source | None = None
    ) -> LibraryView:
        """Returns a narrower live view."""
        return LibraryView(self, make_filter(self.catalog, keep, names, source))


def as_places(*given: SkillPlaces, keyword: str = "") -> list[KnownPlace]:
    """Checks places and lists of places. Paths and addresses become roots, and "default" stays as it is.

    With a `keyword`, which errors name, a file in the place of a folder is an error; without, it becomes a finding.
    """
    return [_as_place(each, keyword) for each in _flatten(given)]


def _flatten(given: Sequence[object]) -> Iterator[object]:
    for each in given:
        is_record = hasattr(each, "_fields")  # skills, roots and entries are tuples as well
        if isinstance(each, (list, tuple)) and not is_record:
            yield from _flatten(each)
        else:
            yield each


def _as_place(given: object, keyword: str) -> KnownPlace:
    if given == "default":
        return "default"
    if given == "builtin":
        return BUILTIN_ROOT
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        if isinstance(path, str) and path.strip():
            return _as_root(path, keyword)
    elif isinstance(given, (Root, Skill, Catalog, Library, LibraryView)) or _is_source(given):
        return given
    hint = _HINT
    if given is None:
        hint = 'Leave it out for the default places, or give "default". An empty list means no skills.'
    elif isinstance(given, Entry):
        hint = "Give its catalog, as in: catalog.where(names=[…])."
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        hint = "Give a list, because the order counts."
    message = f"{keyword}{repr(given)[:80]} is no place where skills can be."
    raise ConfigError(message, code="root-unknown", hint=hint)


def _is_source(given: object) -> TypeGuard[SkillSource]:
    return hasattr(given, "skills") and hasattr(given, "source") and not isinstance(given, type)


def _as_root(text: str, keyword: str) -> Root:
    """Makes a root from a path or address that was named in code."""
    home = os.environ.get("PROWESS_HOME") or os.path.expanduser("~")
    root = named_root(text, origin="given", base=os.getcwd(), home=home)
    if keyword:
        check_file(root, text)
    if not is_missing(root):
        return root
    hint = "Create it, or correct the path."
    if text.lower() in WORDS:
        hint = f"Did you mean {text.lower()!r}?"
    elif keyword and os.path.basename(text) == text:
        hint = f'{hint} A skill is activated by use=["{text}"].'
    message = f"There is no folder '{root.path}'."
    if keyword:
        message = f"{keyword}{text!r}: there is no folder '{root.path}'."
    raise ConfigError(message, code="root-missing", hint=hint)


_HINT = (
    "Give a folder, an address, a Skill, a SkillSource, a Catalog, a Library, 'builtin' or 'default', or a list of"
    " these."
)
