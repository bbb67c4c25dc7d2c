"""Handlers of `prowess install` and `prowess update`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prowess._internal.text import name_some
from prowess.cli.app import Call
from prowess.cli.pack_calls import end_in_order, other_place_hint, pack_options, repository_hint
from prowess.cli.pack_plan import PlanQuestion, PlanView, find_statuses, rollback_commands, shown_path
from prowess.cli.progress import ProgressBars
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.errors import ConfigError, ProwessError
from prowess.packs import api
from prowess.packs.lock import PackPlace
from prowess.packs.plan import Change
from prowess.runtime.services.documents import error_row
from prowess.skills.skill import Visibility

if TYPE_CHECKING:
    from prowess.runtime.documents.packs import FailedSkill, InstalledDocument


def install(call: Call, sources: tuple[str, ...], to: str, **given: Any) -> int:
    _check_options(sources, given)
    yes = given.pop("yes")
    flags = _flags(frozen=given["frozen"], force=given["force"], dry_run=given["dry_run"])
    command = shlex.join(["prowess", "install", *flags])
    with end_in_order(), ProgressBars(call.screen) as bars, repository_hint(call, sources):
        question = PlanQuestion(call, bars, yes=yes, command=command)
        done = api.install(
            *sources,
            **given,
            confirm=question,
            confirm_addresses=question.confirm_addresses,
            progress=bars,
            **pack_options(call, to),
        )
    return _show_result(call, done, question.view, is_update=False)


def update(call: Call, names: tuple[str, ...], to: str, dry_run: bool, force: bool, yes: bool) -> int:
    flags = _flags(dry_run=dry_run, force=force)
    command = shlex.join(["prowess", "update", *names, *flags])
    with end_in_order(), ProgressBars(call.screen) as bars, other_place_hint(call, names, to):
        question = PlanQuestion(call, bars, yes=yes, command=command)
        done = api.update(
            *names,
            dry_run=dry_run,
            force=force,
            confirm=question,
            confirm_addresses=question.confirm_addresses,
            progress=bars,
            **pack_options(call, to),
        )
    return _show_result(call, done, question.view, is_update=True)


_DONE = {
    "install": "installed",
    "update": "updated",
    "restore": "restored",
    "record": "recorded",
    "accept": "accepted",
}


def _check_options(sources: tuple[str, ...], given: Mapping[str, Any]) -> None:
    chosen: list[str] = []
    if given["skills"]:
        chosen.append("--skill")
    if given["name"]:
        chosen.append("--as")
    others = _flags(force=given["force"]) + chosen
    if sources:
        others.insert(0, "SOURCE")
    if given["frozen"] and others:
        message = f"--frozen restores exactly what the lock says, and takes no {others[0]}."
        raise ConfigError(message, code="usage", hint="Leave one of them out.")
    if given["name"] == "":
        hint = "Give the name that the skill gets here."
        raise ConfigError("--as is empty.", code="usage", hint=hint)
    if chosen and not sources:
        hint = "Name the folder, archive, repository or site."
        raise ConfigError(f"{chosen[0]} needs a SOURCE.", code="usage", hint=hint)


def _flags(**given: bool) -> list[str]:
    """Returns the flags that were given, as a person types them."""
    names = [name for name, is_given in given.items() if is_given]
    return [f"--{name.replace('_', '-')}" for name in names]


def _failed(name: str, error: ProwessError) -> FailedSkill:
    return {"name": name, **error_row(error)}


def _show_result(call: Call, done: api.Installed, view: PlanView | None, *, is_update: bool) -> int:
    is_dry = view is None
    if view is None:
        view = PlanView(call, done.place, done.changes, done.notes)
    statuses: Mapping[str, Visibility] = {}
    if not is_dry:
        statuses = _statuses(call, done.place, view.pending)
    if call.screen.is_json:
        document = _document(done, view, statuses, is_dry=is_dry)
        call.screen.document(document)
    else:
        if is_dry:
            view.show()
            _show_dry(call, view.pending)
        elif view.pending:
            _show_done(call, done.place, view.pending, statuses)
        if not view.pending:
            _show_no_change(call, done, is_update=is_update)
        for note in done.notes[len(view.notes) :]:  # of the installation itself
            call.screen.note(f"warning: {visible(note)}")
        _show_failed(call, done.failed)
    return 1 if done.failed else 0


def _statuses(call: Call, place: PackPlace, changes: Sequence[Change]) -> Mapping[str, Visibility]:
    folders = [place.folder(change.name) for change in changes]
    return find_statuses(call, folders)


def _document(
    done: api.Installed, view: PlanView, statuses: Mapping[str, Visibility], *, is_dry: bool
) -> InstalledDocument:
    place = done.place
    is_changed = bool(view.pending) and not is_dry
    failed = [_failed(name, error) for name, error in done.failed.items()]
    return {
        "schema": "prowess.installed/1",
        "dry_run": is_dry,
        "changed": is_changed,
        "folder": place.root,
        "wanted": place.wanted,
        "lock": place.lock,
        "skills": view.rows(statuses),
        "notes": list(done.notes),
        "failed": failed,
    }


def _show_dry(call: Call, pending: Sequence[Change]) -> None:
    if pending:
        skills = count(len(pending), "skill")
        call.screen.note(f"Dry run: nothing was written. {skills} would change.")


def _show_done(call: Call, place: PackPlace, pending: list[Change], statuses: Mapping[str, Visibility]) -> None:
    where = visible(shown_path(call, place.root))
    done = _done(pending)
    what_next = _next(call, place, pending, statuses)
    call.screen.note(f"{done} in {where}. {what_next}")
    undo = _undo(call, place, pending)
    if undo:
        call.screen.note(f"Undo: {undo}")


def _show_no_change(call: Call, done: api.Installed, *, is_update: bool) -> None:
    screen = call.screen
    kept = list(done.changes)  # they may have come with a clone
    if kept:
        state = "up to date" if is_update else "installed already, with this content"
        verb = "is" if len(kept) == 1 else "are"
        names = [change.name for change in kept]
        named = visible(name_some(names, 5, quote=""))
        screen.note(f"Nothing to do: {named} {verb} {state}.")
        found = _statuses(call, done.place, kept)
        if any(seen.status != "active" for seen in found.values()):
            screen.note(_next(call, done.place, kept, found))
    elif not done.failed:
        where = visible(shown_path(call, done.place.root))
        command = call.follow_up("prowess install")
        screen.note(f"Nothing is installed in {where} yet. Install with: {command} SOURCE")


def _show_failed(call: Call, failed: Mapping[str, ProwessError]) -> None:
    """Shows each error once, with the skills that have it. Its message is among the notes."""
    for error in dict.fromkeys(failed.values()):
        names = [name for name in failed if failed[name] is error]
        named = visible(name_some(names))
        hint = call.follow_up(error.hint or "")
        call.screen.note(f"Not updated: {named}. {hint} [{error.code}]")


def _done(pending: list[Change]) -> str:
    """Renders `Installed a, b, updated c`."""
    parts: list[str] = []
    for action, verb in _DONE.items():
        names = _names(pending, action)
        if names:
            named = visible(name_some(names, 5, quote=""))
            parts.append(f"{verb} {named}")
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]


def _next(call: Call, place: PackPlace, pending: list[Change], statuses: Mapping[str, Visibility]) -> str:
    """Says whether models can use the skills now, and if not, what is needed."""
    it = "it" if len(pending) == 1 else "them"
    where = call.where()
    if not statuses:
        root = shown_path(call, place.root)
        command = shlex.join(["prowess", "list", *where, "--root", root])
        return f"This folder is searched when you name it: {command}"
    if any(seen.status == "untrusted" for seen in statuses.values()):
        command = shlex.join(["prowess", "trust", *where])
        return f"Models may not use {it} yet: {command}"
    for change in pending:
        seen = statuses.get(place.folder(change.name))
        if seen is not None and seen.status != "active":
            name = visible(change.name)
            reasons = visible("; ".join(seen.reasons))
            return f"{name} is {seen.status}: {reasons}."
    return f"Models can use {it} now."


def _undo(call: Call, place: PackPlace, pending: list[Change]) -> str:
    """Returns commands that take back what was installed, updated and accepted. The lock has what was restored."""
    commands: list[str] = []
    new = _names(pending, "install")
    if new:
        uninstall = call.follow_up("prowess uninstall")
        commands.append(f"{uninstall} {shlex.join(new)}")
    updated = _names(pending, "update")
    commands += rollback_commands(call, updated)
    for name in _names(pending, "accept"):
        folder = shown_path(call, place.folder(name))
        command = ["prowess", "trust", *call.where(), "--revoke", folder]
        commands.append(shlex.join(command))
    return " && ".join(commands)


def _names(pending: list[Change], action: str) -> list[str]:
    """Returns the skills that have this action."""
    return [change.name for change in pending if change.action == action]
