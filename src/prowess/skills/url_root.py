"""Downloads a root from a URL into a folder of the cache, and verifies the folder's digest on every use.

The folder is published as a whole, under its digest. So readers never see half of it, and two processes can fetch it at
once. A failure outside (network, server, archive, disk) becomes a finding; meanwhile an older good copy is used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from prowess._internal.digest import FileDigest, tree_digest
from prowess._internal.fetch import Fetched, FetchLimits, fetch
from prowess._internal.files import open_regular, read_regular, write_whole
from prowess._internal.unpack import MAX_SKILL_BYTES, name_from_url, text_lines, unpack
from prowess._internal.urls import shown_url, split_pin
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.errors import FetchError, ProwessError

_MAX_META_BYTES = 64 * 1024
_META_SCHEMA = "prowess.url-root/1"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME_LINE = re.compile(r"""name\s*:\s*(["']?)(\w[\w.-]{0,63})\1\s*(?:\s#.*)?""")


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlRoot:
    """Result of opening a URL root. `path` is the folder to search, or None when there is nothing."""

    path: str | None = None
    digest: str | None = None
    sha256: str | None = None
    fetched_at: float | None = None
    findings: tuple[Finding, ...] = ()


def open_url_root(
    url: str, cache_dir: str, *, max_age_s: float = 600, offline: bool = False, now: Callable[[], float] = time.time
) -> UrlRoot:
    """Returns the skills behind `url`: an archive or one SKILL.md, optionally pinned by `#sha256=…`, at most
    `max_age_s` old."""
    shown = shown_url(url)
    findings: list[Finding] = []
    try:
        address = _PinnedUrl(*split_pin(url))
    except FetchError as error:
        return UrlRoot(findings=(_finding("url-failed", shown, error),))
    folder = _folder_of(address, cache_dir)
    cached, damage = _load_cached(folder)
    if damage:
        note = Note("cache-corrupt", None, {"reason": damage})
        findings.append(make_finding(note, shown))
    if cached is not None and address.pin not in (None, cached.sha256):
        cached = None
    if cached is not None and _is_fresh(cached, address, max_age_s, now()):
        return _root(cached, folder, findings)
    try:
        meta = _refreshed(address, folder, cached, offline, now)
    except (ProwessError, OSError) as error:
        if cached is None:
            findings.append(_finding("url-failed", shown, error))
            return UrlRoot(findings=tuple(findings))
        age = _duration(now() - cached.fetched_at)
        findings.append(_finding("url-stale", shown, error, age=age))
        meta = cached
    return _root(meta, folder, findings)


def _folder_of(address: _PinnedUrl, cache_dir: str) -> str:
    """Returns the folder of an address in the cache."""
    raw = address.url.encode("utf-8", "surrogateescape")
    key = hashlib.sha256(raw).hexdigest()[:32]
    return os.path.join(os.path.abspath(cache_dir), "urls", key)


@dataclass(frozen=True, slots=True)
class _PinnedUrl:
    url: str  # without its fragment
    pin: str | None

    @property
    def is_local(self) -> bool:
        return self.url[:5].lower() == "file:"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meta:
    schema: str = _META_SCHEMA
    url: str
    etag: str | None = None
    last_modified: str | None = None
    sha256: str
    digest: str
    tree: str
    fetched_at: float


def _load_cached(folder: str) -> tuple[_Meta | None, str | None]:
    """Returns the cached copy, or the reason why it cannot be used. Trust refers to the digest, so the files are read
    and hashed again."""
    path = os.path.join(folder, "meta.json")
    try:
        data = read_regular(path, _MAX_META_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        return None, _reason(error)
    try:
        meta = _parse_meta(data)
        match = _DIGEST.fullmatch(meta.digest)
        if not match or match[1] != meta.tree:
            return None, "meta.json contradicts itself"
        tree = _tree_path(folder, meta)
        if _digest_of(tree) != meta.digest:
            return None, "its files were changed"
    except (OSError, ValueError, RecursionError) as error:
        return None, _reason(error)
    return meta, None


def _parse_meta(data: bytes) -> _Meta:
    """Returns the record of a copy. ValueError if it is not one. Needs no pydantic, because `prowess list` reads it."""
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("meta.json must be an object")
    known: dict[str, Any] = {each.name: document.get(each.name) for each in fields(_Meta)}
    fetched_at = known.pop("fetched_at")
    if known["schema"] != _META_SCHEMA or type(fetched_at) not in (int, float):
        raise ValueError("meta.json has another schema, or fetched_at is not a number")
    for name, text in known.items():
        if text is None and name in ("etag", "last_modified"):
            continue
        if not isinstance(text, str):
            problem = f"{name} in meta.json must be text, not {text!r}"
            raise ValueError(problem[:300])
    return _Meta(**known, fetched_at=float(fetched_at))


def _is_fresh(cached: _Meta, address: _PinnedUrl, max_age_s: float, now: float) -> bool:
    """True when the cached copy needs no refresh. A pinned copy never does. A local file is cheap, so it is always read
    again."""
    if address.pin is not None:
        return True
    if address.is_local:
        return False
    age_s = now - cached.fetched_at
    return 0 <= age_s < max_age_s


def _refreshed(
    address: _PinnedUrl, folder: str, cached: _Meta | None, offline: bool, now: Callable[[], float]
) -> _Meta:
    if offline and not address.is_local:
        raise FetchError("Prowess is offline.", code="fetch-offline", hint="Allow the network to fetch it.")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-", ignore_cleanup_errors=True) as work:
        download = os.path.join(work, "download")
        got = _fetch(address, download, cached)
        if cached is not None and (got.status == "unchanged" or got.sha256 == cached.sha256):
            etag = got.etag or cached.etag
            last_modified = got.last_modified or cached.last_modified
            meta = replace(cached, etag=etag, last_modified=last_modified, fetched_at=now())
        else:
            tree = _unpacked(download, work, address)
            meta = _describe(address, got, _digest_of(tree), fetched_at=now())
            _publish(tree, _tree_path(folder, meta), meta.digest)
    text = json.dumps(asdict(meta), indent=1)
    write_whole(os.path.join(folder, "meta.json"), text.encode())
    return meta


def _fetch(address: _PinnedUrl, download: str, cached: _Meta | None) -> Fetched:
    """Downloads a root, if it changed since the copy. There are no retries when a copy is available."""
    if cached is None:
        return fetch(address.url, download, sha256=address.pin, limits=FetchLimits(attempts=3))
    limits = FetchLimits(attempts=1)
    etag, last_modified = cached.etag, cached.last_modified
    return fetch(address.url, download, etag=etag, last_modified=last_modified, sha256=address.pin, limits=limits)


def _describe(address: _PinnedUrl, got: Fetched, digest: str, *, fetched_at: float) -> _Meta:
    assert got.sha256 is not None
    return _Meta(
        url=shown_url(address.url),
        etag=got.etag,
        last_modified=got.last_modified,
        sha256=got.sha256,
        digest=digest,
        tree=digest.removeprefix("sha256:"),
        fetched_at=fetched_at,
    )


def _unpacked(download: str, work: str, address: _PinnedUrl) -> str:
    """Unpacks the download and returns the folder to search. A skill at the top gets its own folder, named after the
    skill."""
    tree = os.path.join(work, "tree")
    files = unpack(download, tree)
    at_top = next((name for name in ("SKILL.md", "skill.md") if name in files), None)
    if at_top is None:
        return tree
    data = read_regular(os.path.join(tree, at_top), MAX_SKILL_BYTES)
    name = _name_in(data) or name_from_url(address.url)
    wrapped = os.path.join(work, "wrapped")
    os.mkdir(wrapped, 0o755)
    os.rename(tree, os.path.join(wrapped, name))
    return wrapped


def _name_in(data: bytes) -> str | None:
    lines = text_lines(data)
    if next(lines, None) != "---":
        return None
    for line in lines:
        if line == "---":
            return None
        match = _NAME_LINE.fullmatch(line)
        if match:
            return match[2]
    return None


def _digest_of(folder: str) -> str:
    return tree_digest(_file_digests(folder, ""))


def _file_digests(folder: str, prefix: str) -> Iterator[FileDigest]:
    """Yields the digest of each file. Raises NotRegular for links and special files: extraction creates none, so
    somebody added them."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _file_digests(entry.path, f"{name}/")
                continue
            with os.fdopen(open_regular(entry.path), "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            yield FileDigest(name, bool(mode & stat.S_IXUSR), sha256)


def _publish(tree: str, target: str, digest: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    for attempt in range(3):
        try:
            os.rename(tree, target)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        with contextlib.suppress(OSError):
            if _digest_of(target) == digest:  # another process was faster, with the same content
                return
        with contextlib.suppress(FileNotFoundError):  # another process moved it away
            os.rename(target, f"{tree}.damaged-{attempt}")
    os.rename(tree, target)


def _tree_path(folder: str, meta: _Meta) -> str:
    """Returns the folder of a copy, which is named after its digest."""
    return os.path.join(folder, "trees", meta.tree)


def _root(meta: _Meta, folder: str, findings: list[Finding]) -> UrlRoot:
    return UrlRoot(
        path=_tree_path(folder, meta),
        digest=meta.digest,
        sha256=meta.sha256,
        fetched_at=meta.fetched_at,
        findings=tuple(findings),
    )


def _finding(code: str, shown: str, error: ProwessError | OSError, **details: str) -> Finding:
    remedy = "Check that the cache folder can be written to and that the disk has room."
    if isinstance(error, ProwessError) and error.hint:
        remedy = error.hint
    details = {"reason": _reason(error), "remedy": remedy, **details}
    return make_finding(Note(code, None, details), shown)


def _reason(error: Exception) -> str:
    if isinstance(error, ProwessError):
        return error.message
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)[:200]
    if error.filename:
        return f"{error.strerror}: {error.filename}"
    return error.strerror


def _duration(seconds: float) -> str:
    """Renders the age of a copy in its largest unit."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            number = seconds / size
            return f"{number:.0f} {unit}"
    seconds = max(0, seconds)
    return f"{seconds:.0f} seconds"
