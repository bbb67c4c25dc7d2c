"""One verb of the command line, in this process: it ends with the code that a test names, its JSON fits its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from prowess.cli.main import main
from prowess.cli.schema import FOLDER


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
