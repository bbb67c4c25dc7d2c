"""Command `prowess search`: finds skills by their purpose."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command, roots_option
from prowess.skills.search import find_telling_words

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
    with call.runtime(roots=roots) as runtime:
        catalog = runtime.catalog
        started = time.perf_counter()
        found, trouble = runtime.search(words, limit=limit, keep=(lambda entry: True) if everything else None)
        took_ms = round((time.perf_counter() - started) * 1000, 1)
        if call.screen.is_json:
            results: list[SearchResult] = [
                {
                    "id": entry.id,
                    "name": entry.name,
                    "source": entry.source,
                    "score": score,
                    "description": entry.description,
                }
                for entry, score in found
            ]
            document: SearchResultsDocument = {
                "schema": "prowess.search/1",
                "query": words,
                "results": results,
                "took_ms": took_ms,
            }
            call.screen.document(document)
            return 0
        if found:
            call.screen.table(
                ["name", "source", "score", "description"],
                [[e.name, e.source, f"{score:.2f}", " ".join(e.description.split())] for e, score in found],
            )
        elif not find_telling_words(words):
            call.screen.note(
                f"'{words}' has only words that every text has. Name what the skill is for: a task, a file type."
            )
        else:
            visible = sum(catalog.visibility(entry).model_visible for entry in catalog)
            call.screen.note(
                f"None of {visible} skills matches '{words}'. See: {call.follow_up('prowess list', roots)}"
            )
        for finding in trouble:
            call.screen.note(f"{finding.message} {finding.hint}")
    return 0
