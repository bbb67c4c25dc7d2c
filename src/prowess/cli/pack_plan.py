"""Shows what an installation or update will change, as text and as JSON, and asks before it is carried out."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from prowess._internal.text import describe_letters, name_some
from prowess.cli.app import ask_person
from prowess.cli.call import Call
from prowess.cli.progress import ProgressBars
from prowess.cli.screen import count, size
from prowess.core.catalog_values import Finding
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.packs.lock import PackPlace
from prowess.packs.plan import Change, InstallPlan
from prowess.packs.values import LockedSkill
from prowess.runtime.services.capabilities import read_capabilities
from prowess.runtime.services.documents import finding_row
from prowess.skills.file_list import ChangeKind, FileDifference
from prowess.skills.skill import SkillFile, Visibility

if TYPE_CHECKING:
    from prowess.runtime.documents.packs import InstalledSkill

_KINDS: tuple[ChangeKind, ...] = ("added", "changed", "removed", "mode")
_MOST_PATHS = 4  # of one kind of change
_MOST_CHARS = 300  # of one kind of capability
_MOST_WHOLE = 12  # skills that are shown whole; further ones get a line each


_VERBS = dict.fromkeys(("install", "restore", "update", "record")) | {"accept": "let models use"}


class PlanView:
    """Plan as people and programs see it. It is made before the plan is carried out: it reads the skills of now."""

    def __init__(self, call: Call, place: PackPlace, changes: Sequence[Change], notes: Sequence[str]) -> None:
        self._call = call
        self._screen = call.screen
        self._place = place
        self._changes = changes
        self.notes = notes
        self.pending = [change for change in changes if change.action != "keep"]
        # Now, because files are moved when the plan is carried out. People do not see skills that stay as they are.
        shown = self.pending
        if call.screen.is_json:
            shown = changes
        for change in shown:
            change.skill.examine()
        self._before: dict[str, Sequence[str] | None] = {}
        for change in self.pending:
            if change.action == "update":
                folder = place.folder(change.name)
                self._before[change.name] = read_capabilities(folder)

    # --- for people --------------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Shows each change: versions, source, place, files, capabilities and findings."""
        screen = self._screen
        number = len(self.pending)
        if not screen.verbose:
            number = min(number, _MOST_WHOLE)
        for change in self.pending[:number]:
            self._show_change(change)
            screen.text()
        rest = self.pending[number:]
        for change in rest:
            self._show_short(change)
        if rest:
            screen.note(f"\n{len(rest)} of {len(self.pending)} skills are shown in short. See all of each with -v.")
        for note in self.notes:
            shown = visible(note)
            screen.note(f"note: {shown}")
        kept = len(self._changes) - len(self.pending)
        if kept and self.pending:
            others = count(kept, "other skill")
            screen.note(f"{others}: nothing changes.")

    def _show_short(self, change: Change) -> None:
        screen = self._screen
        title = _title(change)
        files = visible(_files(change))
        screen.text(f"{change.action}  {title}  {files}")
        for label, told in _look_out(change):
            shown = visible(told)
            screen.text(f"{label}   {shown}")
        screen.findings(_problems(change))

    def _show_change(self, change: Change) -> None:
        screen = self._screen
        title = _title(change)
        screen.heading(f"{change.action}  {title}")
        rows = self._change_rows(change)
        screen.fields(rows, gap=1)  # so that a digest fits into 80 columns
        findings = change.skill.findings
        if screen.verbose:
            screen.findings(findings)
            return
        problems = _problems(change)
        screen.findings(problems)
        remarks = len(findings) - len(problems)
        if remarks:
            more = count(remarks, "remark")
            screen.text(f"  {more} more with -v")

    def _change_rows(self, change: Change) -> list[tuple[str, str]]:
        rows = _look_out(change)
        source = _source(change.locked)
        rows.append(("  from", source))
        folder = self._place.folder(change.name)
        rows.append(("  to", shown_path(self._call, folder)))
        files = _files(change)
        rows.append(("  files", files))
        if change.edits:
            what = "A skill that was not installed by Prowess is"
            if change.before:
                what = "Your edits are"
            edited = paths(change.edits)
            rows.append(("  note", f"{what} replaced: {edited}. A backup is kept."))
        if change.action == "record":
            rows.append(("  note", "The files stay as they are. Only skills.toml and skills.lock change."))
        label = "  uses"
        for text in self._capabilities(change):
            rows.append((label, text))
            label = ""
        rows.append(("  digest", change.skill.digest))
        return rows

    def _capabilities(self, change: Change) -> list[str]:
        """Returns the capabilities of the new content. For an update, also how they differ from the content before."""
        capabilities = change.skill.capabilities
        before = self._before.get(change.name)
        if before is None:
            return [self._short(text) for text in capabilities] or ["nothing but text"]
        texts: list[str] = []
        new = _by_kind(capabilities)
        old = _by_kind(before)
        for kind, items in new.items():
            uses = self._short(f"{kind}: {items}")
            difference = self._short(_difference(old.get(kind), items))
            texts.append(f"{uses} ({difference})")
        for kind, items in old.items():
            if kind not in new:
                gone = self._short(f"no longer {kind}: {items}")
                texts.append(gone)
        return texts or ["nothing but text, as before"]

    def _short(self, text: str) -> str:
        """Cuts a long list, but never the list of tools."""
        is_short = len(text) <= _MOST_CHARS
        if is_short or self._screen.verbose:
            return text
        if text.startswith(("tools: ", "before: ")):
            return text
        return f"{text[:_MOST_CHARS]}… (all with -v)"

    # --- for programs ------------------------------------------------------------------------------------------------

    def rows(self, statuses: Mapping[str, Visibility]) -> list[InstalledSkill]:
        """Returns the JSON of each change. `statuses` says who may use a skill, by folder."""
        return [self._row(change, statuses) for change in self._changes]

    def _row(self, change: Change, statuses: Mapping[str, Visibility]) -> InstalledSkill:
        locked = change.locked
        version_before = None
        digest_before = None
        if change.before:
            version_before = change.before.version
            digest_before = change.before.digest
        skill = change.skill
        size_bytes = sum(file.size_bytes for file in skill.files)
        findings = [finding_row(finding) for finding in skill.findings]
        capabilities_before = self._before.get(change.name)
        folder = self._place.folder(change.name)
        status = None
        if folder in statuses:
            status = statuses[folder].status
        return {
            "name": change.name,
            "action": change.action,
            "path": folder,
            "source": locked.source,
            "kind": locked.kind,
            "ref": locked.ref,
            "commit": locked.commit,
            "sha256": locked.sha256,
            "version": locked.version,
            "version_before": version_before,
            "digest": locked.digest,
            "digest_before": digest_before,
            "files": len(skill.files),
            "size_bytes": size_bytes,
            "changes": to_json(change.files),
            "edits": to_json(change.edits),
            "capabilities": to_json(skill.capabilities),
            "capabilities_before": to_json(capabilities_before),
            "findings": findings,
            "status": status,
        }


