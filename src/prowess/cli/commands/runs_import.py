"""Action `prowess runs import`: takes over the sessions of a record that lies in a file."""

from __future__ import annotations

import asyncio
import sys

import click

from prowess.cli.app import Call, ask_person, cli_command, store_option


@cli_command("import", example="prowess runs import .agent/prowess.db\nprowess runs import backup.db --mine --yes")
@click.argument("file")
@click.option("--mine", is_flag=True, help="The record is your own: answers in it count.")
@click.option("--yes", is_flag=True, help="Do not ask, with --mine.")
@store_option
def command(call: Call, file: str, mine: bool, yes: bool) -> int:
    """Take over the sessions of a record that another person, computer or release wrote.

    FILE is a SQLite database of Prowess. It is read from a copy and not changed. Each session is verified and can be
    resumed. No answer in it counts, and what waited is asked again; with --mine, after a question, it counts as your
    own. Exit code 1 when a session could not be imported.
    """
    from prowess.cli.call import note_findings
    from prowess.core.findings import visible
    from prowess.errors import ConfigError
    from prowess.runtime.documents.runs import RunsImportedDocument
    from prowess.runtime.services.import_record import import_record

    if mine and not yes:
        if not sys.stdin.isatty():
            problem = "With --mine, answers in the record count as yours, and nobody is there to say yes."
            raise ConfigError(problem, code="needs-yes", hint="Add --yes if you wrote that record yourself.")
        ask_person(f"Did you write {visible(file)} yourself? Answers in it will count.", unless="Nothing was imported.")
    with call.runtime() as runtime:
        note_findings(call, runtime)
        done = asyncio.run(import_record(runtime, file, mine=mine))
    failed = [each for each in done.sessions if each.status in ("conflict", "damaged")]
    if call.screen.is_json:
        document: RunsImportedDocument = {
            "schema": "prowess.runs-imported/1",
            "file": done.file,
            "store": done.store,
            "sessions": [
                {
                    "session": each.key.session,
                    "tenant": each.key.tenant,
                    "app": each.key.app,
                    "user": each.key.user,
                    "events": each.events,
                    "status": each.status,
                    "why": each.why,
                }
                for each in done.sessions
            ],
        }
        call.screen.document(document)
    else:
        rows = [[each.key.session, str(each.events), each.status, each.why or ""] for each in done.sessions]
        call.screen.table(["session", "events", "status", "why"], rows)
        taken = sum(each.status == "imported" for each in done.sessions)
        call.screen.note(f"{taken} of {len(done.sessions)} sessions imported into {visible(done.store)}")
    return 1 if failed else 0
