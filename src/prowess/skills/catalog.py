"""Catalog of every skill found. Resolves a name to a skill and decides who may use it.

Listing, loading, reading and running all use `Catalog.get` (resolves the name) and `Catalog.visibility` (who may see
it, and why), so they cannot disagree. A catalog is immutable: a reload makes a new one, and so does a filter.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

from prowess.core.catalog_values import Finding, Mode, Source, Trigger
from prowess.core.findings import Note
from prowess.errors import ConfigError, SkillDenied, SkillInvalid, SkillNotFound
from prowess.skills.filters import Keep, make_filter
from prowess.skills.name_patterns import is_wild, matches_pattern, width
from prowess.skills.reasons import unusable, why_first, why_untrusted
from prowess.skills.skill import FATAL, PRIORITY, CatalogPart, Changes, Entry, RootReport, Skill, Visibility
from prowess.skills.spelling import loose_key, near_names

TRIGGERS = get_args(Trigger)
_RANK = {source: rank for rank, source in enumerate(PRIORITY)}


class Catalog:
    """Every skill found, in order of priority. Resolves names and decides who may use a skill."""

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        findings: Sequence[Finding] = (),
        roots: Sequence[RootReport] = (),
        modes: Mapping[str, Mode] | None = None,
        memory: Mapping[str, Skill] | None = None,
        removed: Iterable[str] = (),
        given_modes: Mapping[str, tuple[Mode, str]] | None = None,
        refuse_angle_brackets: bool = False,
    ) -> None:
        self._findings = tuple(findings)
        self.roots: tuple[RootReport, ...] = tuple(roots)
        self.modes: dict[str, Mode] = dict(modes or {})
        self._patterns = sorted(self.modes, key=width)
        self.refuse_angle_brackets = refuse_angle_brackets
        self._memory = dict(memory or {})
        self._removed = frozenset(removed)
        self.is_view: bool = False  # `where` left skills out
        self._given_modes = given_modes or {}  # by the location of skills that came with another catalog
        self._entries, self._winners = self._arrange(entries)

    def _arrange(self, entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], dict[str, Entry]]:
        """Sorts the entries by priority, makes ids unique, and resolves each qualified name to one entry.

        A trusted skill wins over an untrusted one; then the source's priority decides, then the order. A broken or
        disabled skill wins no name. An MCP skill is found by its id only. When two skills of one source share a name,
        the later one's id gets a short hash of its path.
        """
        arranged: list[Entry] = []
        winners: dict[str, Entry] = {}
        taken: set[str] = set()
        source = None
        for entry in sorted(entries, key=_rank):  # stable: roots keep their given order
            if entry.source != source:
                source = entry.source
                taken = set()
            name = entry.qualified if "/" in entry.rel else entry.name
            if name in taken:
                entry = entry.told_apart(name, taken)
            taken.add(name + entry.suffix)
            arranged.append(entry)
            if (entry.notes or self.modes or self._given_modes) and not self._usable(entry):
                continue
            winner = winners.get(name)
            if winner is None:
                wins = source != "mcp"
            else:
                wins = entry.trusted and not winner.trusted
            if wins:
                winners[name] = entry
        return tuple(arranged), winners

    def _usable(self, entry: Entry) -> bool:
        for note in self._notes_of(entry):
            if note.code in FATAL:
                return False
        if not self.modes and not self._given_modes:
            return True
        mode, _ = self._mode_of(entry)
        return mode != "off"

    @cached_property
    def _by_id(self) -> dict[str, Entry]:
        return {entry.id: entry for entry in self._entries}

    @cached_property
    def _by_loose_key(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self._entries:
            keys = names_of(entry)
            keys.add(loose_key(entry.declared or ""))
            for key in keys:
                same = found.setdefault(key, [])
                same.append(entry)
        return found

    # --- what there is -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, ref: str) -> bool:
        return self.find(ref) is not None

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self._entries

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the library: its roots first, then each skill in order."""
        own: list[Finding] = []
        same: dict[tuple[str, int | None, int], Finding] = {}  # skills from the cache share notes
        for entry in self._entries:
            if not entry.notes:
                continue
            for note in self._notes_of(entry):
                key = (note.code, note.line, id(note.details))
                if key not in same:
                    same[key] = entry.finding_of(note)
                code, severity, _, message, line, hint = same[key]
                path = entry.location_of(note)
                own.append(Finding(code, severity, path, message, line, hint))
        return (*self._findings, *own)

    def findings_of(self, entry: Entry) -> tuple[Finding, ...]:
        notes = self._notes_of(entry)
        return tuple(map(entry.finding_of, notes))

    def finding_codes(self, entry: Entry) -> tuple[str, ...]:
        """Returns the codes of the skill's findings, each once."""
        codes: dict[str, None] = {}
        for note in self._notes_of(entry):
            codes[note.code] = None
        return tuple(codes)

    def memory_skill(self, entry: Entry) -> Skill | None:
        """Returns the skill of an entry that was defined in code, with this entry, or None."""
        skill = self._memory.get(entry.root)
        return None if skill is None else skill._replace(entry=entry)

    # --- which one is meant ------------------------------------------------------------------------------------

    def get(self, ref: str, *, source: str | None = None) -> Entry:
        """Returns the entry for an id, a name or a nearly right name. Raises SkillNotFound, which suggests similar
        names."""
        entry = self.find(ref, source=source)
        if entry is None:
            raise self._not_found(ref, source)
        return entry

    def find(self, ref: str, *, source: str | None = None) -> Entry | None:
        """Returns the entry for an id, a name or a nearly right name, or None."""
        if source is None:
            entry = self._winners.get(ref) or self._by_id.get(ref)
        else:
            entry = self._by_id.get(f"{source}:{ref}")
        if entry is not None:
            return entry
        found = self._loosely(ref)
        return self._only(found, source)

    def _loosely(self, ref: str) -> list[Entry]:
        """Returns entries whose id, name, qualified name or declared name is `ref`. Ignores case, and `_` equals
        `-`."""
        key = loose_key(ref)
        if not key:
            return []
        return self._by_loose_key.get(key, [])

    def _only(self, found: list[Entry], source: str | None) -> Entry | None:
        """Returns the only entry that this name can mean, or None. MCP skills are found by id only."""
        if source is not None:
            found = [entry for entry in found if entry.source == source]
        else:
            found = [entry for entry in found if entry.source != "mcp"]
        if len(found) > 1:
            found = [entry for entry in found if self._is_usable_by_name(entry)]
        if len(found) != 1:
            return None
        return found[0]

    def _is_usable_by_name(self, entry: Entry) -> bool:
        seen = self.visibility(entry)
        return seen.status not in ("shadowed", "off", "invalid", "denied")

    def _not_found(self, ref: str, source: str | None) -> SkillNotFound:
        shown = ref[:100]
        keys = {loose_key(ref), loose_key(f"{source}:{ref}")}
        if keys & self._removed:
            message = f"The skill '{shown}' was removed since this catalog was first read."
            return SkillNotFound(message, code="skill-removed", hint="Go on without it, or restore its folder.")
        meant = sorted(entry.id for entry in self._loosely(ref))
        if meant:  # it exists, but this name does not resolve to it
            hint = f"Say which: {', '.join(meant[:5])}"
            if len(meant) > 1 and source is None:
                message = f"'{shown}' can mean {len(meant)} skills."
                return SkillNotFound(message, near=meant, code="skill-ambiguous", hint=hint)
            message = f"No skill '{shown}' can be had this way."
            return SkillNotFound(message, near=meant, code="skill-not-found", hint=hint)
        where = f" in source '{source}'" if source else ""
        near = self._near(ref)
        if near:
            names = " or ".join(f"'{name}'" for name in near)
            hint = f"Did you mean {names}? See: prowess list"
        elif self._entries:
            hint = "See: prowess list"
        else:
            hint = "No skills are installed here. See: prowess doctor"
        return SkillNotFound(f"No skill '{shown}'{where}.", near=near, hint=hint)

    def _near(self, ref: str) -> list[str]:
        """Returns up to three visible names: with nearly the same spelling, then with the same beginning."""
        _, _, name = ref[:100].rpartition(":")
        wanted = loose_key(name)
        visible: set[str] = set()
        for entry in self._entries:
            seen = self.visibility(entry)
            if seen.user_visible:
                visible.add(entry.name)
        names = sorted(visible)
        starts = [name for name in names if wanted and loose_key(name).startswith(wanted)]
        near = dict.fromkeys([*near_names(wanted, names, 3), *starts])
        return list(near)[:3]

    # --- who may have it ---------------------------------------------------------------------------------------

    def visibility(self, entry: Entry) -> Visibility:
        """Decides who may see a skill. Listing, loading, reading and running share this decision."""
        own = self._by_itself(entry)
        winner = self._winners.get(entry.qualified)
        if winner is None or winner is entry or entry.source == "mcp":
            return own
        if own.status in ("invalid", "denied", "off"):
            return own
        why = f"{winner.id} comes first ({why_first(winner, entry)})"
        return Visibility("shadowed", (why, *own.reasons), False, False, own.mode)

    def _by_itself(self, entry: Entry) -> Visibility:
        """Decides about a skill as if it were the only one. Shadowing does not lift these restrictions."""
        mode, why_mode = self._mode_of(entry)
        if entry.notes:
            fatal = [note.code for note in self._notes_of(entry) if note.code in FATAL]
            if fatal:
                return unusable(entry, fatal, mode)
        if mode == "off":
            return Visibility("off", (why_mode,), False, False, mode)
        if not entry.trusted:
            return Visibility("untrusted", (why_untrusted(entry),), False, True, mode)
        user_visible = entry.controls.user_invocable
        if mode == "manual":
            if not user_visible:
                return Visibility("hidden", (why_mode, "user-invocable: false"), False, False, mode)
            return Visibility("manual", (why_mode,), False, True, mode)
        if not why_mode and user_visible:
            return _ACTIVE
        reasons = (why_mode,) if why_mode else ()
        if not user_visible:
            reasons += ("user-invocable: false keeps it for the model: people cannot start it by name",)
        return Visibility("active", reasons, True, user_visible, mode)

    def allow(self, entry: Entry, *, trigger: Trigger = "caller") -> Visibility:
        """Checks that the caller may load, read or run a skill. Raises SkillDenied or SkillInvalid with the reason.

        A shadowed skill can be used by its id, by everybody who could use it if it were not shadowed.
        """
        if trigger not in TRIGGERS:
            hint = f"Use one of {', '.join(TRIGGERS)}."
            raise ConfigError(f"'{trigger}' is no trigger.", code="trigger-unknown", hint=hint)
        seen = self._by_itself(entry)
        if seen.status == "invalid":
            raise self._invalid(entry)
        is_denied = seen.status in ("denied", "untrusted", "off", "hidden")
        if is_denied or (seen.status == "manual" and trigger == "model"):
            message = f"The skill '{entry.name}' may not be loaded: {seen.reasons[0]}."
            hint = self._denial_hint(entry, seen)
            if seen.status == "denied":
                raise SkillDenied(message, code="digest-denied", hint=hint)
            raise SkillDenied(message, code=f"skill-{seen.status}", hint=hint)
        if trigger == "user" and not entry.controls.user_invocable:
            message = f"The skill '{entry.name}' may not be started by name: user-invocable: false."
            hint = "Ask without /name and $name, in words of its description: the model may load it."
            raise SkillDenied(message, code="skill-not-invocable", hint=hint)
        return self.visibility(entry)

    def _invalid(self, entry: Entry) -> SkillInvalid:
        findings = [finding for finding in self.findings_of(entry) if finding.severity == "error"]
        first = findings[0]
        message = f"The skill '{entry.name}' cannot be used: {first.message}"
        return SkillInvalid(message, findings=findings, hint=f"{first.hint} File: {entry.location}")

    def _denial_hint(self, entry: Entry, seen: Visibility) -> str:
        code = _NOTES_OF_DENIALS.get(seen.status, "")
        note = entry.find_note(code)
        if note is not None:
            return str(entry.finding_of(note).hint)
        if seen.status == "untrusted" and entry.root in self._memory:
            return "Look at its content, and accept it in code: discover(…, accepts=…)."
        status = seen.status
        if status == "hidden" and seen.reasons[0].startswith("[skills.modes]"):
            status = "off"
        return _DENIAL_HINTS[status].format(place=self._place_to_trust(entry))

    def _place_to_trust(self, entry: Entry) -> str:
        for root in self.roots:
            if root.path == entry.root and root.url:
                return root.url
        above = os.path.dirname(entry.root)
        parent, folder = os.path.split(above)
        if folder in (".agent", ".agents", ".claude"):
            return parent
        return entry.root

    def _mode_of(self, entry: Entry) -> tuple[Mode, str]:
        """Returns the skill's mode and the reason: the configuration first (narrow patterns before wide ones), then the
        author. A skill that was off or manual in a catalog that was given stays so.

        When the author reserves a skill for people, only a pattern without wildcards that says pin or auto lifts that.
        """
        found = self._configured_mode(entry)
        given = self._given_modes.get(entry.location) if self._given_modes else None
        if given is not None and (found is None or (given[0] in ("off", "manual") and found[0] != "off")):
            return given
        if found is not None:
            return found
        if entry.controls.mode == "manual":
            return "manual", "disable-model-invocation: true"
        return "auto", ""

    def _configured_mode(self, entry: Entry) -> tuple[Mode, str] | None:
        is_reserved = entry.controls.mode == "manual"
        for pattern in self._patterns:
            if not matches_pattern(pattern, entry):
                continue
            mode = self.modes[pattern]
            lifts = mode in ("pin", "auto") and not is_wild(pattern)
            if not is_reserved or lifts or mode in ("manual", "off"):
                return mode, f"[skills.modes] '{pattern}' = {mode}"
        return None

    def _notes_of(self, entry: Entry) -> tuple[Note, ...]:
        if not self.refuse_angle_brackets:
            return entry.notes
        notes: list[Note] = []
        for note in entry.notes:
            if note.code == "angle-brackets":
                note = note._replace(code="angle-brackets-refused")
            notes.append(note)
        return tuple(notes)

    # --- other catalogs from this one --------------------------------------------------------------------------

    def where(
        self,
        keep: Keep | None = None,
        *,
        names: str | Iterable[str] | None = None,
        source: Source | None = None,
    ) -> Catalog:
        """Returns a view of the skills that satisfy all conditions: `keep(entry)` is true, one of the `names` (also ids
        and patterns such as `pdf-*`) fits, the source is this one.

        Other skills are missing from lists, look-ups, findings and counts, with the same error as a skill that does not
        exist. Skills that they shadowed become visible. A name that fits no skill raises SkillNotFound.
        """
        is_kept = make_filter(self, keep, names, source)
        parts = list(self.parts(is_kept))
        above = tuple(f"{part.entry.path.rstrip(os.sep)}{os.sep}" for part in parts)
        bases = Counter(part.entry.root for part in parts)
        roots: list[RootReport] = []
        for root in self.roots:
            skills = bases[os.path.realpath(root.path)]
            if skills:
                roots.append(root._replace(skills=skills))
        view = self._with(
            entries=[part.entry for part in parts],
            findings=[finding for finding in self._findings if finding.path.startswith(above)],
            roots=roots,
            modes={},
            given_modes={part.entry.location: part.mode for part in parts if part.mode},
        )
        view.is_view = True
        return view

    def parts(self, keep: Keep = lambda entry: True) -> Iterator[CatalogPart]:
        """Yields entries for another catalog, with the modes that they have here."""
        for entry in self._entries:
            if not keep(entry):
                continue
            mode = None
            if self._configured_mode(entry) or entry.location in self._given_modes:
                mode = self._mode_of(entry)
            part = entry._replace(notes=self._notes_of(entry), suffix="")
            yield CatalogPart(part, self.memory_skill(entry), mode)

    @property
    def root_findings(self) -> tuple[Finding, ...]:
        """Findings about roots, without those about single skills."""
        return self._findings

    @property
    def removed(self) -> frozenset[str]:
        """Names of skills that an earlier catalog of the same library had."""
        return self._removed

    def distrusting(self, is_taken_back: Callable[[Entry], bool]) -> Catalog:
        """Returns the same skills; those for which `is_taken_back` is true are no longer trusted."""
        entries: list[Entry] = []
        for entry in self._entries:
            if is_taken_back(entry):
                entry = entry._replace(trusted=False)
            entries.append(entry)
        return self.replacing(entries)

    def replacing(self, entries: Iterable[Entry]) -> Catalog:
        """Returns a catalog of these entries, which are the same skills with other notes."""
        return self._with(entries=entries, removed=self._removed)

    def changes_since(self, before: Catalog) -> Changes:
        """Compares the skills of this catalog, by their ids, with those of an earlier one."""
        old = before._by_id
        new = self._by_id
        added: list[str] = []
        changed: list[str] = []
        for id, entry in new.items():
            if id not in old:
                added.append(id)
            elif old[id] != entry:
                changed.append(id)
        removed = [id for id in old if id not in new]
        return Changes(tuple(added), tuple(changed), tuple(removed))

    def remembering(self, before: Catalog) -> Catalog:
        """Returns this catalog, which answers "removed" for skills that only `before` had."""
        removed = set(before._removed)
        for entry in before._entries:
            removed |= names_of(entry)
        for entry in self._entries:
            removed -= names_of(entry)
        return self._with(entries=self._entries, removed=removed)

    def _with(self, **changed: Any) -> Catalog:
        kept = {
            "findings": self._findings,
            "roots": self.roots,
            "modes": self.modes,
            "memory": self._memory,
            "given_modes": self._given_modes,
            "refuse_angle_brackets": self.refuse_angle_brackets,
        }
        made = Catalog(**{**kept, **changed})
        made.is_view = self.is_view
        return made


_ACTIVE = Visibility("active", (), True, True, "auto")  # made once: nearly every skill is active

_NOTES_OF_DENIALS = {"denied": "digest-denied", "untrusted": "accepted-changed"}  # codes of notes with a better hint
_DENIAL_HINTS = {
    "untrusted": "Look at it, then run: prowess trust {place}",
    "off": "Change its mode under [skills.modes] to use it. Where that is: prowess config show --origin",
    "hidden": "Its author hides it from people and models alike.",
    "manual": "Only a person may start it. Ask the user to run it by name.",
}


def _rank(entry: Entry) -> int:
    return _RANK[entry.source]


def names_of(entry: Entry) -> set[str]:
    """Returns the names that mean this skill, without differences in spelling."""
    names = (entry.id, entry.name, entry.qualified)
    return set(map(loose_key, names))
