"""Copies files to and from a container as tar streams, for an engine that cannot see the folders of this machine.

Remembers the last common state of both sides, so only changes are sent. Changes in the container are copied here, files
removed there are removed here, and files that were changed here in the meantime are kept. Data from the container is
untrusted: every name must have been requested and lie in the workspace, files are written without following links, and
the number of files and bytes is limited.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import IO, Any, NamedTuple

from prowess._internal.tar import tar_members
from prowess.errors import PackError, PathEscape, WorkspaceError, in_one_line
from prowess.workspace.container.container import PIECE_BYTES, Container, ContainerSession
from prowess.workspace.container.init_protocol import close_stream
from prowess.workspace.dirfd import open_child, open_folder, walk
from prowess.workspace.layout import LEADS
from prowess.workspace.process.command import Command, Ended
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree, remove_tree

CARRY_S = 300.0
MOST_BYTES = 2 << 30
MOST_ENTRIES = 100_000
_LIST_BYTES = 64 << 20
_SPOOLED_BYTES = 8 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SyncEntry(NamedTuple):
    kind: str  # "file", "folder" or "link"
    mark: tuple[int, ...]  # changes with the content
    target: str = ""  # of a link

    @property
    def size(self) -> int:
        if self.kind == "file":
            return self.mark[0]
        return 0


class Carrier:
    """Copies files between one container and one workspace folder. Only one method may run at a time."""

    def __init__(self, container: Container, place: Place, venv: str, most_bytes: int | None) -> None:
        self._cell = container
        self._uid = place.uid
        self._folders = {name: os.path.join(place.root, name) for name in ("work", "out", "runs")}
        self._folders[".venv"] = venv
        self._most_bytes = most_bytes or MOST_BYTES
        self._runs: set[str] = set()
        self._here: dict[str, SyncEntry] = {}
        self._there: dict[str, SyncEntry] = {}
        self._agreed = False

    async def push(self, run: str) -> None:
        """Sends new and changed files, and the folder of this run; a program does not need the folders of other
        runs."""
        own = f"runs/{run}"
        self._runs.add(own)
        here = await asyncio.to_thread(scan, self._folders)
        here[own] = SyncEntry("folder", ())
        changed = frozenset(name for name, entry in here.items() if self._here.get(name) != entry)
        gone = [name for name in self._here if name not in here and not name.startswith("runs/")]
        if self._agreed and not changed and not gone:
            return
        with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, prefix="prowess-push-") as tar:
            await asyncio.to_thread(_pack_changed, tar, self._folders, own, changed)
            listed = await self._put(_names(gone), tar)
        there = self._parse_list(listed)
        # For other files only the earlier state is known: a session may have changed them in the meantime.
        for name in gone:
            self._there.pop(name, None)
        for name in changed:
            if name in there:
                self._there[name] = there[name]
        self._here = here
        self._agreed = True

    async def pull(self) -> None:
        """Fetches files that are new or changed in the container."""
        listed = io.BytesIO()
        await self._ask("list", listed, _LIST_BYTES)
        there = self._parse_list(listed.getvalue())
        changed = {name: entry for name, entry in there.items() if self._there.get(name) != entry}
        gone = [name for name in self._there if name not in there]
        if changed or gone:
            await self._fetch(changed, gone)
        self._there = there
        self._here = await asyncio.to_thread(scan, self._folders)

    async def _fetch(self, changed: Mapping[str, SyncEntry], gone: list[str]) -> None:
        size = sum(entry.size for entry in changed.values())
        if size > self._most_bytes:
            raise _failed(f"The files in the container have {size} bytes, and at most {self._most_bytes} are taken")
        wanted = [name for name, entry in changed.items() if entry.kind == "file"]
        with tempfile.TemporaryFile(prefix="prowess-pull-") as tar:
            if wanted:
                most = self._most_bytes + len(wanted) * 4096 + (1 << 20)
                await self._ask("get", tar, most, _names(wanted))
            await asyncio.to_thread(self._apply, gone, changed, tar)

    def _apply(self, gone: list[str], changed: Mapping[str, SyncEntry], tar: IO[bytes]) -> None:
        """Changes the files of this machine, except those that were changed here in the meantime."""
        now = scan(self._folders)
        for name in sorted(gone, reverse=True):  # contents before their folder
            if name in now and now[name] == self._here.get(name):
                _remove(*self._at(name))
        requested: set[str] = set()
        for name, entry in changed.items():
            folder, path = self._at(name)
            if entry.kind == "folder":
                _make_folder(folder, path, self._uid)
            elif entry.kind == "link":
                _write(folder, path, self._uid, target=entry.target)
            else:
                requested.add(name)
        if tar.tell():
            tar.seek(0)
            self._write_files(tar, requested)

    def _write_files(self, tar: IO[bytes], left: set[str]) -> None:
        """Writes the files of the tar. Each must be one of `left`, and comes once."""
        try:
            for member in tar_members(tar, lambda _: None):
                name = member.name
                if name not in left or member.kind != "file":
                    raise PathEscape(f"The container sent {name[:80]!a}, which was not requested.", op="pull")
                left.discard(name)
                folder, path = self._at(name)
                _write(folder, path, self._uid, chunks=member.chunks, executable=member.executable)
        except (PackError, tarfile.TarError, EOFError, ValueError) as error:
            raise _failed(f"What the container sent cannot be read: {in_one_line(error)}") from error

    def _at(self, name: str) -> tuple[str, str]:
        """Returns (folder of this machine, path below it)."""
        top, _, rest = name.partition("/")
        return self._folders[top], rest

    def _parse_list(self, data: bytes) -> dict[str, SyncEntry]:
        """Parses the list of files that the container sent. It is untrusted."""
        found: dict[str, SyncEntry] = {}
        try:
            for line in data.splitlines():
                name, kind, mark, target = json.loads(line)
                top, *parts = str(name).split("/")
                is_plain = parts and "\0" not in name and {"", ".", ".."}.isdisjoint(parts)
                if top not in self._folders or not is_plain:
                    shown = str(name)[:80]
                    raise PathEscape(f"The container names {shown!a}, which is not in the workspace.", op="pull")
                if kind not in ("file", "folder", "link") or len(found) >= MOST_ENTRIES:
                    raise ValueError("too many files, or files of an unknown kind")
                if top != "runs" or f"runs/{parts[0]}" in self._runs:  # other folders there are ignored
                    numbers = tuple(int(each) for each in mark)
                    found[name] = SyncEntry(kind, numbers, str(target))
        except (ValueError, TypeError) as error:
            raise _failed(f"The list of files in the container cannot be read: {error}") from error
        return found

    async def _put(self, header: bytes, tar: IO[bytes]) -> bytes:
        said = bytearray()

        def take(data: bytes) -> None:
            said.extend(data)
            if len(said) > _LIST_BYTES:
                raise _failed("The list of files in the container is too long")

        running = self._cell.begin(self._command("put"), interactive=True)
        await running.begin()
        session = ContainerSession(running, on_output=take)
        try:
            await session.write(header)
            while chunk := tar.read(PIECE_BYTES):
                await session.write(chunk)
            session.close_stdin()
            _check_ended(await session.wait(), "put", said)
            return bytes(said)
        finally:
            await session.aclose()

    async def _ask(self, op: str, answer: IO[bytes], most_bytes: int, names: bytes = b"") -> None:
        """Writes the answer of the container to a file."""
        problem = bytearray()

        def take(data: bytes) -> None:
            if answer.tell() + len(data) > most_bytes:
                raise _failed(f"More than {most_bytes} bytes came from the container ({op})")
            answer.write(data)

        running = self._cell.begin(self._command(op, names))
        await running.begin()
        ended = await running.wait(take, problem.extend)
        _check_ended(ended, op, problem)

    def _command(self, op: str, stdin: bytes = b"") -> Command:
        argv = _agent(self._cell, op)
        env = {"LANG": "C.UTF-8"}
        return Command(argv=argv, cwd="/", env=env, stdin=stdin, timeout_s=CARRY_S)


def _agent(container: Container, op: str) -> list[str]:
    """Command that runs `sync_agent` in the container."""
    python = container.facts["python"]
    return [python, "-I", "-S", "-X", "utf8", "-c", source(), op]


async def fill(container: Container, tree: Tree, name: str, readable: Iterable[str]) -> None:
    """Writes the skill and other read-only files as root in the container, before anything runs there; programs cannot
    change them, because they run as another user."""
    import docker.errors

    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, prefix="prowess-fill-") as tar:
        await asyncio.to_thread(_pack_fixed, tar, tree, name, readable)
        try:
            await container.engine.call("fill", _exec_fill, container, tar, within_s=CARRY_S)
        except docker.errors.APIError as error:
            why = error.explanation or error
            raise _failed(f"The skill could not be put into the container: {why}") from error


def _exec_fill(container: Container, tar: IO[bytes]) -> None:
    api = container.engine.client.api
    argv = _agent(container, "fill")
    made = api.exec_create(container.id, argv, user="0:0", stdin=True, stdout=True, stderr=True)["Id"]
    stream: Any = api.exec_start(made, socket=True)
    connection = getattr(stream, "_sock", stream)
    try:
        while chunk := tar.read(PIECE_BYTES):
            connection.sendall(chunk)
        said = bytearray()
        while data := connection.recv(4096):
            said += data
            del said[:-4000]
    finally:
        close_stream(stream)
    code = api.exec_inspect(made)["ExitCode"]
    if code != 0:
        raise _failed(f"The skill could not be put into the container: {_last_line(said, code)}")


def source() -> str:
    return (files("prowess.workspace.container") / "sync_agent.py").read_text(encoding="utf-8")


def scan(folders: Mapping[str, str]) -> dict[str, SyncEntry]:
    """Returns the contents of the folders by their name in the workspace, without runs/, which other runs do not
    need."""
    found: dict[str, SyncEntry] = {}
    for top, folder in folders.items():
        if top == "runs":
            continue
        for rel, status, folder_fd, name in walk(folder, max_entries=MOST_ENTRIES):
            path = f"{top}/{rel}"
            mode = status.st_mode
            mark = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, mode & 0o100)
            if stat.S_ISDIR(mode):
                found[path] = SyncEntry("folder", ())
            elif stat.S_ISREG(mode):
                found[path] = SyncEntry("file", mark)
            elif stat.S_ISLNK(mode):
                target = os.readlink(name, dir_fd=folder_fd)
                found[path] = SyncEntry("link", mark, target)
    return found


def _pack_changed(file: IO[bytes], folders: Mapping[str, str], run: str, changed: Collection[str]) -> None:
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for top, folder in folders.items():
            if top != "runs":
                _pack_tree(tar, folder, top, changed.__contains__)
        if run in changed:
            _pack_entry(tar, run, tarfile.DIRTYPE)
    file.seek(0)


def _pack_fixed(file: IO[bytes], tree: Tree, name: str, readable: Iterable[str]) -> None:
    skill = f"workspace/skills/{name}"
    leads = {f"{skill}/.venv": "../../.venv"}
    for folder, leads_to in LEADS.items():
        leads[f"{skill}/{folder}"] = f"../../{leads_to}"
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _pack_tree(tar, tree.path, skill, lambda path: path not in leads)
        for path, target in leads.items():
            _pack_entry(tar, path, tarfile.SYMTYPE, target)
        for folder in readable:
            _pack_tree(tar, folder, folder.strip("/"), lambda _: True)
    file.seek(0)


def _pack_entry(tar: tarfile.TarFile, path: str, type_: bytes, target: str = "") -> None:
    info = tarfile.TarInfo(path)
    info.type = type_
    info.linkname = target
    tar.addfile(info)


def _pack_tree(tar: tarfile.TarFile, root: str, prefix: str, is_wanted: Callable[[str], bool]) -> None:
    for rel, status, folder_fd, name in walk(root, max_entries=MOST_ENTRIES):
        path = f"{prefix}/{rel}"
        if not is_wanted(path):
            continue
        if stat.S_ISDIR(status.st_mode):
            _pack_entry(tar, path, tarfile.DIRTYPE)
        elif stat.S_ISLNK(status.st_mode):
            _pack_entry(tar, path, tarfile.SYMTYPE, os.readlink(name, dir_fd=folder_fd))
        elif stat.S_ISREG(status.st_mode):
            with suppress(FileNotFoundError), open(open_child(folder_fd, name, rel), "rb") as content:
                _pack_file(tar, path, content)


def _pack_file(tar: tarfile.TarFile, path: str, content: IO[bytes]) -> None:
    status = os.fstat(content.fileno())
    info = tarfile.TarInfo(path)
    info.size = status.st_size
    info.mode = status.st_mode & 0o755
    info.mtime = int(status.st_mtime)
    tar.addfile(info, content)


def _make_folder(root: str, name: str, uid: int | None) -> None:
    try:
        with open_folder(root, name, make=True, uid=uid):
            pass
    except PathEscape:  # something else has that name
        _remove(root, name)
        with open_folder(root, name, make=True, uid=uid):
            pass


def _write(
    root: str,
    name: str,
    uid: int | None,
    *,
    chunks: Iterable[bytes] = (),
    executable: bool = False,
    target: str | None = None,
) -> None:
    folder, _, last = name.rpartition("/")
    _remove(root, name)
    with open_folder(root, folder, make=True, uid=uid) as folder_fd:
        if target is not None:
            os.symlink(target, last, dir_fd=folder_fd)
            if uid is not None:
                os.chown(last, uid, uid, dir_fd=folder_fd, follow_symlinks=False)
            return
        mode = 0o755 if executable else 0o644
        fd = os.open(last, _NEW, mode, dir_fd=folder_fd)
        with open(fd, "wb") as file:
            if uid is not None:
                os.fchown(file.fileno(), uid, uid)
            for chunk in chunks:
                file.write(chunk)


def _remove(root: str, name: str) -> None:
    folder, _, last = name.rpartition("/")
    try:
        with open_folder(root, folder) as folder_fd:
            status = os.stat(last, dir_fd=folder_fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                remove_tree(f"{root}/{name}")
            else:
                os.unlink(last, dir_fd=folder_fd)
    except FileNotFoundError:
        return


def _names(names: list[str]) -> bytes:
    data = json.dumps(names).encode()
    return len(data).to_bytes(4, "big") + data


def _check_ended(ended: Ended, op: str, said: bytearray) -> None:
    if ended.exit_code != 0:
        why = _last_line(said, ended.exit_code)
        raise _failed(f"Files could not be copied ({op}): {why}")


def _last_line(said: bytearray, code: Any) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    if lines:
        return lines[-1][-300:]
    return f"it ended with {code}"


def _failed(text: str) -> WorkspaceError:
    return WorkspaceError(f"{text.rstrip('.')}.", op="carry", code="container-sync-failed")
