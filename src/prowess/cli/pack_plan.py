"""Shows what an installation or update will change, as text and as JSON, and asks before it is carried out."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import click

from prowess._internal.text import describe_letters, name_some
from prowess.cli.app import ask_person
from prowess.cli.call import Call
from prowess.cli.progress import ProgressBars
from prowess.cli.screen import count, size
from prowess.core.catalog_values import Finding
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.errors import ConfigError, PackError
from prowess.packs.lock import PackPlace, find_place, read_lock
from prowess.packs.plan import Change, InstallPlan
from prowess.packs.settings import PackOptions
from prowess.packs.values import LockedSkill
from prowess.runtime.config import find_places
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


def _check_place(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise ConfigError("--to is empty.", code="usage", hint="Use project, user, or a folder.")
    return value


to_option = click.option(
    "--to",
    default="project",
    callback=_check_place,
    metavar="project|user|DIR",
    help="Where skills are installed: .agent/skills of the project or of your home, or a folder.  [default: project]",
)


_VERBS = dict.fromkeys(("install", "restore", "update", "record")) | {"accept": "let models use"}


class PlanView:
    """Plan as people and programs see it. It is made before the plan is carried out: it reads the skills of now."""

    def __init__(self, call: Call, place: PackPlace, changes: Sequence[Change], notes: Sequence[str]) -> None:
        self._call, self._screen, self._place = call, call.screen, place
        self._changes, self.notes = changes, notes
        self.pending = [change for change in changes if change.action != "keep"]
        # Now, because files are moved when the plan is carried out. People do not see skills that stay as they are.
        for change in changes if call.screen.is_json else self.pending:
            change.skill.examine()
        self._before = {
            change.name: read_capabilities(place.folder(change.name))
            for change in self.pending
            if change.action == "update"
        }

    # --- for people --------------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Shows each change: versions, source, place, files, capabilities and findings."""
        screen = self._screen
        whole = self.pending if screen.verbose else self.pending[:_MOST_WHOLE]
        for change in whole:
            self._show_change(change)
            screen.text()
        rest = self.pending[len(whole) :]
        for change in rest:
            screen.text(f"{change.action}  {_title(change)}  {visible(_files(change))}")
            for label, told in _look_out(change):
                screen.text(f"{label}   {visible(told)}")
            screen.findings(_problems(change))
        if rest:
            screen.note(f"\n{len(rest)} of {len(self.pending)} skills are shown in short. See all of each with -v.")
        for note in self.notes:
            screen.note(f"note: {visible(note)}")
        kept = len(self._changes) - len(self.pending)
        if kept and self.pending:
            screen.note(f"{count(kept, 'other skill')}: nothing changes.")

    def _show_change(self, change: Change) -> None:
        screen = self._screen
        screen.heading(f"{change.action}  {_title(change)}")
        folder = shown_path(self._call, self._place.folder(change.name))
        rows = [*_look_out(change), ("  from", _source(change.locked)), ("  to", folder), ("  files", _files(change))]
        if change.edits:
            what = "Your edits are" if change.before else "A skill that was not installed by Prowess is"
            rows.append(("  note", f"{what} replaced: {paths(change.edits)}. A backup is kept."))
        if change.action == "record":
            rows.append(("  note", "The files stay as they are. Only skills.toml and skills.lock change."))
        for number, text in enumerate(self._capabilities(change)):
            rows.append(("  uses" if number == 0 else "", text))
        rows.append(("  digest", change.skill.digest))
        screen.fields(rows, gap=1)  # so that a digest fits into 80 columns
        screen.findings(change.skill.findings if screen.verbose else _problems(change))
        remarks = len(change.skill.findings) - len(_problems(change))
        if remarks and not screen.verbose:
            screen.text(f"  {count(remarks, 'remark')} more with -v")

    def _capabilities(self, change: Change) -> list[str]:
        """Returns the capabilities of the new content. For an update, also how they differ from the content before."""
        new, old = _by_kind(change.skill.capabilities), _by_kind(self._before.get(change.name) or ())
        if change.action != "update" or self._before[change.name] is None:
            return [self._short(text) for text in change.skill.capabilities] or ["nothing but text"]
        texts = []
        for kind, items in new.items():
            before = "new" if kind not in old else "as before" if old[kind] == items else f"before: {old[kind]}"
            texts.append(f"{self._short(f'{kind}: {items}')} ({self._short(before)})")
        texts += [self._short(f"no longer {kind}: {items}") for kind, items in old.items() if kind not in new]
        return texts or ["nothing but text, as before"]

    def _short(self, text: str) -> str:
        """Cuts a long list, but never the list of tools."""
        whole = self._screen.verbose or len(text) <= _MOST_CHARS or text.startswith(("tools: ", "before: "))
        return text if whole else f"{text[:_MOST_CHARS]}… (all with -v)"

    # --- for programs ------------------------------------------------------------------------------------------------

    def rows(self, statuses: Mapping[str, Visibility]) -> list[InstalledSkill]:
        return [self._row(change, statuses) for change in self._changes]

    def _row(self, change: Change, statuses: Mapping[str, Visibility]) -> InstalledSkill:
        locked, before, folder = change.locked, change.before, self._place.folder(change.name)
        seen = statuses.get(folder)
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
            "version_before": before.version if before else None,
            "digest": locked.digest,
            "digest_before": before.digest if before else None,
            "files": len(change.skill.files),
            "size_bytes": sum(file.size_bytes for file in change.skill.files),
            "changes": to_json(change.files),
            "edits": to_json(change.edits),
            "capabilities": to_json(change.skill.capabilities),
            "capabilities_before": to_json(self._before.get(change.name)),
            "findings": [finding_row(finding) for finding in change.skill.findings],
            "status": seen.status if seen else None,
        }


