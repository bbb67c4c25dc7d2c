"""Reads commits of a repository through the user's own git, without a checkout. Those of other places are fetched.

Files are read as raw blobs. So no hook, filter, attribute or submodule of a repository has any effect. Git runs in an
environment that is built here, in its own process group, and never asks anybody: without a terminal and a display, ssh
cannot ask either. System and user configuration stay in force, because credential helpers, certificates and proxies
are often set there; what could run a program of the repository is switched off on the command line.

Git follows no redirect, and asks no other server that one names. The redirects of a repository are followed before,
each is checked (see `redirects`), and git gets the last address.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from prowess._internal.addresses import why_never
from prowess._internal.fetch import FetchLimits, follow
from prowess._internal.files import read_regular
from prowess._internal.redirects import refused_address
from prowess._internal.tar import Member
from prowess._internal.urls import NotAHost, parse_host, shown_url
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
    "gc.auto=0 maintenance.auto=false fetch.writeCommitGraph=false http.followRedirects=false "
    "transfer.bundleURI=false fetch.uriProtocols= fetch.unpackLimit=1"
).split()  # the last one: all that is fetched is one pack, whose size is watched
_INFO = "/info/refs?service=git-upload-pack"  # below the address of a repository


class GitFailure(Exception):
    """Command of git that has no result. `reason`: missing, timeout, too-large, incomplete, or failed: then `words` are
    what git and the server said, and `location` is where the server redirected to."""

    def __init__(self, reason: str, words: str = "", location: str = "") -> None:
        super().__init__(reason, words)
        self.reason = reason
        self.words = words
        self.location = location


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
        folders = environ.get("PATH", "").split(os.pathsep)
        path = os.pathsep.join(filter(os.path.isabs, folders))
        program = shutil.which("git", path=path)
        if program is None:
            raise GitFailure("missing")
        self._url = url
        self._address = url  # that git contacts
        self._settings = list(_SETTINGS)
        self._work = work
        self._program = program
        self._ends = ends
        self._report = report
        self._env = {name: environ[name] for name in _PASSED_ON if name in environ}
        self._env |= {"PATH": path, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": ""}
        self._which: tuple[str, ...] = (f"--git-dir={self._file('repository')}",)
        if around:
            self._which = ("-C", around)
            self._env["GIT_NO_LAZY_FETCH"] = "1"
        # Unlike protocol.*.allow this cannot be widened by a configuration file.
        self._env["GIT_ALLOW_PROTOCOL"] = "file" if os.path.isabs(url) else "https:ssh"

    def fetch(self, wanted: str) -> str | None:
        """Fetches a branch, a tag or a commit, and returns the id of its commit. None if the repository has none."""
        self._run("init", "--bare", "--quiet", "--template=", self._file("repository"))
        if not os.path.isabs(self._url):
            self._check_address()
        fetch = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
        if self._run(*fetch, "--depth=1", "--", self._url, f"+{wanted}:{_WANTED}", check=False):
            return self._find_commit(_WANTED)
        if not _UNKNOWN_REF.search(self._read("errors")):
            raise self._failure()
        if not _COMMIT.fullmatch(wanted):
            return None
        # The server gives branches and tags only, or the id is short.
        self._run(*fetch, "--", self._url, *_EVERYTHING)
        return self._find_commit(wanted)

    def _check_address(self) -> None:
        """Checks the address after `url.*.insteadOf`, which the person wrote, too. Follows its redirects."""
        self._env |= {"GIT_TRACE_CURL": self._file("trace"), "GIT_TRACE_CURL_NO_DATA": "1"}
        self._run("ls-remote", "--get-url", "--", self._url)
        address = self._read("output").strip()
        before, mark, after = address.partition("://")  # as git does; there may be another one in the path
        scheme, rest = (before.lower(), after) if mark else ("", address)
        authority, slash, path = rest.partition("/")
        authority = authority.rpartition("@")[2]
        self._address = f"{scheme}{mark}{authority}{slash}{path}".rstrip("/")
        has_proxy = self._run("config", "--get-urlmatch", "http.proxy", self._address, check=False)
        proxy = self._read("output").strip() if has_proxy else ""
        if scheme == "https" and not proxy:
            self._follow()
        elif scheme in ("https", "ssh", ""):  # others are refused by git
            _check_host(self._address, authority)

    def _follow(self) -> None:
        left_s = self._ends - time.monotonic()
        limits = FetchLimits(total_timeout_s=max(0.1, left_s))
        hops = follow(f"{self._address}{_INFO}", limits=limits)
        hop = hops[-1]
        if not str(hop.url).endswith(_INFO):
            hop = hops[0]  # a page to sign in: git may have what is needed
        if hop is not hops[0]:
            self._url = self._address = str(hop.url).removesuffix(_INFO)
            beginning = self._url.partition("=")[0]  # the longest one counts: nothing else takes its place
            self._settings.append(f"url.{beginning}.insteadOf={beginning}")
        host = hop.url.raw_host.decode("ascii")
        if hop.proxy is None and host not in map(str, hop.addresses):
            port = hop.url.port or 443
            found = [f"[{each}]" if each.version == 6 else str(each) for each in hop.addresses]
            addresses = ",".join(found)
            self._settings.append(f"http.curloptResolve={host}:{port}:{addresses}")

    def _failure(self) -> GitFailure:
        """Returns what git said, and where the last redirect that it did not follow leads."""
        location = ""
        with contextlib.suppress(OSError):
            path = self._file("trace")
            trace = read_regular(path, _MAX_LIST_BYTES).decode("utf-8", "replace")
            for line in trace.split("\n"):
                _, _, header = line.partition("<= Recv header: ")
                name, _, value = header.partition(":")
                if name.lower() == "location":
                    asked = f"{self._address}{_INFO}"
                    location = urllib.parse.urljoin(asked, value.strip())
        for ending in ("/info/refs", "/git-upload-pack"):
            location = shown_url(location).removesuffix(ending)
        words = self._read("errors")
        return GitFailure("failed", words, location)

    def _find_commit(self, name: str) -> str | None:
        done = self._run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False)
        if not done:
            return None
        return self._read("output").strip()

    def list_files(self, commit: str, path: str | None) -> str | None:
        """Returns the output of `ls-tree -r -z -l` for a folder. None if there is no such folder."""
        tree = f"{commit}:{path}" if path else commit
        done = self._run("ls-tree", "-r", "-z", "-l", "--full-tree", tree, check=False)
        if not done:
            return None
        return self._read("output")

    def read_files(self, blobs: Sequence[GitBlob]) -> Iterator[tuple[GitBlob, bytes]]:
        """Yields the raw files."""
        ids = [f"{blob.oid}\n" for blob in blobs]
        self._run("cat-file", "--batch", given="".join(ids))
        with open(self._file("output"), "rb") as file:
            for blob in blobs:
                head = file.readline(200).decode("ascii", "replace")
                content = file.read(blob.size)
                file.read(1)  # the end of a line
                if head.split() != [blob.oid, "blob", str(blob.size)]:
                    raise GitFailure("incomplete", f"it has no content of {blob.path}")
                yield blob, content

    def read_around(self, ref: str) -> Iterator[Member] | None:
        """Returns the files of the folder `around` in a commit, without links and submodules. None if it is not
        there."""
        self._run("rev-parse", "--show-prefix")
        prefix = self._read("output").strip("\n/")
        commit = self._find_commit(ref)
        if not commit:
            return None
        listing = self.list_files(commit, prefix)
        if not listing:
            return None
        blobs = list(_parse_listing(listing))
        return (Member(blob.path, "file", blob.executable, iter([data])) for blob, data in self.read_files(blobs))

    def _run(self, *arguments: str, given: str = "", check: bool = True) -> bool:
        argv = [self._program]
        for setting in self._settings:
            argv += ["-c", setting]
        argv += [*self._which, *arguments]
        watch = partial(self._watch, arguments[0])
        ended = run_watched(argv, self._work, env=self._env, given=given.encode(), watch=watch)
        if check and ended:
            raise self._failure()
        return ended == 0

    def _watch(self, command: str) -> None:
        if time.monotonic() >= self._ends:
            raise GitFailure("timeout")
        packs = self._file("repository/objects/pack")
        size = size_of_files(self._work) + size_of_files(packs)
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


def _check_host(address: str, authority: str) -> None:
    """Refuses an address that nothing connects to. A name is not looked up: ssh and a proxy have their own tables."""
    host, _, _ = authority.partition(":")
    if authority.startswith("["):
        host, _, _ = authority.partition("]")
        host += "]"
    why = None
    try:
        _, found = parse_host(host) if host else ("", None)
        if found is not None:
            why = why_never(found)
    except NotAHost as error:
        why = str(error)
    if why:
        raise refused_address(shown_url(address), why)


def _parse_listing(listing: str) -> Iterator[GitBlob]:
    """Yields the files in the output of `list_files`, without links and submodules."""
    for record in listing.split("\0")[:-1]:
        head, _, path = record.partition("\t")
        mode, kind, oid, size = head.split()
        if kind != "blob":
            continue
        if not size.isdecimal():
            raise GitFailure("incomplete", f"it has no content of {path}")
        if mode != "120000":
            yield GitBlob(path, oid, int(size), mode == "100755")
