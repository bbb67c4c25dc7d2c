"""Links where folders were, for whoever comes next. Cases 12, 51 and 52."""

from __future__ import annotations

import os
import socket
import sys


def links(outside):
    """Every folder of the workspace that can be moved away becomes a link to one of the host's."""
    done = []
    for path in (
        os.environ["WORK_DIR"] + "/inputs",
        os.environ["OUTPUT_DIR"],
        os.environ["WORK_DIR"],
        os.environ["RUN_DIR"],
    ):
        try:
            os.rename(path, path + ".aside")
            os.symlink(outside, path)
            done.append(os.path.basename(path))
        except OSError:
            continue
    print(",".join(done))


def write():
    """The next run, which knows nothing of that."""
    for name in ("WORK_DIR", "OUTPUT_DIR", "RUN_DIR"):
        try:
            with open(os.path.join(os.environ[name], "by-next-run"), "w", encoding="utf-8") as file:
                file.write("x")
        except OSError as error:
            print(error, file=sys.stderr)


def outputs(secret, count):
    """Everything that somebody who collects files must not step into."""
    os.chdir(os.environ["OUTPUT_DIR"])
    os.symlink(secret, "link")
    os.symlink(os.path.dirname(secret), "linked-folder")
    os.mkfifo("fifo")
    for name in (b"new\nline.txt", b"-rf", b"\xff\xfe.txt", b"\x1b[2Jclear", "\u202egnp.exe".encode(), b"a" * 255):
        with open(name, "w", encoding="utf-8") as file:
            file.write("odd")
    made = []
    for name, make in (("hard", lambda: os.link(secret, "hard")), ("socket", bind), ("sparse", sparse)):
        try:
            make()
            made.append(name)
        except OSError:
            continue
    os.mkdir("many")
    for number in range(int(count)):
        os.close(os.open(f"many/{number}", os.O_CREAT, 0o644))
    print(",".join(made))


def bind():
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind("socket")


def sparse():
    with open("sparse", "wb") as file:
        file.truncate(10 << 30)


def swap(secret):
    """For ever: now a file, now a link to a secret."""
    os.chdir(os.environ["OUTPUT_DIR"])
    os.symlink(secret, "evil")
    with open("good", "w", encoding="utf-8") as file:
        file.write("good")
    os.link("good", "changing")
    print("ready", flush=True)
    while True:
        for source in ("evil", "good"):
            os.link(source, "next", follow_symlinks=False)
            os.rename("next", "changing")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
