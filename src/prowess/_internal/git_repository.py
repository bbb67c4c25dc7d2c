"""Reads commits of a repository through the user's own git, without a checkout. Those of other places are fetched.

Files are read as raw blobs. So no hook, filter, attribute or submodule of a repository has any effect. Git runs in an
environment that is built here, in its own process group, and never asks anybody: without a terminal and a display, ssh
cannot ask either. System and user configuration stay in force, because credential helpers, certificates and proxies
are often set there; what could run a program of the repository is switched off on the command line.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from prowess._internal.files import read_regular
from prowess._internal.tar import Member
from prowess._internal.watched_process import run_watched, size_of_files

_MAX_BYTES = 1024 * 1024 * 1024  # of all that git writes
_MAX_LIST_BYTES = 32 * 1024 * 1024  # of a list of files
_WANTED = "refs/prowess/wanted"
_EVERYTHING = ("+refs/heads/*:refs/prowess/heads/*", "+refs/tags/*:refs/prowess/tags/*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_UNKNOWN_REF = re.compile("(?i)couldn't find remote ref|not our ref|unadvertised object|not advertised")
_PASSED_ON = (
    "HOME SSH_AUTH_SOCK GIT_SSH_COMMAND XDG_CONFIG_HOME XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS TMPDIR "
    "HTTPS_PROXY https_proxy ALL_PROXY all_proxy NO_PROXY no_proxy SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE "
    "SYSTEMROOT USERPROFILE APPDATA LOCALAPPDATA"
).split()
_SETTINGS = (
    f"core.hooksPath={os.devnull} core.fsmonitor=false submodule.recurse=false credential.interactive=never "
    "gc.auto=0 maintenance.auto=false fetch.writeCommitGraph=false fetch.unpackLimit=1"
).split()  # the last one: all that is fetched is one pack, whose size is watched


class GitFailure(Exception):
    """Command of git that has no result. `reason`: missing, timeout, too-large, incomplete, or failed: then `words` are
    what git and the server said."""

    def __init__(self, reason: str, words: str = "") -> None:
        super().__init__(reason, words)
        self.reason, self.words = reason, words


class GitBlob(NamedTuple):
    path: str
    oid: str
    size: int
    executable: bool


class GitRepository:
    """Bare repository in the folder `work`. All commands of git have one deadline, `ends`, and `report` gets the bytes
    that a fetch has written so far. The caller has checked the address, and that no ref or path begins with '-'.
    With `around`, the repository that this folder lies in is read, and nothing is fetched."""

    def __init__(
        self,
        url: str,
        work: str,
        *,
        environ: Mapping[str, str],
        ends: float,
        report: Callable[[int], None] = lambda size: None,
        around: str | None = None,
    ) -> None:
        path = os.pathsep.join(filter(os.path.isabs, environ.get("PATH", "").split(os.pathsep)))
        program = shutil.which("git", path=path)
        if program is None:
            raise GitFailure("missing")
        self._url, self._work, self._program = url, work, program
        self._ends, self._report = ends, report
        self._which = ("-C", around) if around else (f"--git-dir={self._file('repository')}",)
        self._env = {name: environ[name] for name in _PASSED_ON if name in environ}
        self._env |= {"PATH": path, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": ""}
        if around:
            self._env["GIT_NO_LAZY_FETCH"] = "1"
        # Unlike protocol.*.allow this cannot be widened by a configuration file.
        self._env["GIT_ALLOW_PROTOCOL"] = "file" if os.path.isabs(url) else "https:ssh"

    def fetch(self, wanted: str) -> str | None:
        """Fetches a branch, a tag or a commit, and returns the id of its commit. None if the repository has none."""
        self._run("init", "--bare", "--quiet", "--template=", self._file("repository"))
        fetch = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
        if self._run(*fetch, "--depth=1", "--", self._url, f"+{wanted}:{_WANTED}", check=False):
            return self._find_commit(_WANTED)
        if not _UNKNOWN_REF.search(said := self._read("errors")):
            raise GitFailure("failed", said)
        if not _COMMIT.fullmatch(wanted):
            return None
        # The server gives branches and tags only, or the id is short.
        self._run(*fetch, "--", self._url, *_EVERYTHING)
        return self._find_commit(wanted)

    def _find_commit(self, name: str) -> str | None:
        done = self._run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False)
        return self._read("output").strip() if done else None

    def list_files(self, commit: str, path: str | None) -> str | None:
        """Returns the output of `ls-tree -r -z -l` for a folder. None if there is no such folder."""
        tree = f"{commit}:{path}" if path else commit
        done = self._run("ls-tree", "-r", "-z", "-l", "--full-tree", tree, check=False)
        return self._read("output") if done else None

    def read_files(self, blobs: Sequence[GitBlob]) -> Iterator[tuple[GitBlob, bytes]]:
        """Yields the raw files."""
        self._run("cat-file", "--batch", given="".join(f"{blob.oid}\n" for blob in blobs))
        with open(self._file("output"), "rb") as file:
            for blob in blobs:
                head, content, _ = file.readline(200), file.read(blob.size), file.read(1)
                if head.decode("ascii", "replace").split() != [blob.oid, "blob", str(blob.size)]:
                    raise GitFailure("incomplete", f"it has no content of {blob.path}")
                yield blob, content

    def read_around(self, ref: str) -> Iterator[Member] | None:
        """Returns the files of the folder `around` in a commit, without links and submodules. None if it is not
        there."""
        self._run("rev-parse", "--show-prefix")
        prefix, commit = self._read("output").strip("\n/"), self._find_commit(ref)
        listing = self.list_files(commit, prefix) if commit else None
        if not listing:
            return None
        records = (record.partition("\t") for record in listing.split("\0")[:-1])
        listed = [(head.split(), path) for head, _, path in records]
        if missing := [path for (_, kind, _, size), path in listed if kind == "blob" and not size.isdecimal()]:
            raise GitFailure("incomplete", f"it has no content of {missing[0]}")
        blobs = [
            GitBlob(path, oid, int(size), mode == "100755")
            for (mode, kind, oid, size), path in listed
            if kind == "blob" and mode != "120000"
        ]
        return (Member(blob.path, "file", blob.executable, iter([data])) for blob, data in self.read_files(blobs))

    def _run(self, *arguments: str, given: str = "", check: bool = True) -> bool:
        settings = [each for setting in _SETTINGS for each in ("-c", setting)]
        argv = [self._program, *settings, *self._which, *arguments]
        watch = partial(self._watch, arguments[0])
        ended = run_watched(argv, self._work, env=self._env, given=given.encode(), watch=watch)
        if check and ended:
            raise GitFailure("failed", self._read("errors"))
        return ended == 0

    def _watch(self, command: str) -> None:
        if time.monotonic() >= self._ends:
            raise GitFailure("timeout")
        size = size_of_files(self._work) + size_of_files(self._file("repository/objects/pack"))
        if size > _MAX_BYTES:
            raise GitFailure("too-large")
        if command == "fetch":
            self._report(size)

    def _file(self, name: str) -> str:
        return os.path.join(self._work, name)

    def _read(self, name: str) -> str:
        data = read_regular(self._file(name), _MAX_LIST_BYTES)
        if len(data) > _MAX_LIST_BYTES:
            raise GitFailure("too-large")
        return data.decode("utf-8", "surrogateescape")
