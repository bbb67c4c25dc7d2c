"""Unpacks zip and tar archives within limits. If an archive is refused, nothing of it stays on disk.

No number in an archive is trusted: the limits count the bytes that were really produced. Members become only new
regular files and folders below one new folder.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import os
import shutil
import stat
import struct
import tarfile
import typing
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from prowess._internal.files import open_regular
from prowess._internal.portable_names import PortableNames, duplicate_name, is_plain, shown_name, unsafe_name
from prowess._internal.tar import BLOCK_BYTES, CHUNK_BYTES, Member, MemberKind, is_tar, tar_members
from prowess.errors import PackError, PackUnsafe

_MIB = 1024 * 1024
_MAX_NAME_BYTES = 255  # of one part of a path; every file system allows this much
_TAR_OVERHEAD_BYTES = 4096  # per entry: headers and padding of a normal tar
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_ZIP_ENCRYPTED = 0x1 | 0x40 | 0x2000  # encrypted, strongly encrypted, directory masked
_ZIP_UTF8 = 0x800

# Errors of the standard library's parsers for damaged input.
_CORRUPT = (zipfile.BadZipFile, gzip.BadGzipFile, tarfile.TarError, zlib.error, struct.error)
_CORRUPT += (EOFError, ValueError, NotImplementedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    max_entries: int = 10_000
    max_file_bytes: int = 64 * _MIB
    max_total_bytes: int = 256 * _MIB
    max_ratio: int = 200  # unpacked bytes per archive byte, checked after the first MiB
    max_path_bytes: int = 1024
    max_depth: int = 32


DEFAULT_LIMITS = ArchiveLimits()


def extract(
    archive: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    limits: ArchiveLimits = DEFAULT_LIMITS,
    report: Callable[[int], None] | None = None,
) -> dict[str, str]:
    """Unpacks a zip, tar or gzipped tar into a new or empty folder, and returns the sorted paths of its files with the
    sha256 of each.

    The content decides the format, not the name. PackUnsafe: a member is not a plain file or folder, or a limit is
    exceeded. PackError: the file is not an archive, or it is damaged. After an error `into` is deleted, except if it
    was not empty before. `report` gets the number of members so far.
    """
    source = os.fspath(archive)
    folder = os.fspath(into)
    with _whole_or_gone(folder), _as_pack_error(), os.fdopen(open_regular(source, follow=True), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        tree = _Tree(folder, limits, archive_bytes=size)
        members = _members(file, tree)
        return tree.add_all(members, report)


def write_members(
    members: Iterable[Member],
    into: str | os.PathLike[str],
    *,
    limits: ArchiveLimits = DEFAULT_LIMITS,
    report: Callable[[int], None] | None = None,
) -> dict[str, str]:
    """Writes members that come from elsewhere, such as a repository, under the same rules as those of an archive."""
    folder = os.fspath(into)
    with _whole_or_gone(folder), _as_pack_error():
        # Nothing was compressed, so no ratio can be exceeded.
        tree = _Tree(folder, limits, archive_bytes=limits.max_total_bytes)
        return tree.add_all(members, report)


def check_path_size(path: str, limits: ArchiveLimits) -> None:
    """Refuses a path that is too long or too deep."""
    encoded = os.fsencode(path)
    parts = encoded.split(b"/")
    too_long = len(encoded) > limits.max_path_bytes or max(map(len, parts)) > _MAX_NAME_BYTES
    if too_long or len(parts) > limits.max_depth:
        raise unsafe_name("path", path, "has a path that is too long or too deep", "Shorten it.")


@contextlib.contextmanager
def _whole_or_gone(folder: str) -> Iterator[None]:
    try:
        above = os.path.dirname(folder)
        os.makedirs(above or ".", exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o755)
        if os.path.islink(folder) or os.listdir(folder):
            raise OSError(errno.ENOTEMPTY, "it is not an empty folder")
    except OSError as error:  # nothing was written yet, so the files there are not ours and stay
        message = f"Cannot unpack into {folder}: {error.strerror}."
        raise PackError(message, code="archive-target", hint="Name a new or empty folder.") from error
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextlib.contextmanager
def _as_pack_error() -> Iterator[None]:
    """Turns errors of the system and of damaged archives into a PackError."""
    try:
        yield
    except (*_CORRUPT, OSError) as error:
        # BadGzipFile is an OSError too. EINVAL comes from a seek that only a broken zip directory asks for.
        if isinstance(error, _CORRUPT) or error.errno == errno.EINVAL:
            why = str(error)[:200]  # it may quote a long name
            message = f"This archive is damaged or cut off: {why}."
            raise PackError(message, code="archive-corrupt", hint="Download it or pack it again.") from error
        message = f"This cannot be unpacked: {error.strerror or error}."
        hint = "Check that the file can be read and that the disk has room."
        raise PackError(message, code="archive-io", hint=hint) from error


def _members(file: IO[bytes], tree: _Tree) -> Iterator[Member]:
    head = file.read(BLOCK_BYTES)
    file.seek(0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_members(file, tree.limits)
    if is_tar(head):
        return tar_members(file, tree.count_tar_bytes)
    if head.startswith(b"\x1f\x8b"):
        unpacked = typing.cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        if is_tar(unpacked.read(BLOCK_BYTES)):
            unpacked.seek(0)
            return tar_members(unpacked, tree.count_tar_bytes)
    raise PackError("This is not an archive.", code="archive-unknown", hint="Use a .zip, .tar or .tar.gz file.")


def _zip_members(file: IO[bytes], limits: ArchiveLimits) -> Iterator[Member]:
    _check_crowded_zip(file, limits)
    with zipfile.ZipFile(file) as bundle:
        for info in bundle.infolist():
            name = _zip_name(info)
            if info.flag_bits & _ZIP_ENCRYPTED:
                raise unsafe_name("encrypted", name, "is encrypted", "Pack it without a password.")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others can use much memory
                raise unsafe_name("special", name, "is compressed in an unusual way", "Pack it again with deflate.")
            mode = info.external_attr >> 16
            kind = "folder" if name.endswith("/") else _zip_kind(mode)
            chunks = _zip_chunks(bundle, info)
            yield Member(name, kind, bool(mode & 0o111), chunks)


def _check_crowded_zip(file: IO[bytes], limits: ArchiveLimits) -> None:
    """Counts entry signatures before zipfile makes an object of each entry. An archive cannot have more entries than
    signatures."""
    count, tail = 0, b""
    while chunk := file.read(CHUNK_BYTES):
        count += (tail + chunk).count(b"PK\x01\x02")
        if count > limits.max_entries:
            raise _too_many(limits)
        tail = (tail + chunk)[-3:]
    file.seek(0)


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Returns the name as stored, including the bytes after a NUL. macOS writes UTF-8 without setting the UTF-8
    flag."""
    if not info.flag_bits & _ZIP_UTF8:
        with contextlib.suppress(UnicodeError):
            return info.orig_filename.encode("cp437").decode("utf-8")
    return info.orig_filename


