"""Opens the listener inside a sandbox, hands it to the proxy, and then becomes the program.

`proxy` sends this file as text. The listener belongs to the network of the sandbox, and the process at the other end of
the control socket serves it; the program gets neither. Imports few and light modules, because every run waits for them.
"""

from __future__ import annotations

import _socket
import os
import sys

signal = __import__("_signal")  # importing `signal` takes longer than all the other modules together
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

BACKLOG = 256
NOT_FOUND, NOT_EXECUTED = 127, 126  # the exit codes of a shell


def main(control: int, port: int, argv: list[str]) -> NoReturn:
    environment = given_environment()
    try:
        hand_over(control, port)
    except OSError as error:  # do not start a program without the network it was promised
        give_up(f"the proxy of this run did not start: {error}", NOT_EXECUTED)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606
    except (FileNotFoundError, NotADirectoryError) as error:
        give_up(f"{argv[0]}: {error.strerror}", NOT_FOUND)
    except OSError as error:
        give_up(f"{argv[0]}: {error.strerror}", NOT_EXECUTED)


def hand_over(control: int, port: int) -> None:
    link = _socket.socket(fileno=control)
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except OSError as error:
        link.send(f"127.0.0.1:{port}: {error.strerror}".encode())
        raise
    descriptor = listener.fileno().to_bytes(4, sys.byteorder)
    link.sendmsg([b"listening"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor)])
    listener.close()
    answer = link.recv(1)
    link.close()
    if not answer:
        raise ConnectionError("nobody serves it")


def given_environment() -> dict[bytes, bytes]:
    """Returns the environment this process was started with; Python may have added LC_CTYPE to os.environ."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0")]
    except OSError:
        return dict(os.environb)
    return {name: value for name, equals, value in pairs if equals}


def give_up(why: str, code: int) -> NoReturn:
    os.write(2, f"prowess: {why}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