class PlanQuestion:
    """Shows a plan and asks the person at the terminal. `yes` answers for them. `command` is what they typed, in
    short."""

    def __init__(self, call: Call, bars: ProgressBars, *, yes: bool, command: str) -> None:
        self._call, self._bars, self._yes, self._command = call, bars, yes, command
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
        return not self._call.screen.is_json and sys.stdin.isatty()

    def _question(self, plan: InstallPlan) -> str | None:
        """Returns the question. None if nothing changes and no new content is accepted."""
        if not plan.pending:
            return None
        actions = {change.action for change in plan.pending}
        verb = " and ".join(word or action for action, word in _VERBS.items() if action in actions).capitalize()
        errors = sum(finding.severity == "error" for change in plan.pending for finding in change.skill.findings)
        warned = f", with {count(errors, 'finding')} of level error" if errors else ""
        return f"{verb} {_named(plan.pending)}{warned}?"

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
    with call.runtime() as runtime:
        catalog = runtime.catalog
        return {by_path[each.real_path]: catalog.visibility(each) for each in catalog if each.real_path in by_path}


def pack_options(call: Call, to: str) -> PackOptions:
    return {"to": to, "config": call.options.get("config_file"), "cwd": call.cwd}


@contextmanager
def other_place_hint(call: Call, names: Sequence[str], to: str) -> Iterator[None]:
    """Says so when a skill that is not installed in the project is installed in the home of the person."""
    try:
        yield
    except PackError as error:
        if error.code == "not-installed" and to == "project":
            lock = read_lock(find_place("user", find_places(call.cwd, os.environ)))
            if found := next((name for name in names if name in lock), None):
                error.hint = f"'{found}' is installed in your home. Add: --to user"
        raise


@contextmanager
def repository_hint(call: Call, sources: Sequence[str]) -> Iterator[None]:
    """Says so when `owner/repo` cannot be read and may have been meant as a folder."""
    try:
        yield
    except PackError as error:
        if error.code in ("git-no-access", "git-unreachable"):
            plain = [re.split("[@#]", text)[0] for text in sources]
            for name in [name for name in plain if f"https://github.com/{name.removesuffix('.git')}" in error.message]:
                is_there = os.path.exists(os.path.join(call.cwd, name))
                told = f"for the folder: ./{name}" if is_there else f"./{name} does not exist"
                error.hint = f"owner/repo means GitHub; {told}. {error.hint}"
        raise


@contextmanager
def end_in_order() -> Iterator[None]:
    """Turns SIGTERM, and SIGHUP of a terminal that was closed, into an exception, so that git is killed and prepared
    files are removed. The exit code is 143 or 129. A signal that is ignored, as by nohup, stays ignored."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]

    def end(number: int, _: object) -> NoReturn:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # so that the clean-up is not interrupted
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    except SystemExit:
        with suppress(OSError):  # the terminal may be gone
            sys.stderr.write("Terminated.\n")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def version_change(before: LockedSkill | None, now: LockedSkill | None) -> str:
    """Renders ` 1.1.0 → 1.2.0`, or the only version that is known."""
    old, new = (visible(row.version)[:40] if row and row.version else "" for row in (before, now))
    if old and new and old != new:
        return f" {old} → {new}"
    return f" {new or old}" if new or old else ""


def file_changes(files: Sequence[FileDifference]) -> str:
    """Renders `1 added: a.md; 2 changed: b.py, c.py`."""
    parts = []
    for kind in _KINDS:
        if some := [file for file in files if file.kind == kind]:
            parts.append(f"{len(some)} {'with another mode' if kind == 'mode' else kind}: {paths(some)}")
    return "; ".join(parts)


def paths(files: Sequence[FileDifference | SkillFile]) -> str:
    return visible(name_some([file.path for file in files], _MOST_PATHS, quote=""))


def rollback_commands(call: Call, names: Sequence[str]) -> list[str]:
    return [f"{call.follow_up('prowess rollback')} {shlex.quote(name)}" for name in names]


def shown_path(call: Call, path: str) -> str:
    """Returns a path below the working folder as a relative one."""
    below = os.path.relpath(path, call.cwd)
    return path if below.startswith("..") else below


def _title(change: Change) -> str:
    return f"{visible(change.name)}{version_change(change.before, change.locked)}"


def _look_out(change: Change) -> list[tuple[str, str]]:
    """Returns rows about letters of the name that may look like others, and about another source than before."""
    told, before = describe_letters(change.name), change.before
    rows = [("  name", f"'{change.name}' {told}. Is it the one that you want?")] if told else []
    if before is not None and before.source != change.locked.source:
        rows.append(("  was", f"installed from {before.source}. Do you trust the new source, too?"))
    return rows


def _source(locked: LockedSkill) -> str:
    return f"{locked.source} (commit {locked.commit[:12]})" if locked.commit else locked.source


def _files(change: Change) -> str:
    total = f"{count(len(change.skill.files), 'file')}, {size(sum(file.size_bytes for file in change.skill.files))}"
    if change.action == "update":
        return f"{file_changes(change.files)} ({total} in all)"
    return f"{total}: {paths(change.skill.files)}"


def _by_kind(texts: Iterable[str]) -> dict[str, str]:
    return {kind: items for kind, _, items in (text.partition(": ") for text in texts)}


def _problems(change: Change) -> list[Finding]:
    return [finding for finding in change.skill.findings if finding.severity != "info"]


def _named(changes: Sequence[Change]) -> str:
    return f"'{visible(changes[0].name)}'" if len(changes) == 1 else count(len(changes), "skill")