def _zip_kind(mode: int) -> MemberKind:
    """Returns the kind of a member with this mode. A zip of Windows has no modes."""
    kind = stat.S_IFMT(mode)
    if kind in (0, stat.S_IFREG):
        return "file"
    if kind == stat.S_IFDIR:
        return "folder"
    if kind == stat.S_IFLNK:
        return "link"
    return "special"


def _zip_chunks(bundle: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    size = 0
    with bundle.open(info) as source:
        while chunk := source.read(CHUNK_BYTES):
            size += len(chunk)
            yield chunk
    if size != info.file_size:
        raise zipfile.BadZipFile("a member is shorter than its header says")


class _Tree:
    """The new folder. Checks each member and counts the bytes that it really writes."""

    def __init__(self, folder: str, limits: ArchiveLimits, *, archive_bytes: int) -> None:
        self.limits = limits
        self.files: dict[str, str] = {}  # path -> sha256 of the bytes that were written
        self._archive_bytes = archive_bytes
        # Path in the archive -> resolved path. Each folder but the first is made here, so no link can be among them.
        self._folders = {"": os.path.realpath(folder)}
        self._names = PortableNames()
        self._file_bytes = self._tar_bytes = 0

    def add_all(self, members: Iterable[Member], report: Callable[[int], None] | None) -> dict[str, str]:
        for count, member in enumerate(members, start=1):
            if count > self.limits.max_entries:
                raise _too_many(self.limits)
            self.add(member)
            if report is not None:
                report(count)
        return dict(sorted(self.files.items()))

    def add(self, member: Member) -> None:
        parts = self._safe_parts(member)
        path = "/".join(parts)
        if member.kind == "link":
            raise unsafe_name("link", member.name, "is a link", "Pack the file itself instead of a link to it.")
        if member.kind == "special":
            why = "is not a plain file (device, FIFO or sparse)"
            raise unsafe_name("special", member.name, why, "Pack plain files.")
        if not parts or parts[0] == "__MACOSX" or parts[-1] == ".DS_Store":
            return
        if member.kind == "folder":  # no digest has an empty folder, so a folder is made with its first file
            self._take_in_folder(path)
        else:
            self._make_folders(parts[:-1])
            self._make_file(path, member)

    def count_tar_bytes(self, size: int) -> None:
        """Counts all bytes of a tar. Headers and skipped members do not become files, but an archive bomb can consist
        of them."""
        self._tar_bytes += size
        self._judge(self._tar_bytes, overhead_bytes=_MIB + _TAR_OVERHEAD_BYTES * self.limits.max_entries)

    def _judge(self, produced_bytes: int, *, overhead_bytes: int = 0) -> None:
        """Refuses an archive that has produced too many bytes."""
        limits = self.limits
        if produced_bytes > limits.max_total_bytes + overhead_bytes:
            raise _too_large("This archive", limits.max_total_bytes)
        if produced_bytes > max(_MIB + overhead_bytes, limits.max_ratio * self._archive_bytes):
            message = f"This archive unpacks to more than {limits.max_ratio} times its size, as an attack would."
            hint = "Do not use it unless you know who made it and why."
            raise PackUnsafe(message, code="pack-ratio", hint=hint)

    def _safe_parts(self, member: Member) -> list[str]:
        name = member.name
        parts = [part for part in name.split("/") if part not in ("", ".")]
        path = "/".join(parts)
        _, _, last = name.rpartition("/")
        is_safe = is_plain(name) and (path == name or is_plain(path))
        if member.kind == "file" and last in ("", "."):
            is_safe = False
        if not is_safe:
            raise unsafe_name("path", name, "is not a plain relative path", "Use names such as my-skill/SKILL.md.")
        check_path_size(path, self.limits)
        return parts

    def _make_folders(self, parts: list[str]) -> None:
        if "/".join(parts) in self._folders:  # nearly always
            return
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            if path in self._folders:
                continue
            self._take_in_folder(path)
            target = self._place(path)
            try:
                os.mkdir(target, 0o755)
            except FileExistsError as error:
                raise duplicate_name(path) from error
            self._folders[path] = target

    def _take_in_folder(self, path: str) -> None:
        """Checks a folder's name, and counts it: a few deep paths can ask for very many folders."""
        self._names.add_folder(path)
        if self._names.folder_count > self.limits.max_entries:
            raise _too_many(self.limits)

    def _place(self, path: str) -> str:
        """Resolved path of a new file or folder: its parts are plain names, and its folder was made here."""
        above, _, name = path.rpartition("/")
        return f"{self._folders[above]}{os.sep}{name}"

    def _make_file(self, path: str, member: Member) -> None:
        self._names.add_file(path)
        target = self._place(path)
        size = 0
        sha256 = hashlib.sha256()
        try:
            fd = os.open(target, _CREATE, 0o600)
        except FileExistsError as error:
            raise duplicate_name(path) from error
        try:
            for chunk in member.chunks:
                size += len(chunk)
                self._file_bytes += len(chunk)
                if size > self.limits.max_file_bytes:
                    raise _too_large(shown_name(path), self.limits.max_file_bytes)
                self._judge(self._file_bytes)
                sha256.update(chunk)
                while chunk:
                    chunk = chunk[os.write(fd, chunk) :]
        finally:
            os.close(fd)
        os.chmod(target, 0o755 if member.executable else 0o644)
        self.files[path] = sha256.hexdigest()


def _too_large(what: str, limit_bytes: int) -> PackUnsafe:
    message = f"{what} unpacks to more than {limit_bytes} bytes."
    return PackUnsafe(message, code="pack-too-large", hint="Split it, or leave big files out.")


def _too_many(limits: ArchiveLimits) -> PackUnsafe:
    message = f"This archive has more than {limits.max_entries} entries."
    return PackUnsafe(message, code="pack-too-many-entries", hint="Split it into several archives.")
