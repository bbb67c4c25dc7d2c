"""Runs one call of the command line: global options, output, and each error shown once. Imports no parser."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prowess.cli.screen import Screen
from prowess.core.findings import Note, make_finding, visible
from prowess.errors import ConfigError, ProwessError
from prowess.runtime.runtime import Runtime, open_runtime, shown_store
from prowess.skills.roots import WORDS, is_missing, named_root
from prowess.skills.scanner import Bounds

BOUNDS = ("max_depth", "max_entries", "nested")
_COMMANDS = (
    r"\bprowess (?:(?P<skills>list|doctor|inspect|load|search)\b"
    r"|(?P<packs>install|update|uninstall|rollback|verify)\b"
    r"|(?P<records>(?:sessions|runs|approvals) list)\b|artifacts list\b|config show\b)"
)


def answer(action: Callable[[], int], *, as_json: bool) -> int:
    """Runs one call and returns its exit code. An error that a user can cause shows no traceback."""
    _have_streams()
    try:
        code = action()
        sys.stdout.flush()
        return code
    except ProwessError as error:
        Screen(json=as_json).error(error)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        _discard_stdout()
        return 0
    except OSError as error:  # a full disk or a removed folder, not a bug of ours
        if error.filename is None:  # stdout itself may be the file that cannot be written
            _discard_stdout()
            as_json = False
        failure = _system_error(error)
        Screen(json=as_json).error(failure)
        return 1


def _discard_stdout() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())


def _system_error(error: OSError) -> ProwessError:
    reason = error.strerror or type(error).__name__
    place = f": {error.filename}" if error.filename else ""
    return ProwessError(
        f"The system refused{place}: {reason.lower()}.",
        code="system-error",
        hint="Check that the path exists, may be read or written, and that the disk is not full.",
    )


def leave() -> None:
    """Prepares the exit after an interrupt: restores the terminal and silences cancelled work. Another Ctrl-C then ends
    the process without a message."""
    import logging  # only an interrupted process needs it
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if live := sys.modules.get("prowess.cli.live"):  # Ctrl-C may have come just before it was stopped
        live.stop_all()
    sys.unraisablehook = lambda _: None
    logging.getLogger("asyncio").disabled = True
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _have_streams() -> None:
    """Makes stdout and stderr UTF-8 in any locale and escapes what UTF-8 cannot encode. A stream that was closed before
    we started becomes /dev/null."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(encoding="utf-8", errors="backslashreplace")


def note_findings(call: Call, runtime: Runtime) -> None:
    """Shows problems of the configuration: an ignored setting may be the one that says where something is stored."""
    if call.screen.is_json:
        return
    for finding in runtime.setup_findings:
        if finding.severity != "info":
            message = visible(finding.message)
            call.screen.note(f"{finding.severity}: {message} [{finding.code}]")


class Call:
    """Call of one command, with its global options and its screen."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        is_json = bool(options.get("json"))
        verbose = options.get("verbose") or 0
        self.screen = Screen(json=is_json, verbose=int(verbose))
        self.missing_roots: list[str] = []

    @property
    def cwd(self) -> str:
        """Folder of -C, or else the working folder."""
        directory = self.options.get("directory")
        if directory is None:
            return _working_folder()
        if not os.path.isdir(directory):
            message = f"There is no folder '{directory}'."
            raise ConfigError(message, code="no-folder", hint="Check the value of -C.")
        return os.path.abspath(directory)

    @contextmanager
    def runtime(
        self, *, roots: Sequence[str] = (), without_files: bool = False, flags: dict[str, Any] | None = None
    ) -> Iterator[Runtime]:
        store = self.options.get("store")
        if store:
            flags = {**(flags or {}), "store": store}
        with open_runtime(
            cwd=self.cwd,
            environ=os.environ,
            roots=roots,
            flags=flags,
            config_file=self.options.get("config_file"),
            without_files=without_files,
            bounds=self.bounds,
        ) as runtime:
            self._warn_of_missing(roots, runtime)
            yield runtime

    def _warn_of_missing(self, places: Sequence[str], runtime: Runtime) -> None:
        """Warns of each named root that is no folder. The call then fails with exit code 1 (exec: 125)."""
        cwd = runtime.places.cwd
        home = runtime.places.home
        for place in places:
            if place in WORDS:
                continue
            root = named_root(place, origin="flag", base=cwd, home=home)
            code = None
            if is_missing(root):
                code = "root-missing"
            elif os.path.isfile(root.path):
                code = "root-not-folder"
            if code is None or root.path in self.missing_roots:
                continue
            self.missing_roots.append(root.path)
            note = Note(code, None, {"kind": "a regular file"})
            found = make_finding(note, visible(root.path))
            self.screen.note(f"warning: {found.path}: {found.message} {found.hint} [{code}]")

    def where(self, *, store: bool = False) -> list[str]:
        """Returns the options that say which project the call is about, and which `store`."""
        words: list[str] = []
        if store and self.options.get("store"):
            words += ["--store", shown_store(self.options["store"])]
        directory = self.options.get("directory")
        if directory:
            words += ["-C", str(directory)]
        config_file = self.options.get("config_file")
        if config_file:
            words += ["--config", str(config_file)]
        return words

    def follow_up(self, text: str, roots: Sequence[str] = ()) -> str:
        """Adds this call's options for project and skills to the commands in a text, ready to be copied."""
        about_skills: list[str] = []
        if self.options.get("nested"):
            about_skills.append("--nested")
        for root in roots:
            about_skills += ["--root", root]
        about_packs: list[str] = []
        place = self.options.get("to")
        if place and place != "project":
            about_packs += ["--to", place]

        def complete(found: re.Match[str]) -> str:
            words = [*found[0].split(), *self.where(store=found["records"] is not None)]
            if found["skills"]:
                words += about_skills
            elif found["packs"]:
                words += about_packs
            return shlex.join(words)

        return re.sub(_COMMANDS, complete, text)

    @contextmanager
    def complete_hints(self, roots: Sequence[str]) -> Iterator[None]:
        """Completes the commands in the hint of an error that ends the call."""
        try:
            yield
        except ProwessError as error:
            error.hint = error.hint and self.follow_up(error.hint, roots)
            raise

    @property
    def bounds(self) -> Bounds:
        """Limits of the search for skills that this call names, and the default for the others."""
        given: dict[str, Any] = {}
        for name in BOUNDS:
            value = self.options.get(name)
            if value is not None:
                given[name] = value
        return Bounds()._replace(**given)


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise ConfigError(
            "The working folder does not exist any more.",
            code="no-folder",
            hint="Change to another one, or use -C.",
        ) from None
