"""Values that all parts of packs share: a source, an obtained pack, a skill in it, and its entry in the lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from prowess.core.catalog_values import Finding
from prowess.skills.skill import SkillFile

SourceKind = Literal["folder", "archive", "url", "git", "site", "package"]
StrPath = str | os.PathLike[str]
# Called while work goes on: what is being done, units done so far, all units or None when nobody knows.
Progress = Callable[[str, int, int | None], None]
ConfirmAddresses = Callable[[Sequence[str]], bool]  # True: they may be contacted


def no_progress(what: str, done: int, total: int | None) -> None:
    """Shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSource:
    """A SOURCE as it was understood. `text` names it in messages, wanted file and lock, without credentials."""

    kind: SourceKind
    text: str
    location: str = field(repr=False)  # absolute path, URL with its credentials, git URL, or Python distribution
    ref: str | None = None  # branch, tag or commit of a repository
    path: str | None = None  # folder within the source
    sha256: str | None = None  # pin of a download


@dataclass(frozen=True, slots=True, kw_only=True)
class Obtained:
    """A source on disk. `folder` is searched for skills. Its files may be moved away when `is_ours`, else only read."""

    source: PackSource
    folder: str
    is_ours: bool
    commit: str | None = None
    sha256: str | None = None  # of the download
    version: str | None = None  # of a Python distribution
    notes: tuple[str, ...] = ()  # what was left out, for a person
    left_out: tuple[str, ...] = ()  # links that were not written, relative to `folder`; a skill with one is refused
    hashes: Mapping[str, str] = field(default_factory=dict)  # sha256 of the files that were written here, by real path


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSkill:
    """Skill found in an obtained pack, read whole and checked."""

    name: str
    folder: str  # where its files are now
    path: str  # its folder within the source; "" at the top
    version: str | None
    digest: str
    files: tuple[SkillFile, ...]
    # Capabilities and findings, read when they are first asked for. Ask before the files are moved.
    examine: Callable[[], tuple[tuple[str, ...], tuple[Finding, ...]]] = field(compare=False, repr=False)
    left_out: tuple[str, ...] = ()  # files and folders that are no part of any skill, such as `.git/`

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Tools that the skill asks for, scripts, programs and packages that it needs, for a person."""
        return self.examine()[0]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.examine()[1]


class WantedSkill(NamedTuple):
    """Skill that somebody wants: its source, and its name there."""

    source: str
    skill: str

    def row(self, name: str) -> str | dict[str, str]:
        """Returns its value in the file, for a skill that is called `name` here."""
        if self.skill == name:
            return self.source
        return {"source": self.source, "skill": self.skill}


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedSkill:
    """Installed skill as the lock has it."""

    source: str
    kind: SourceKind
    skill: str  # its name in the source; the key of the lock is its name here
    path: str
    digest: str
    files: tuple[SkillFile, ...]
    ref: str | None = None
    commit: str | None = None
    sha256: str | None = None
    version: str | None = None
    installed_at: str

    @property
    def wanted(self) -> WantedSkill:
        """Entry of skills.toml that leads to this one."""
        return WantedSkill(self.source, self.skill)


Lock = Mapping[str, LockedSkill]  # by the names of the skills here
WantedChanges = Mapping[str, WantedSkill | None]  # None: nobody wants it any more
Origins = Mapping[str, WantedSkill | LockedSkill]
