"""Obtains the skills of one commit of a repository, through the user's own git."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping

from prowess._internal.archive import DEFAULT_LIMITS, ArchiveLimits, check_path_size, write_members
from prowess._internal.git_repository import GitBlob, GitFailure, GitRepository
from prowess._internal.tar import Member
from prowess._internal.unpack import name_from_url
from prowess.core.findings import visible
from prowess.errors import FetchError, PackError, PackMismatch, PackUnsafe
from prowess.packs.values import Obtained, PackSource, Progress, no_progress

TIMEOUT_S = 120.0
_LFS = b"version https://git-lfs.github.com/spec/"
_ERRORS = {
    "git-missing": ("{} needs git, which is not on PATH", "Install git, or use the address of an archive."),
    "git-timeout": ("Git did not finish with {} in time", "Try again later, or use the address of an archive."),
    "git-ref-unknown": ("{} has no such branch, tag or commit", "Check what stands after '@': git ls-remote {}"),
    "git-commit-gone": ("{} no longer has the commit of the lock", "Its history was rewritten. Run: prowess update"),
    "git-path-unknown": ("{} has no such folder", "Check the path after '#'."),
    "git-protocol-refused": ("{} needs a protocol that is refused", "Use https or ssh. Check url.*.insteadOf of git."),
    "git-no-access": ("{} does not exist, or you have no access", "Check that git can read it: git ls-remote {}"),
    "git-unreachable": ("{} cannot be reached", "Check the address, the network and the proxy settings, or try later."),
    "git-redirected": ("{} redirects to another address", "If you know that address, use it as SOURCE."),
    "git-failed": ("Git cannot fetch {}", "Check that git itself can read it: git ls-remote {}"),
    "pack-too-large": ("{} is too large", "Name one folder of it with #path, or publish an archive."),
}
_CLASSES = {"git-commit-gone": PackMismatch, "pack-too-large": PackUnsafe}
# Codes of errors, and words in a line of git. The first that matches counts.
_SIGNS = {
    "git-redirected": "returned error: 30[12378]",
    "git-protocol-refused": "(?i)not allowed|unsupported protocol",
    "git-no-access": "(?i)authentication failed|could not read (?:username|password|from remote)|access denied"
    "|permission denied|not found|not appear to be a git repository|error: 40[134]|dubious ownership",
    "git-unreachable": "(?i)could not resolve|connection refused|timed out|failed to connect|couldn't connect"
    "|unreachable|no route to host|connection reset|certificate|unable to access|hung up",
}
_REASONS = {  # of a GitFailure that says nothing in the words of git
    "missing": "git-missing",
    "timeout": "git-timeout",
    "too-large": "pack-too-large",
    "incomplete": "git-failed",
}
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
    wanted = commit or source.ref or "HEAD"
    what = f"Fetching {visible(source.text[:200])}"
    ends = time.monotonic() + timeout_s
    with _errors(source), tempfile.TemporaryDirectory(dir=into, prefix=".git-") as work:
        git = GitRepository(
            source.location, work, environ=environ, ends=ends, report=lambda size: progress(what, size, None)
        )
        found = git.fetch(wanted)
        if found is None or commit not in (None, found):
            raise _error(source, "git-commit-gone" if commit else "git-ref-unknown", wanted)
        listing = git.list_files(found, source.path)
        if listing is None:
            raise _error(source, "git-path-unknown", source.path or "")
        blobs = _blobs_of_skills(listing, left_out, limits)
        if sum(blob.size for blob in blobs) > limits.max_total_bytes:
            raise _error(source, "pack-too-large")
        members = _members(git.read_files(blobs), left_out["Git LFS pointers"])
        write_members(members, folder, limits=limits, report=lambda count: progress("Reading files", count, len(blobs)))
    notes: list[str] = []
    for kind, paths in left_out.items():
        if paths:
            named = visible(", ".join(paths)[:300])
            notes.append(f"{kind} ({len(paths)}): {named}. {_NOTES[kind]}")
    links = tuple(sorted(left_out["Links"]))
    return Obtained(source=source, folder=folder, is_ours=True, commit=found, notes=tuple(notes), left_out=links)


def _members(files: Iterable[tuple[GitBlob, bytes]], pointers: list[str]) -> Iterator[Member]:
    """Yields the files. Paths of Git LFS pointers are added to `pointers`."""
    for blob, content in files:
        if content.startswith(_LFS):
            pointers.append(blob.path)
        yield Member(blob.path, "file", blob.executable, iter([content]))


def _blobs_of_skills(listing: str, left_out: dict[str, list[str]], limits: ArchiveLimits) -> list[GitBlob]:
    """Reads `ls-tree -r -z -l`. Keeps files at the top and below a SKILL.md, so that a large repository with a few
    skills stays within the limits. PackUnsafe if one of them is too long or too deep."""
    found: list[GitBlob] = []
    homes: set[str] = set()  # folders with a SKILL.md
    for record in listing.split("\0")[:-1]:
        head, _, path = record.partition("\t")
        mode, kind, oid, size = head.split()
        if kind == "commit":
            left_out["Submodules"].append(path)
        elif mode == "120000":
            left_out["Links"].append(path)
        else:
            blob = GitBlob(path, oid, int(size), mode == "100755")
            found.append(blob)
            folder, _, name = path.rpartition("/")
            if name.lower() == "skill.md":
                homes.add(folder)
    kept = [blob for blob in found if _is_kept(blob.path, homes, limits)]
    for blob in kept:
        check_path_size(blob.path, limits)
    return kept


def _is_kept(path: str, homes: set[str], limits: ArchiveLimits) -> bool:
    """Looks at no more folders above `path` than a path may have, so that the time grows with the paths only."""
    if "" in homes or "/" not in path or path.rpartition("/")[0] in homes:
        return True
    parts = path[: limits.max_path_bytes].split("/", limits.max_depth)[:-1]
    return not homes.isdisjoint(itertools.accumulate(parts, "{}/{}".format))


@contextlib.contextmanager
def _errors(source: PackSource) -> Iterator[None]:
    """Turns a failure of git into a PackError. What follows a "remote error" is from the server, and is not shown."""
    try:
        yield
    except GitFailure as error:
        if error.reason in _REASONS:
            raise _error(source, _REASONS[error.reason], error.words) from error
        text, refused, _ = f"\n{error.words}".partition("\nfatal: remote error:")
        own = [line.strip() for line in text.split("\n") if line.startswith(("fatal:", "error:", "ssh:"))]
        if refused and not own:
            own = ["the server refused"]
        codes = (code for line in own for code, signs in _SIGNS.items() if re.search(signs, line))
        code = next(codes, "git-failed")
        raise _error(source, code, error.location if code == "git-redirected" else "".join(own[:1])) from error
    except FetchError as error:
        if not error.retryable:
            raise
        raise _error(source, "git-unreachable", error.message) from error


def _error(source: PackSource, code: str, detail: str = "") -> PackError:
    problem, hint = _ERRORS[code]
    message = problem.format(visible(source.text[:200]))
    if detail:
        message += f": {visible(detail[:200].rstrip('.'))}"
    hint = hint.format(visible(shlex.quote(source.location[:300])))
    return _CLASSES.get(code, PackError)(f"{message}.", code=code, hint=hint)
