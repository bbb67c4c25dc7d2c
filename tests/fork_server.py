"""`prowess` as a program that starts at once: a process that has imported everything forks for every call.

Pages of the documentation call `prowess` from a shell about 150 times, and imports are most of what each call takes.
Each call is a process of its own here, too, with the caller's words, folder, environment and standard streams.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLIENT = """#!{python} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(line, [len(said).to_bytes(8)], [0, 1, 2])
    line.sendall(said)
    code = line.recv(1)
sys.exit(code[0] if code else 255)
"""


@contextmanager
def open_fork_server(folder: Path) -> Iterator[Path]:
    """The folder that has `prowess` in it, for a PATH."""
    address = folder / "line"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(address))
        door.listen()
        server = subprocess.Popen([sys.executable, __file__, str(door.fileno())], pass_fds=[door.fileno()])
    program = folder / "bin" / "prowess"
    program.parent.mkdir()
    program.write_text(_CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
    program.chmod(0o755)
    try:
        yield program.parent
    finally:
        server.terminate()
        server.wait()


def _serve(door: socket.socket) -> None:
    import importlib
    import signal

    from prowess.cli.main import COMMANDS

    for module, _ in COMMANDS.values():
        importlib.import_module(module)
    for late in (
        "prowess.runtime.api",
        "prowess.agent.session",
        "prowess.runtime.factories",
        "prowess.workspace.executors.sandbox",
    ):
        importlib.import_module(late)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how the one in between has ended
    while True:
        line, _ = door.accept()
        with line:
            if os.fork() == 0:
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(line)
                os._exit(0)


def _answer(line: socket.socket) -> None:
    size, streams, _, _ = socket.recv_fds(line, 8, 3)
    said = b""
    while len(said) < int.from_bytes(size):
        said += line.recv(1 << 16)
    words, folder, environ = json.loads(said)
    child = os.fork()
    if child == 0:
        line.close()
        _become(words, folder, environ, streams)
    _, status = os.waitpid(child, 0)
    line.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))


def _become(words: list[str], folder: str, environ: dict[str, str], streams: list[int]) -> None:
    import atexit

    from prowess.cli.main import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", buffering=1) for number, mode in enumerate("rww")
    )
    sys.argv = ["prowess", *words]
    code = 1
    try:
        code = main()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