class PlanQuestion:
    """Shows a plan and asks the person at the terminal. `yes` answers for them. `command` is what they typed, in
    short."""

    def __init__(self, call: Call, bars: ProgressBars, *, yes: bool, command: str) -> None:
        self._call = call
        self._bars = bars
        self._yes = yes
        self._command = command
        self.view: PlanView | None = None

    def __call__(self, plan: InstallPlan) -> bool:
        self._bars.stop()
        self.view = PlanView(self._call, plan.place, plan.changes, plan.notes)
        if not self._call.screen.is_json:
            self.view.show()
        question = self._question(plan)
        if question is not None and not self._yes:
            self._ask(question)
        return True

    def confirm_addresses(self, addresses: Sequence[str]) -> bool:
        """Asks before addresses are contacted that only the files of an untrusted folder name."""
        if self._yes:
            return True
        if not self._is_answered:
            named = visible(name_some(addresses, 5, quote="")[:600])
            message = f"This folder is not trusted, and its skills come from {named}. Nobody is there to say yes."
            hint = f"No address was contacted. If you know them: {self._command} --yes"
            raise ConfigError(message, code="needs-yes", hint=hint)
        self._call.screen.note("This folder is not trusted. Its skills.toml and skills.lock name:")
        for address in addresses:
            self._call.screen.note(f"  {visible(address)}")
        them = "this address" if len(addresses) == 1 else f"these {len(addresses)} addresses"
        ask_person(f"Contact {them}?", unless="No address was contacted, and nothing was changed.")
        return True

    @property
    def _is_answered(self) -> bool:
        """True if a person can see the plan and answer."""
        if self._call.screen.is_json:
            return False
        return sys.stdin.isatty()

    def _question(self, plan: InstallPlan) -> str | None:
        """Returns the question. None if nothing changes and no new content is accepted."""
        if not plan.pending:
            return None
        actions = {change.action for change in plan.pending}
        verbs = [word or action for action, word in _VERBS.items() if action in actions]
        verb = " and ".join(verbs).capitalize()
        skills = _named(plan.pending)
        errors = 0
        for change in plan.pending:
            errors += sum(finding.severity == "error" for finding in change.skill.findings)
        if not errors:
            return f"{verb} {skills}?"
        findings = count(errors, "finding")
        return f"{verb} {skills}, with {findings} of level error?"

    def _ask(self, question: str) -> None:
        if not self._is_answered:
            hint = "Look with --dry-run, then add --yes."
            raise ConfigError("Nobody is there to say yes. Nothing was changed.", code="needs-yes", hint=hint)
        ask_person(question, unless="Nothing was changed.")


