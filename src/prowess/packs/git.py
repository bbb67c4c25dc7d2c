"""Reads one commit of a repository through the user's own git, without a checkout.

Files are read as raw blobs and written by `_internal.archive`. So no hook, filter, attribute or submodule of a
repository has any effect. Git runs in an environment that is built here, in its own process group, and never asks
anybody: without a terminal and a display, ssh cannot ask either. System and user configuration stay in force, because
credential helpers, certificates and proxies are often set there; what could run a program of the repository is
switched off on the command line.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prowess._internal.archive import DEFAULT_LIMITS, ArchiveLimits, check_path_size, write_members
from prowess._internal.files import read_regular
from prowess._internal.tar import Member
from prowess._internal.unpack import name_from_url
from prowess.core.findings import visible
from prowess.errors import PackError, PackMismatch, PackUnsafe
from prowess.packs.values import Obtained, PackSource, Progress, no_progress

TIMEOUT_S = 120.0
_MAX_BYTES = 1024 * 1024 * 1024  # of all that git writes; the files of skills have smaller limits
_MAX_LIST_BYTES = 32 * 1024 * 1024  # of a list of files
_POLL_S = 0.1
_WANTED = "refs/prowess/wanted"
_EVERYTHING = ("+refs/heads/*:refs/prowess/heads/*", "+refs/tags/*:refs/prowess/tags/*")
_STREAMS = ("input", "output", "errors")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_LFS = b"version https://git-lfs.github.com/spec/"
_PASSED_ON = (
    "HOME SSH_AUTH_SOCK GIT_SSH_COMMAND XDG_CONFIG_HOME XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS TMPDIR "
    "HTTPS_PROXY https_proxy ALL_PROXY all_proxy NO_PROXY no_proxy SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE "
    "SYSTEMROOT USERPROFILE APPDATA LOCALAPPDATA"
).split()
_SETTINGS = (
    f"core.hooksPath={os.devnull} core.fsmonitor=false submodule.recurse=false credential.interactive=never "
    "gc.auto=0 maintenance.auto=false fetch.writeCommitGraph=false fetch.unpackLimit=1"
).split()  # the last one: all that is fetched is one pack, whose size is watched
_ERRORS = {
    "git-missing": ("{} needs git, which is not on PATH", "Install git, or use the address of an archive."),
    "git-timeout": ("Git did not finish with {} in time", "Try again later, or use the address of an archive."),
    "git-ref-unknown": ("{} has no such branch, tag or commit", "Check what stands after '@': git ls-remote"),
    "git-commit-gone": ("{} no longer has the commit of the lock", "Its history was rewritten. Run: prowess update"),
    "git-path-unknown": ("{} has no such folder", "Check the path after '#'."),
    "git-protocol-refused": ("{} needs a protocol that is refused", "Use https or ssh. Check url.*.insteadOf of git."),
    "git-no-access": ("{} does not exist, or you have no access", "Check that git can read it: git ls-remote"),
    "git-unreachable": ("{} cannot be reached", "Check the address, the network and the proxy settings, or try later."),
    "git-failed": ("Git cannot fetch {}", "Check that git itself can fetch it: git ls-remote, and the address."),
    "pack-too-large": ("{} is too large", "Name one folder of it with #path, or publish an archive."),
}
_CLASSES = {"git-commit-gone": PackMismatch, "pack-too-large": PackUnsafe}
# Codes of errors, and words in what git says. The first that matches counts.
_SIGNS = {
    "git-protocol-refused": "(?i)not allowed|unsupported protocol",
    "git-no-access": "(?i)authentication failed|could not read (?:username|password)|permission denied|access denied"
    "|not found|not appear to be a git repository|host key verification|error: 40[134]|dubious ownership",
    "git-unreachable": "(?i)could not resolve|connection refused|timed out|failed to connect|couldn't connect"
    "|unreachable|no route to host|connection reset|certificate|unable to access|hung up",
}
_UNKNOWN_REF = re.compile("(?i)couldn't find remote ref|not our ref|unadvertised object|not advertised")
_NOTES = {
    "Links": "They are not followed.",
    "Submodules": "Install them from their own repositories.",
    "Git LFS pointers": "Their content is stored elsewhere; the files hold pointers only.",
}


def obtain_commit(
    source: PackSource,
    into: str,
    *,
    commit: str | None = None,
    progress: Progress = no_progress,
    environ: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
    limits: ArchiveLimits = DEFAULT_LIMITS,
) -> Obtained:
    """Fetches the ref of a source, or exactly `commit`, and writes the files of its skills below `into`."""
    left_out: dict[str, list[str]] = {kind: [] for kind in _NOTES}
    folder = os.path.join(into, name_from_url(source.path or source.location))
    with tempfile.TemporaryDirectory(dir=into, prefix=".git-") as work:
        git = _Git(source, work, environ, time.monotonic() + timeout_s, progress)
        found = git.fetch(commit)
        blobs = _blobs_of_skills(git.list_files(found), left_out, limits)
        if sum(blob.size for blob in blobs) > limits.max_total_bytes:
            raise _error(source, "pack-too-large")
        members = git.read_files(blobs, left_out["Git LFS pointers"])
        write_members(members, folder, limits=limits, report=lambda count: progress("Reading files", count, len(blobs)))
    notes, links = tuple(_note(kind, paths) for kind, paths in left_out.items() if paths), sorted(left_out["Links"])
    return Obtained(source=source, folder=folder, is_ours=True, commit=found, notes=notes, left_out=tuple(links))


class _Blob(NamedTuple):
    path: str
    oid: str
    size: int
    executable: bool


def _blobs_of_skills(listing: str, left_out: dict[str, list[str]], limits: ArchiveLimits) -> list[_Blob]:
    """Reads `ls-tree -r -z -l`. Only files below a SKILL.md and files at the top are kept, so that a large repository
    with a few skills stays within the limits. PackUnsafe if one of them is too long or too deep."""
    found: list[_Blob] = []
    for record in listing.split("\0")[:-1]:
        head, _, path = record.partition("\t")
        mode, kind, oid, size = head.split()
        if kind == "commit":
            left_out["Submodules"].append(path)
        elif mode == "120000":
            left_out["Links"].append(path)
        else:
            found.append(_Blob(path, oid, int(size), mode == "100755"))
    named = (blob.path.rpartition("/") for blob in found)
    homes = {folder for folder, _, name in named if name.lower() == "skill.md"}
    kept = [blob for blob in found if "/" not in blob.path or _is_below(blob.path, homes, limits)]
    for blob in kept:
        check_path_size(blob.path, limits)
    return kept


def _is_below(path: str, homes: set[str], limits: ArchiveLimits) -> bool:
    """True if a folder above `path` is one of `homes`. Looks at no more folders than a path may have, so that the time
    for all paths grows with their number only."""
    if "" in homes or path.rpartition("/")[0] in homes:
        return True
    parts = path[: limits.max_path_bytes].split("/", limits.max_depth)[:-1]
    return not homes.isdisjoint(itertools.accumulate(parts, "{}/{}".format))


class _Git:
    """The user's git, with one repository in the folder `work` and one deadline for all commands."""

    def __init__(self, source: PackSource, work: str, env: Mapping[str, str], ends: float, progress: Progress) -> None:
        path = os.pathsep.join(filter(os.path.isabs, env.get("PATH", "").split(os.pathsep)))
        program = shutil.which("git", path=path)
        if program is None:
            raise _error(source, "git-missing")
        self._work, self._program = work, program
        self._source, self._ends, self._progress = source, ends, progress
        self._env = {name: env[name] for name in _PASSED_ON if name in env}
        self._env |= {"PATH": path, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": ""}
        # Unlike protocol.*.allow this cannot be widened by a configuration file.
        self._env["GIT_ALLOW_PROTOCOL"] = "file" if os.path.isabs(source.location) else "https:ssh"

    def fetch(self, commit: str | None) -> str:
        """Fetches what the source names, or `commit`, and returns the id of the commit."""
        self._run("init", "--bare", "--quiet", "--template=", self._file("repository"))
        fetch = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
        wanted, found = commit or self._source.ref or "HEAD", None
        if self._run(*fetch, "--depth=1", "--", self._source.location, f"+{wanted}:{_WANTED}", check=False):
            found = self._find_commit(_WANTED)
        elif not _UNKNOWN_REF.search(self._read("errors")):
            raise self._failed()
        elif _COMMIT.fullmatch(wanted):  # the server gives branches and tags only, or the id is short
            self._run(*fetch, "--", self._source.location, *_EVERYTHING)
            found = self._find_commit(wanted)
        if found is None or commit not in (None, found):
            raise _error(self._source, "git-commit-gone" if commit else "git-ref-unknown", wanted)
        return found

    def _find_commit(self, name: str) -> str | None:
        done = self._run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False)
        return self._read("output").strip() if done else None

    def list_files(self, commit: str) -> str:
        path = self._source.path
        tree = f"{commit}:{path}" if path else commit
        if not self._run("ls-tree", "-r", "-z", "-l", "--full-tree", tree, check=False):
            raise _error(self._source, "git-path-unknown", path or "")
        return self._read("output")

    def read_files(self, blobs: list[_Blob], pointers: list[str]) -> Iterator[Member]:
        """Yields the raw files. Paths of Git LFS pointers are added to `pointers`."""
        self._run("cat-file", "--batch", given="".join(f"{blob.oid}\n" for blob in blobs))
        with open(self._file("output"), "rb") as file:
            for blob in blobs:
                head, content, _ = file.readline(200), file.read(blob.size), file.read(1)
                if head.decode("ascii", "replace").split() != [blob.oid, "blob", str(blob.size)]:
                    raise _error(self._source, "git-failed", f"it has no content of {blob.path}")
                if content.startswith(_LFS):
                    pointers.append(blob.path)
                yield Member(blob.path, "file", blob.executable, iter([content]))

    def _run(self, *arguments: str, given: str = "", check: bool = True) -> bool:
        """Runs a command with its output and errors in files, so that nothing waits for a reader."""
        import subprocess

        settings = [each for setting in _SETTINGS for each in ("-c", setting)]
        argv = [self._program, *settings, f"--git-dir={self._file('repository')}", *arguments]
        with contextlib.ExitStack() as files:
            stdin, stdout, stderr = (files.enter_context(open(self._file(name), "w+b")) for name in _STREAMS)
            stdin.write(given.encode())
            stdin.seek(0)
            process = subprocess.Popen(  # noqa: S603 - arguments are checked by `source`, and "--" stands before them
                argv, cwd=self._work, env=self._env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
            )
        try:
            ended = None
            while ended is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    ended = process.wait(_POLL_S)
                self._watch(arguments[0])
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if check and ended:
            raise self._failed()
        return ended == 0

    def _watch(self, command: str) -> None:
        if time.monotonic() >= self._ends:
            raise _error(self._source, "git-timeout")
        size = _size_of(self._work) + _size_of(self._file("repository/objects/pack"))
        if size > _MAX_BYTES:
            raise _error(self._source, "pack-too-large")
        if command == "fetch":
            self._progress(f"Fetching {visible(self._source.text[:200])}", size, None)

    def _file(self, name: str) -> str:
        return os.path.join(self._work, name)

    def _read(self, name: str) -> str:
        data = read_regular(self._file(name), _MAX_LIST_BYTES)
        if len(data) > _MAX_LIST_BYTES:
            raise _error(self._source, "pack-too-large")
        return data.decode("utf-8", "surrogateescape")

    def _failed(self) -> PackError:
        """Returns the error for what git said. Git's own words are shown, never those of a server."""
        lines = [line for line in self._read("errors").splitlines() if not line.startswith("remote:")]
        own = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:"))]
        words = "\n".join(lines)
        code = next((code for code, signs in _SIGNS.items() if re.search(signs, words)), "git-failed")
        return _error(self._source, code, (own or [words])[0])


def _size_of(folder: str) -> int:
    """Returns the size of the files in a folder, without those in folders below."""
    size = 0
    with contextlib.suppress(FileNotFoundError):  # git renamed one in between, or there is no folder yet
        for entry in os.scandir(folder):
            size += entry.stat(follow_symlinks=False).st_size
    return size


def _note(kind: str, paths: list[str]) -> str:
    named = visible(", ".join(paths)[:300])
    return f"{kind} ({len(paths)}): {named}. {_NOTES[kind]}"


def _error(source: PackSource, code: str, detail: str = "") -> PackError:
    problem, hint = _ERRORS[code]
    message = problem.format(visible(source.text[:200]))
    if detail:
        message += f": {visible(detail[:200])}"
    return _CLASSES.get(code, PackError)(f"{message}.", code=code, hint=hint)
