"""Commands `prowess install` and `prowess update`: bring skills onto this machine, after a person saw what they are."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from prowess._internal.text import name_some
from prowess.cli.app import Call, cli_command
from prowess.cli.pack_calls import end_in_order, other_place_hint, pack_options, repository_hint, to_option
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

_dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done. Nothing is written.")
_yes_option = click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")


@cli_command(
    "install",
    example="""
prowess install ./my-skills --dry-run
prowess install acme/skills@v1.2 --skill pdf-forms
prowess install https://example.com/skills.zip --to user
prowess install --frozen --yes""",
)
@click.argument("sources", nargs=-1, metavar="[SOURCE…]")
@to_option
@click.option("--skill", "skills", multiple=True, metavar="NAME", help="Only this skill of the source. Repeatable.")
@click.option("--as", "name", metavar="NAME", help="Install the only skill by another name.")
@click.option("--frozen", is_flag=True, help="Restore exactly what the lock says, or fail. For CI.")
@_dry_run_option
@click.option("--force", is_flag=True, help="Replace skills that were edited here. A backup is kept.")
@_yes_option
def _install(call: Call, sources: tuple[str, ...], to: str, **given: Any) -> int:
    """Install skills, after showing what they are, what they can do and what the checks found.

    SOURCE is a folder, an archive (.zip, .skill, .tar, .tar.gz, .tgz), the address of one, a git repository
    (owner/repo, https://….git, git@host:…, with @ref and #path), a site that publishes skills, or python:NAME. Without
    SOURCE, skills.lock is restored. A yes accepts exactly this content: models may use it.
    """
    _check_options(sources, given)
    with end_in_order(), ProgressBars(call.screen) as bars, repository_hint(call, sources):
        flags = [f"--{name}" for name in ("frozen", "force") if given[name]]
        flags += ["--dry-run"] * given["dry_run"]
        command = shlex.join(["prowess", "install", *flags])
        question = PlanQuestion(call, bars, yes=given["yes"], command=command)
        done = api.install(
            *sources,
            skills=given["skills"],
            name=given["name"],
            frozen=given["frozen"],
            dry_run=given["dry_run"],
            force=given["force"],
            confirm=question,
            confirm_addresses=question.confirm_addresses,
            progress=bars,
            **pack_options(call, to),
        )
    return _show_result(call, done, question.view, is_update=False)


@cli_command("update", example="prowess update --dry-run\nprowess update pdf-forms\nprowess update --to user --yes")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@to_option
@_dry_run_option
@click.option("--force", is_flag=True, help="Also update skills that were edited here. A backup is kept.")
@_yes_option
def _update(call: Call, names: tuple[str, ...], to: str, dry_run: bool, force: bool, yes: bool) -> int:
    """Bring installed skills to the newest content of their sources.

    Shows first which files and capabilities change. Without NAME, all skills. The version before is kept:
    prowess rollback NAME returns to it.
    """
    with end_in_order(), ProgressBars(call.screen) as bars, other_place_hint(call, names, to):
        flags = ["--dry-run"] * dry_run + ["--force"] * force
        question = PlanQuestion(call, bars, yes=yes, command=shlex.join(["prowess", "update", *names, *flags]))
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


COMMANDS = {"install": _install, "update": _update}


_DONE = {
    "install": "installed",
    "update": "updated",
    "restore": "restored",
    "record": "recorded",
    "accept": "accepted",
}


def _check_options(sources: tuple[str, ...], given: Mapping[str, Any]) -> None:
    chosen = [f"--{flag}" for flag, key in (("skill", "skills"), ("as", "name")) if given[key]]
    others = ["SOURCE"] * bool(sources) + ["--force"] * given["force"] + chosen
    if given["frozen"] and others:
        message = f"--frozen restores exactly what the lock says, and takes no {others[0]}."
        raise ConfigError(message, code="usage", hint="Leave one of them out.")
    if given["name"] == "":
        raise ConfigError("--as is empty.", code="usage", hint="Give the name that the skill gets here.")
    if chosen and not sources:
        hint = "Name the folder, archive, repository or site."
        raise ConfigError(f"{chosen[0]} needs a SOURCE.", code="usage", hint=hint)


def _failed(name: str, error: ProwessError) -> FailedSkill:
    return {"name": name, **error_row(error)}


def _show_result(call: Call, done: api.Installed, view: PlanView | None, *, is_update: bool) -> int:
    screen, is_dry = call.screen, view is None
    view = view or PlanView(call, done.place, done.changes, done.notes)
    statuses = {} if is_dry else find_statuses(call, [done.place.folder(change.name) for change in view.pending])
    if screen.is_json:
        document: InstalledDocument = {
            "schema": "prowess.installed/1",
            "dry_run": is_dry,
            "changed": bool(view.pending) and not is_dry,
            "folder": done.place.root,
            "wanted": done.place.wanted,
            "lock": done.place.lock,
            "skills": view.rows(statuses),
            "notes": list(done.notes),
            "failed": [_failed(name, error) for name, error in done.failed.items()],
        }
        screen.document(document)
        return 1 if done.failed else 0
    if is_dry:
        view.show()
    where = visible(shown_path(call, done.place.root))
    if view.pending and is_dry:
        screen.note(f"Dry run: nothing was written. {count(len(view.pending), 'skill')} would change.")
    elif view.pending:
        screen.note(f"{_done(view.pending)} in {where}. {_next(call, done.place, view.pending, statuses)}")
        if undo := _undo(call, done.place, view.pending):
            screen.note(f"Undo: {undo}")
    elif done.changes:
        state = "up to date" if is_update else "installed already, with this content"
        verb = "is" if len(done.changes) == 1 else "are"
        names = visible(name_some([change.name for change in done.changes], 5, quote=""))
        screen.note(f"Nothing to do: {names} {verb} {state}.")
        kept = list(done.changes)  # they may have come with a clone
        found = find_statuses(call, [done.place.folder(change.name) for change in kept])
        if any(seen.status != "active" for seen in found.values()):
            screen.note(_next(call, done.place, kept, found))
    elif not done.failed:
        screen.note(f"Nothing is installed in {where} yet. Install with: {call.follow_up('prowess install')} SOURCE")
    for note in done.notes[len(view.notes) :]:  # of the installation itself
        screen.note(f"warning: {visible(note)}")
    for error in dict.fromkeys(done.failed.values()):  # its message is among the notes
        names = visible(name_some([name for name in done.failed if done.failed[name] is error]))
        screen.note(f"Not updated: {names}. {call.follow_up(error.hint or '')} [{error.code}]")
    return 1 if done.failed else 0


def _done(pending: list[Change]) -> str:
    parts = []
    for action, verb in _DONE.items():
        if names := _names(pending, action):
            parts.append(f"{verb} {visible(name_some(names, 5, quote=''))}")
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]


def _next(call: Call, place: PackPlace, pending: list[Change], statuses: Mapping[str, Visibility]) -> str:
    """Says whether models can use the skills now, and if not, what is needed."""
    it = "it" if len(pending) == 1 else "them"
    if not statuses:
        command = shlex.join(["prowess", "list", *call.where(), "--root", shown_path(call, place.root)])
        return f"This folder is searched when you name it: {command}"
    if any(seen.status == "untrusted" for seen in statuses.values()):
        return f"Models may not use {it} yet: {shlex.join(['prowess', 'trust', *call.where()])}"
    for change in pending:
        seen = statuses.get(place.folder(change.name))
        if seen is not None and seen.status != "active":
            return f"{visible(change.name)} is {seen.status}: {visible('; '.join(seen.reasons))}."
    return f"Models can use {it} now."


def _undo(call: Call, place: PackPlace, pending: list[Change]) -> str:
    """Returns commands that take back what was installed, updated and accepted. The lock has what was restored."""
    commands: list[str] = []
    if new := _names(pending, "install"):
        commands.append(f"{call.follow_up('prowess uninstall')} {shlex.join(new)}")
    commands += rollback_commands(call, _names(pending, "update"))
    for name in _names(pending, "accept"):
        folder = shown_path(call, place.folder(name))
        commands.append(shlex.join(["prowess", "trust", *call.where(), "--revoke", folder]))
    return " && ".join(commands)


def _names(pending: list[Change], action: str) -> list[str]:
    return [change.name for change in pending if change.action == action]
