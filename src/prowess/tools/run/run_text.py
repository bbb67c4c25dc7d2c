"""Renders the result of a run for the model, in few tokens: what it printed, then its files, the main file last.

    3 rows
    [stderr]
    row 2 is empty
    [file out/b.png: 2048 bytes]
    [file out/report.md: 31 bytes]
    # Report …

Everything else about a run is in `outcome.data`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prowess.tools.result_text import foreign_text, our_line
from prowess.workspace.job import JobResult
from prowess.workspace.outputs import OutputFile, primary_output

MOST_FILES = 20
_MOST_WARNINGS = 10
NOTHING = "(no output)"


def render_run(result: JobResult) -> str:
    """Renders a run that has ended. The text of a failed one begins with how it ended."""
    lines = [] if result.ok else [_render_end(result)]
    if result.stdout.strip():
        lines.append(_printed(result.stdout))
    if result.stderr.strip():
        lines += [our_line("stderr"), _printed(result.stderr)]
    lines += _rest(result, seen=result.stdout)
    return "\n".join(lines) or NOTHING


def render_session(document: dict[str, Any], result: JobResult | None) -> str:
    """Renders a look at a program that keeps running: its new output, then its state, and its files when it ended."""
    state = document["status"]
    output = document.get("output", "")
    lines = [_printed(output)] if output.strip() else []
    lines += [our_line(f"prowess: {warning}") for warning in document.get("warnings", ())]
    if document.get("interaction", {}).get("needs_input"):
        state = "waits for input; answer with skill_write_stdin, submit true"
    if result is not None and not result.ok:
        state = _render_end(result)
    lines.append(our_line(f"{document['session_id']}: {state}"))
    if result is not None:
        lines += _rest(result, seen=output)
    return "\n".join(lines)


def _render_end(result: JobResult) -> str:
    if result.timed_out:
        return f"timed out after {result.timeout_s:g} s"
    if result.exit_code is None:
        return "no exit code"
    if result.signal is None:
        return f"exit code {result.exit_code}"
    return f"exit code {result.exit_code} (signal {result.signal})"


def _printed(text: str) -> str:
    return foreign_text(text).rstrip("\n")


def _rest(result: JobResult, *, seen: str) -> Iterator[str]:
    """Yields what there is besides the output. `seen`: output that the model is shown."""
    for stream, ref in result.refs.items():
        yield our_line(f"all of {stream}: {ref.removeprefix('workspace://')}")
    for warning in result.told[:_MOST_WARNINGS]:
        yield our_line(f"prowess: {warning}")
    if result.saved:
        refs = [f"artifact://{each.name}@{each.version}" for each in result.saved[:MOST_FILES]]
        yield our_line(f"saved: {', '.join(refs)}")
    yield from _files(result.files, seen)


def _files(files: Sequence[OutputFile], seen: str) -> Iterator[str]:
    """Yields a line for each file. The main file is last, with its text, unless the model has seen that."""
    main = primary_output(files)
    others = [file for file in files if file is not main]
    for file in others[:MOST_FILES]:
        yield _describe(file)
    if len(others) > MOST_FILES:
        yield our_line(f"{len(others) - MOST_FILES} more files")
    if main is None:
        return
    yield _describe(main)
    text = (main.content or "").strip("\n")
    if text.strip() and text.strip() not in seen:
        yield foreign_text(text)


def _describe(file: OutputFile) -> str:
    return our_line(f"file {file.name}: {file.size_bytes} bytes")