def find_statuses(call: Call, folders: Iterable[str]) -> Mapping[str, Visibility]:
    """Returns who may use installed skills, by folder. A folder that is not searched for skills is left out."""
    by_path = {os.path.realpath(folder): folder for folder in folders}
    if not by_path:
        return {}
    statuses: dict[str, Visibility] = {}
    with call.runtime() as runtime:
        catalog = runtime.catalog
        for skill in catalog:
            folder = by_path.get(skill.real_path)
            if folder is not None:
                statuses[folder] = catalog.visibility(skill)
    return statuses


def version_change(before: LockedSkill | None, now: LockedSkill | None) -> str:
    """Renders ` 1.1.0 → 1.2.0`, or the only version that is known."""
    old = _version(before)
    new = _version(now)
    if old and new and old != new:
        return f" {old} → {new}"
    known = new or old
    if not known:
        return ""
    return f" {known}"


def _version(locked: LockedSkill | None) -> str:
    if locked is None or not locked.version:
        return ""
    shown = visible(locked.version)
    return shown[:40]


def file_changes(files: Sequence[FileDifference]) -> str:
    """Renders `1 added: a.md; 2 changed: b.py, c.py`."""
    parts: list[str] = []
    for kind in _KINDS:
        some = [file for file in files if file.kind == kind]
        if some:
            what = "with another mode" if kind == "mode" else kind
            named = paths(some)
            parts.append(f"{len(some)} {what}: {named}")
    return "; ".join(parts)


def paths(files: Sequence[FileDifference | SkillFile]) -> str:
    """Names a few of the files."""
    names = [file.path for file in files]
    named = name_some(names, _MOST_PATHS, quote="")
    return visible(named)


def rollback_commands(call: Call, names: Sequence[str]) -> list[str]:
    """Returns a command for each skill, with the options of this call."""
    command = call.follow_up("prowess rollback")
    return [f"{command} {shlex.quote(name)}" for name in names]


def shown_path(call: Call, path: str) -> str:
    """Returns a path below the working folder as a relative one."""
    below = os.path.relpath(path, call.cwd)
    if below.startswith(".."):
        return path
    return below


def _title(change: Change) -> str:
    """Renders `pdf-forms 1.1.0 → 1.2.0`."""
    name = visible(change.name)
    versions = version_change(change.before, change.locked)
    return f"{name}{versions}"


def _look_out(change: Change) -> list[tuple[str, str]]:
    """Returns rows about letters of the name that may look like others, and about another source than before."""
    rows: list[tuple[str, str]] = []
    letters = describe_letters(change.name)
    if letters:
        rows.append(("  name", f"'{change.name}' {letters}. Is it the one that you want?"))
    before = change.before
    if before is not None and before.source != change.locked.source:
        rows.append(("  was", f"installed from {before.source}. Do you trust the new source, too?"))
    return rows


def _source(locked: LockedSkill) -> str:
    source = locked.source
    if not locked.commit:
        return source
    commit = locked.commit[:12]
    return f"{source} (commit {commit})"


def _files(change: Change) -> str:
    files = change.skill.files
    size_bytes = sum(file.size_bytes for file in files)
    total = f"{count(len(files), 'file')}, {size(size_bytes)}"
    if change.action == "update":
        changed = file_changes(change.files)
        return f"{changed} ({total} in all)"
    named = paths(files)
    return f"{total}: {named}"


def _by_kind(texts: Iterable[str]) -> dict[str, str]:
    """Splits capabilities, such as `tools: bash, git`, into their kinds and items."""
    items_by_kind: dict[str, str] = {}
    for text in texts:
        kind, _, items = text.partition(": ")
        items_by_kind[kind] = items
    return items_by_kind


def _difference(before: str | None, now: str) -> str:
    """Says how the items of a kind of capability differ from those before."""
    if before is None:
        return "new"
    if before == now:
        return "as before"
    return f"before: {before}"


def _problems(change: Change) -> list[Finding]:
    """Returns the findings that are errors or warnings."""
    findings = change.skill.findings
    return [finding for finding in findings if finding.severity != "info"]


def _named(changes: Sequence[Change]) -> str:
    if len(changes) != 1:
        return count(len(changes), "skill")
    name = visible(changes[0].name)
    return f"'{name}'"
