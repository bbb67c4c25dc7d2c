"""Command `prowess search`: finds skills by their purpose."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command, roots_option
from prowess.skills.search import find_telling_words
from prowess.skills.skill import Entry

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import SearchResult, SearchResultsDocument


@cli_command("search", example="prowess search 'merge pdf files'\nprowess search 报表 --limit 3")
@click.argument("query", nargs=-1, required=True, metavar="QUERY…")
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True)
@click.option("--all", "everything", is_flag=True, help="Also skills that the model may not see.")
@roots_option
def command(call: Call, query: tuple[str, ...], limit: int, everything: bool, roots: tuple[str, ...]) -> int:
    """Find skills by what they are for.

    Looks at names, keywords, descriptions and the beginning of the instructions, in English, Chinese and Japanese among
    others.
    """
    words = " ".join(query)
    keep = _every_skill if everything else None
    with call.runtime(roots=roots) as runtime:
        started = time.perf_counter()
        found, trouble = runtime.search(words, limit=limit, keep=keep)
        took_s = time.perf_counter() - started
        if call.screen.is_json:
            document: SearchResultsDocument = {
                "schema": "prowess.search/1",
                "query": words,
                "results": [_result(entry, score) for entry, score in found],
                "took_ms": round(took_s * 1000, 1),
            }
            call.screen.document(document)
            return 0
        if found:
            rows = [_cells(entry, score) for entry, score in found]
            call.screen.table(["name", "source", "score", "description"], rows)
        elif not find_telling_words(words):
            call.screen.note(
                f"'{words}' has only words that every text has. Name what the skill is for: a task, a file type."
            )
        else:
            catalog = runtime.catalog
            visible = sum(catalog.visibility(entry).model_visible for entry in catalog)
            command = call.follow_up("prowess list", roots)
            call.screen.note(f"None of {visible} skills matches '{words}'. See: {command}")
        for finding in trouble:
            call.screen.note(f"{finding.message} {finding.hint}")
    return 0


def _every_skill(entry: Entry) -> bool:
    return True


def _result(entry: Entry, score: float) -> SearchResult:
    return {
        "id": entry.id,
        "name": entry.name,
        "source": entry.source,
        "score": score,
        "description": entry.description,
    }


def _cells(entry: Entry, score: float) -> list[str]:
    words = entry.description.split()
    description = " ".join(words)
    rounded = f"{score:.2f}"
    return [entry.name, entry.source, rounded, description]
