"""Commands of the command line, in this process: starting `prowess` takes longer than most of what it is told to do.
Where the process is the point (signals, closed streams, kills, terminals) a test starts a real one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from prowess.cli.commands.schema import FOLDER
from prowess.cli.main import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def run_here(
    words: Sequence[str], *, cwd: Path, input: bytes = b"", environ: Mapping[str, str] | None = None
) -> Answer:
    """`prowess WORDS` with this folder, environment and standard input, as a process of its own would have them."""
    before, folder = dict(os.environ), os.getcwd()
    with ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(input)
        streams[0].seek(0)
        stack.callback(os.chdir, folder)
        stack.callback(os.environ.update, before)
        stack.callback(os.environ.clear)
        stack.enter_context(_streams([stream.fileno() for stream in streams]))
        os.chdir(cwd)
        os.environ.update(environ or {})
        code = main(list(words))
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = ((stream.seek(0), stream.read().decode())[1] for stream in streams[1:])
        return Answer(code, out, err)


@contextmanager
def _streams(numbers: Sequence[int]) -> Iterator[None]:
    """Descriptors 0, 1 and 2, and what Python makes of them, are these files for a while."""
    kept, python = [os.dup(number) for number in range(3)], (sys.stdin, sys.stdout, sys.stderr)
    try:
        for number, file in enumerate(numbers):
            os.dup2(file, number)
        with ExitStack() as stack:
            sys.stdin, sys.stdout, sys.stderr = (
                stack.enter_context(open(number, mode, encoding="utf-8", closefd=False))
                for number, mode in enumerate("rww")
            )
            yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = python
        for number, file in enumerate(kept):
            os.dup2(file, number)
            os.close(file)


class Cli:
    """`prowess VERB …`; what it said on stderr last is `err`."""

    def __init__(self, capture: pytest.CaptureFixture[str], *verb: str) -> None:
        self._capture, self._verb = capture, verb
        self.err = ""

    def __call__(self, *args: str, code: int = 0) -> str:
        return self.prowess(*self._verb, *args, code=code)

    def prowess(self, *args: str, code: int = 0) -> str:
        """Any verb."""
        self._capture.readouterr()
        ended = main(list(args))
        out, self.err = self._capture.readouterr()
        assert ended == code, f"exit code {ended}: {out!r} {self.err}"
        return out

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        document = json.loads(self(*args, "--json", code=code))
        check_document(document)
        return document

    def refused(self, *args: str) -> dict[str, Any]:
        """The error, which people and programs are told in their own ways."""
        ended = main([*self._verb, *args])
        out, err = self._capture.readouterr()
        error = self.json(*args, code=ended)["error"]
        assert ended in (1, 2) and out == "" and error["hint"] and f"[{error['code']}]" in err
        return error


def check_document(document: dict[str, Any]) -> None:
    """It is what its schema says; an error has none of its own."""
    name = document.get("schema", "prowess.error/1").removeprefix("prowess.").removesuffix("/1")
    jsonschema.validate(document, json.loads(Path(FOLDER, f"{name}.json").read_text(encoding="utf-8")))
