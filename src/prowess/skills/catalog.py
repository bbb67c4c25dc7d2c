"""Catalog of every skill found. Resolves a name to a skill and decides who may use it.

Listing, loading, reading and running all use `Catalog.get` (resolves the name) and `Catalog.visibility` (who may see
it, and why), so they cannot disagree. A catalog is immutable: a reload makes a new one, and so does a filter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

from prowess._internal.globs import Glob
from prowess.core.catalog_values import Finding, Mode, Trigger
from prowess.core.findings import Note
from prowess.errors import ConfigError, SkillDenied, SkillInvalid, SkillNotFound
from prowess.skills.skill import FATAL, PRIORITY, Changes, Entry, RootReport, Skill, Visibility
from prowess.skills.spelling import near_names

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
        refuse_angle_brackets: bool = False,
    ) -> None:
        self._findings = tuple(findings)
        self.roots = tuple(roots)
        self.modes: dict[str, Mode] = dict(modes or {})
        self._patterns = sorted(self.modes, key=_width)
        self.refuse_angle_brackets = refuse_angle_brackets
        self._memory = dict(memory or {})
        self._removed = frozenset(removed)
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
                source, taken = entry.source, set()
            name = entry.qualified if "/" in entry.rel else entry.name
            if name in taken:
                entry = _told_apart(entry, name, taken)
            taken.add(name + entry.suffix)
            arranged.append(entry)
            if (entry.notes or self.modes) and not self._usable(entry):
                continue
            winner = winners.get(name)
            if (winner is None and source != "mcp") or (winner and entry.trusted and not winner.trusted):
                winners[name] = entry
        return tuple(arranged), winners

    def _usable(self, entry: Entry) -> bool:
        for note in self._notes_of(entry):
            if note.code in FATAL:
                return False
        return not self.modes or self._mode_of(entry)[0] != "off"

    @cached_property
    def _by_id(self) -> dict[str, Entry]:
        return {entry.id: entry for entry in self._entries}

    @cached_property
    def _by_loose_key(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self._entries:
            for key in {_loose_key(key) for key in (entry.id, entry.name, entry.qualified, entry.declared or "")}:
                found.setdefault(key, []).append(entry)
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
                key, path = (note.code, note.line, id(note.details)), entry.location_of(note)
                if key not in same:
                    same[key] = entry.finding_of(note)
                code, severity, _, message, line, hint = same[key]
                own.append(Finding(code, severity, path, message, line, hint))
        return (*self._findings, *own)

    def findings_of(self, entry: Entry) -> tuple[Finding, ...]:
        return tuple(map(entry.finding_of, self._notes_of(entry)))

    def finding_codes(self, entry: Entry) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note.code for note in self._notes_of(entry)))

    def memory_skill(self, entry: Entry) -> Skill | None:
        """Returns the skill of an entry that was defined in code, or None."""
        return self._memory.get(entry.root)

    # --- which one is meant ------------------------------------------------------------------------------------

    def get(self, ref: str, *, source: str | None = None) -> Entry:
        """Returns the entry for an id, a name or a nearly right name. Raises SkillNotFound, which suggests similar
        names."""
        entry = self.find(ref, source=source)
        if entry is None:
            raise self._not_found(ref, source)
        return entry

    def find(self, ref: str, *, source: str | None = None) -> Entry | None:
        if source is None and ref in self._winners:
            return self._winners[ref]
        if source is None and ref in self._by_id:
            return self._by_id[ref]
        if source is not None:
            return self._by_id.get(f"{source}:{ref}") or self._only(self._loosely(ref), source)
        return self._only(self._loosely(ref), None)

    def _loosely(self, ref: str) -> list[Entry]:
        """Returns entries whose id, name, qualified name or declared name is `ref`. Ignores case, and `_` equals
        `-`."""
        key = _loose_key(ref)
        return self._by_loose_key.get(key, []) if key else []

    def _only(self, found: list[Entry], source: str | None) -> Entry | None:
        """Returns the only entry that this name can mean, or None. MCP skills are found by id only."""
        if source is not None:
            found = [entry for entry in found if entry.source == source]
        else:
            found = [entry for entry in found if entry.source != "mcp"]
        if len(found) > 1:
            unusable = ("shadowed", "off", "invalid", "denied")
            found = [entry for entry in found if self.visibility(entry).status not in unusable]
        return found[0] if len(found) == 1 else None

    def _not_found(self, ref: str, source: str | None) -> SkillNotFound:
        shown = ref[:100]
        if {_loose_key(ref), _loose_key(f"{source}:{ref}")} & self._removed:
            return SkillNotFound(
                f"The skill '{shown}' was removed since this catalog was first read.",
                code="skill-removed",
                hint="Go on without it, or restore its folder.",
            )
        meant = sorted(entry.id for entry in self._loosely(ref))
        if meant:  # it exists, but this name does not resolve to it
            several = len(meant) > 1 and source is None
            return SkillNotFound(
                f"'{shown}' can mean {len(meant)} skills." if several else f"No skill '{shown}' can be had this way.",
                near=meant,
                code="skill-ambiguous" if several else "skill-not-found",
                hint=f"Say which: {', '.join(meant[:5])}",
            )
        where = f" in source '{source}'" if source else ""
        near = self._near(ref)
        if near:
            meant = " or ".join(f"'{name}'" for name in near)
            hint = f"Did you mean {meant}? See: prowess list"
        else:
            hint = "See: prowess list" if self._entries else "No skills are installed here. See: prowess doctor"
        return SkillNotFound(f"No skill '{shown}'{where}.", near=near, hint=hint)

    def _near(self, ref: str) -> list[str]:
        wanted = _loose_key(ref[:100].rpartition(":")[2])
        names = sorted({entry.name for entry in self._entries if self.visibility(entry).user_visible})
        starts = [name for name in names if wanted and _loose_key(name).startswith(wanted)]
        close = near_names(wanted, names, 3)
        return list(dict.fromkeys([*close, *starts]))[:3]

    # --- who may have it ---------------------------------------------------------------------------------------

    def visibility(self, entry: Entry) -> Visibility:
        """Decides who may see a skill. Listing, loading, reading and running share this decision."""
        own = self._by_itself(entry)
        winner = self._winners.get(entry.qualified)
        if own.status in ("invalid", "denied", "off") or winner is None or winner is entry or entry.source == "mcp":
            return own
        why = f"{winner.id} comes first ({_why_first(winner, entry)})"
        return Visibility("shadowed", (why, *own.reasons), False, False, own.mode)

    def _by_itself(self, entry: Entry) -> Visibility:
        """Decides about a skill as if it were the only one. Shadowing does not lift these restrictions."""
        mode, why_mode = self._mode_of(entry)
        fatal = [note.code for note in self._notes_of(entry) if note.code in FATAL] if entry.notes else []
        if fatal and (denied := _find_note(entry, "digest-denied")):
            return Visibility("denied", (f"{denied.details['policy']} denies its content",), False, True, mode)
        if fatal:
            return Visibility("invalid", (f"its SKILL.md cannot be used: {', '.join(fatal)}",), False, True, mode)
        if mode == "off":
            return Visibility("off", (why_mode,), False, False, mode)
        if not entry.trusted:
            return Visibility("untrusted", (_why_untrusted(entry),), False, True, mode)
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
            raise ConfigError(
                f"'{trigger}' is no trigger.", code="trigger-unknown", hint=f"Use one of {', '.join(TRIGGERS)}."
            )
        seen = self._by_itself(entry)
        if seen.status == "invalid":
            findings = [finding for finding in self.findings_of(entry) if finding.severity == "error"]
            raise SkillInvalid(
                f"The skill '{entry.name}' cannot be used: {findings[0].message}",
                findings=findings,
                hint=f"{findings[0].hint} File: {entry.location}",
            )
        if seen.status in ("denied", "untrusted", "off", "hidden") or (seen.status == "manual" and trigger == "model"):
            raise SkillDenied(
                f"The skill '{entry.name}' may not be loaded: {seen.reasons[0]}.",
                code="digest-denied" if seen.status == "denied" else f"skill-{seen.status}",
                hint=self._denial_hint(entry, seen),
            )
        if trigger == "user" and not entry.controls.user_invocable:
            raise SkillDenied(
                f"The skill '{entry.name}' may not be started by name: user-invocable: false.",
                code="skill-not-invocable",
                hint="Ask without /name and $name, in words of its description: the model may load it.",
            )
        return self.visibility(entry)

    def _denial_hint(self, entry: Entry, seen: Visibility) -> str:
        code = {"denied": "digest-denied", "untrusted": "accepted-changed"}.get(seen.status, "")
        if note := _find_note(entry, code):
            return str(entry.finding_of(note).hint)
        if seen.status == "untrusted" and entry.root in self._memory:
            return "Look at its content, and accept it in code: discover(…, accepts=…)."
        by_config = seen.status == "hidden" and seen.reasons[0].startswith("[skills.modes]")
        return _DENIAL_HINTS["off" if by_config else seen.status].format(place=self._place_to_trust(entry))

    def _place_to_trust(self, entry: Entry) -> str:
        for root in self.roots:
            if root.path == entry.root and root.url:
                return root.url
        parent, folder = os.path.split(os.path.dirname(entry.root))
        return parent if folder in (".agent", ".agents", ".claude") else entry.root

    def _mode_of(self, entry: Entry) -> tuple[Mode, str]:
        """Returns the skill's mode and the reason: the configuration first (narrow patterns before wide ones), then the
        author.

        When the author reserves a skill for people, only a pattern without wildcards that says pin or auto lifts that.
        """
        for pattern in self._patterns:
            mode = self.modes[pattern]
            keeps = mode in ("manual", "off") or (mode in ("pin", "auto") and not _is_wild(pattern))
            if matches_pattern(pattern, entry) and (keeps or entry.controls.mode != "manual"):
                return mode, f"[skills.modes] '{pattern}' = {mode}"
        if entry.controls.mode == "manual":
            return "manual", "disable-model-invocation: true"
        return "auto", ""

    def _notes_of(self, entry: Entry) -> tuple[Note, ...]:
        if not self.refuse_angle_brackets:
            return entry.notes
        return tuple(
            note._replace(code="angle-brackets-refused") if note.code == "angle-brackets" else note
            for note in entry.notes
        )

    # --- other catalogs from this one --------------------------------------------------------------------------

    def where(self, keep: Callable[[Entry], bool]) -> Catalog:
        """Returns a view without the skills that are not kept. They are missing from lists and look-ups, with the same
        error as a skill that does not exist. Skills that they shadowed become visible."""
        kept = [entry for entry in self._entries if keep(entry)]
        hidden = {entry.location for entry in self._entries} - {entry.location for entry in kept}
        findings = [finding for finding in self._findings if finding.path not in hidden]
        bases = [entry.root for entry in kept]
        roots = [root._replace(skills=bases.count(os.path.realpath(root.path))) for root in self.roots]
        modes = {
            pattern: mode for pattern, mode in self.modes.items() if any(matches_pattern(pattern, e) for e in kept)
        }
        return self._with(entries=kept, findings=findings, roots=roots, modes=modes, removed=())

    def distrusting(self, is_taken_back: Callable[[Entry], bool]) -> Catalog:
        """Returns the same skills; those for which `is_taken_back` is true are no longer trusted."""
        entries = [entry._replace(trusted=False) if is_taken_back(entry) else entry for entry in self._entries]
        return self.replacing(entries)

    def replacing(self, entries: Iterable[Entry]) -> Catalog:
        """Returns a catalog of these entries, which are the same skills with other notes."""
        return self._with(entries=entries, removed=self._removed)

    def changes_since(self, before: Catalog) -> Changes:
        old, new = before._by_id, self._by_id
        return Changes(
            added=tuple(id for id in new if id not in old),
            changed=tuple(id for id, entry in new.items() if id in old and old[id] != entry),
            removed=tuple(id for id in old if id not in new),
        )

    def remembering(self, before: Catalog) -> Catalog:
        """Returns this catalog, which answers "removed" for skills that only `before` had."""
        had = before._removed.union(*(_names(entry) for entry in before._entries))
        return self._with(entries=self._entries, removed=had.difference(*(_names(entry) for entry in self._entries)))

    def _with(self, **changed: Any) -> Catalog:
        kept = {
            "findings": self._findings,
            "roots": self.roots,
            "modes": self.modes,
            "memory": self._memory,
            "refuse_angle_brackets": self.refuse_angle_brackets,
        }
        return Catalog(**{**kept, **changed})


_ACTIVE = Visibility("active", (), True, True, "auto")  # made once: nearly every skill is active

_DENIAL_HINTS = {
    "untrusted": "Look at it, then run: prowess trust {place}",
    "off": "Change its mode under [skills.modes] to use it. Where that is: prowess config show --origin",
    "hidden": "Its author hides it from people and models alike.",
    "manual": "Only a person may start it. Ask the user to run it by name.",
}


def matches_pattern(pattern: str, entry: Entry) -> bool:
    """True when a pattern fits a skill: `pdf`, `pdf-*`, `acme/*` or `project:pdf`."""
    if pattern in (entry.name, entry.qualified) or pattern == entry.id:
        return True
    if not _is_wild(pattern):
        return False
    keys = (entry.id,) if ":" in pattern else (entry.name, entry.qualified)
    return any(map(Glob(pattern, sets=True, folders=False).fullmatch, keys))


def _rank(entry: Entry) -> int:
    return _RANK[entry.source]


def _width(pattern: str) -> tuple[bool, int, int, str]:
    """Sort key of patterns, narrow before wide: ids, qualified names, names, then wildcards, longer ones first."""
    return _is_wild(pattern), 0 if ":" in pattern else 1 if "/" in pattern else 2, -len(pattern), pattern


def _is_wild(pattern: str) -> bool:
    return any(c in pattern for c in "*?[")


def _names(entry: Entry) -> set[str]:
    return {_loose_key(name) for name in (entry.id, entry.name, entry.qualified)}


def _told_apart(entry: Entry, name: str, taken: set[str]) -> Entry:
    """Adds a suffix to the id. The suffix is a hash of the path, so it stays the same while the skill is not moved."""
    from zlib import crc32

    suffix = base = f"@{crc32(entry.path.encode('utf-8', 'surrogateescape')) & 0xFFFFFF:06x}"
    number = 1
    while name + suffix in taken:
        number += 1
        suffix = f"{base}-{number}"
    return entry._replace(suffix=suffix)


def _why_first(winner: Entry, loser: Entry) -> str:
    if winner.trusted and not loser.trusted:
        return "an untrusted skill never stands before a trusted one"
    if winner.source != loser.source:
        return f"{winner.source} before {loser.source}"
    return f"found first, in {winner.root}" if winner.root != loser.root else f"found first, at {winner.path}"


def _find_note(entry: Entry, code: str) -> Note | None:
    return next((note for note in entry.notes if note.code == code), None)


def _why_untrusted(entry: Entry) -> str:
    if _find_note(entry, "accepted-changed"):
        return "it changed since you accepted it"
    if entry.source == "url":
        return "its content has not been accepted"
    if entry.source == "mcp":
        return "its server's skills have not been accepted"
    return "its folder is not trusted"


def _loose_key(text: str) -> str:
    return text.strip().casefold().replace("_", "-").replace(" ", "-")
