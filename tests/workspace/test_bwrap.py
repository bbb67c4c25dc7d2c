"""What bubblewrap is told is what the box says, and what the box says is what holds inside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from prowess.workspace.isolation import bwrap
from prowess.workspace.isolation.bwrap import (
    Bind,
    Box,
    boxed,
    bwrap_options,
    find_trusted,
    system_of_host,
    why_no_bubblewrap,
    why_not_trusted,
)
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command, Ended, ProcessLimits

UNPRIVILEGED = 64321


def test_the_options_follow_from_the_value() -> None:
    box = Box(
        binds=(Bind(source="/h/skill", target="/skill"), Bind(source="/h/ws", target="/skill/out", write=True)),
        chdir="/skill",
        env={"PATH": "/usr/bin", "A": "b c"},
        system=(Bind(source="/usr", target="/usr", write=True), Bind(source="/lib64", target="/lib64")),
        links=(("usr/bin", "/bin"),),
        tmp_bytes=1000,
        shm_bytes=2000,
    )
    told = " ".join(bwrap_options(box))
    of_etc = "ld.so.cache ld.so.conf ld.so.conf.d ssl alternatives os-release lsb-release debian_version".split()
    of_etc += [f"{name}-release" for name in ("alpine", "arch", "centos", "fedora", "redhat", "SuSE", "system")]
    of_etc += "mime.types httpd/mime.types httpd/conf/mime.types apache/mime.types apache2/mime.types".split()
    shown = " ".join(f"--ro-bind-try /etc/{name} /etc/{name}" for name in of_etc)
    assert told == (
        "--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --hostname box --unshare-cgroup-try "
        "--disable-userns --die-with-parent --new-session --ro-bind /usr /usr --ro-bind /lib64 /lib64 "
        f"--symlink usr/bin /bin {shown} --ro-bind-data 12 /etc/hosts "
        "--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev --ro-bind-data 13 /proc/cmdline "
        "--size 2000 --tmpfs /dev/shm --size 1000 --tmpfs /tmp --ro-bind /h/skill /skill --bind /h/ws /skill/out "
        "--remount-ro /dev --remount-ro / --chdir /skill --cap-drop ALL --clearenv --setenv PATH /usr/bin "
        "--setenv A b c --seccomp 9"
    )


def test_nothing_about_the_box_is_on_the_command_line_or_in_the_environment_of_bubblewrap() -> None:
    box = Box(env={"LD_PRELOAD": "/x.so", "TOKEN": "s3cret"}, processes=20, prlimit="/usr/bin/prlimit")
    command = boxed("/usr/bin/bwrap", box, ["-odd", "a\nb"])
    assert list(command.argv) == [
        "/usr/bin/bwrap",
        "--args",
        "8",
        "--",
        "/usr/bin/prlimit",
        "--nproc=20",
        "--",
        "-odd",
        "a\nb",
    ]
    assert command.env == {} and command.wrapped
    told = command.fds[8]
    assert isinstance(told, bytes) and told.split(b"\0")[:-1] == [os.fsencode(o) for o in bwrap_options(box)]


def test_a_nul_cannot_smuggle_in_an_option() -> None:
    with pytest.raises(ValueError, match="NUL"):
        bwrap_options(Box(env={"A": "x\0--share-net"}))


def test_a_terminal_is_kept_when_it_is_the_boxs_own() -> None:
    assert "--new-session" not in bwrap_options(Box(tty=True))


def test_only_a_program_that_root_alone_can_change_is_trusted(tmp_path: Path) -> None:
    planted = tmp_path / "bwrap"
    planted.write_text("#!/bin/sh\n", encoding="utf-8")
    planted.chmod(0o755)
    assert why_not_trusted(str(planted)) is not None  # somebody else's folder is above it
    assert find_trusted("bwrap", [str(tmp_path)]) is None
    assert find_trusted("bwrap", ["."]) is None
    assert find_trusted("no-such-program") is None
    found = find_trusted("env")
    assert found is not None and os.path.isabs(found) and why_not_trusted(found) is None
    assert "not a program" in (why_not_trusted("/usr/bin") or "")
    assert "No such file" in (why_not_trusted("/usr/bin/no-such-program") or "")


def test_why_there_is_no_bubblewrap_is_said_in_plain_words(tmp_path: Path) -> None:
    assert why_no_bubblewrap([str(tmp_path)]) == "bubblewrap is not installed."
    planted = tmp_path / "bwrap"
    planted.write_text("", encoding="utf-8")
    assert why_no_bubblewrap([str(tmp_path)]) == f"bubblewrap is not used: {planted} is not a program."


def test_the_path_of_the_workspace_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "bwrap"
    planted.write_text("#!/bin/sh\n", encoding="utf-8")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert find_trusted("bwrap") in (None, *(f"{folder}/bwrap" for folder in bwrap.TRUSTED_FOLDERS))


class House:
    """A box around a workspace of the unprivileged user; everything in it runs as that user."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.stdout, self.stderr = bytearray(), bytearray()
        folder.chmod(0o711)
        for name in ("ws", "skill"):
            (folder / name).mkdir()
            if os.geteuid() == 0:
                os.chown(folder / name, UNPRIVILEGED, UNPRIVILEGED)
        (folder / "skill" / "SKILL.md").write_text("x", encoding="utf-8")
        system, links = system_of_host()
        self.box = Box(
            system=system,
            links=links,
            binds=(
                Bind(source=str(folder / "skill"), target="/skill"),
                Bind(source=str(folder / "ws"), target="/workspace", write=True),
            ),
            chdir="/workspace",
            env={"PATH": "/usr/bin:/bin", "HOME": "/workspace"},
            processes=64,
            prlimit=find_trusted("prlimit"),
        )

    def command(self, *argv: str, box: Box | None = None, **more: Any) -> Command:
        if os.geteuid() == 0:
            more["uid"] = UNPRIVILEGED
        return boxed(self.program, box or self.box, argv, **more)

    def run(self, *argv: str, **more: Any) -> Ended:
        async def story() -> Ended:
            async with asyncio.timeout(GUARD_S), Processes() as processes:
                return await processes.run(self.command(*argv, **more), self.stdout.extend, self.stderr.extend)

        return asyncio.run(story())


@pytest.fixture
def house(folder: Path, not_run: Callable[[str, str], None]) -> House | None:
    program = find_trusted("bwrap")
    if program is None:
        if "bwrap" in os.environ.get("REQUIRE_TIERS", "").split(","):
            pytest.fail("REQUIRE_TIERS names bwrap, and it is not installed")
        not_run("bwrap", "bubblewrap is not installed")
        return None
    return House(program, folder)


def test_inside_there_is_what_was_bound_and_nothing_else(house: House | None) -> None:
    if house is None:
        return
    script = """
    ls / | tr '\\n' ' '; echo; env | sort | tr '\\n' ' '; echo; pwd
    ls /proc/self/fd | tr '\\n' ' '; echo
    grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status | tr -s '\\t\\n' '  '; echo
    tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '
    for path in / /dev /skill /usr /proc/sys; do touch $path/x 2>/dev/null && echo "could write to $path"; done
    touch /workspace/x && ls /proc | grep -c '^[0-9]'
    """
    ended = house.run("bash", "-c", script)
    assert ended.exit_code == 0, house.stderr.decode()
    lines = house.stdout.decode().splitlines()
    assert set(lines[0].split()) <= {*"bin dev etc lib lib32 lib64 libx32 proc sbin skill tmp usr workspace".split()}
    assert set(lines[1].split()) == {
        *("HOME=/workspace", "PATH=/usr/bin:/bin", "PWD=/workspace", "SHLVL=1", "_=/usr/bin/env")
    }
    assert lines[2] == "/workspace"
    assert lines[3].split() == ["0", "1", "2", "3"]
    zero = "0" * 16
    assert lines[4].split() == ["CapBnd:", zero, "NoNewPrivs:", "1", "Seccomp:", "2"] or lines[4].split() == [
        *("CapEff:", zero, "CapBnd:", zero, "NoNewPrivs:", "1", "Seccomp:", "2")
    ]
    assert lines[5] == "lo"
    assert int(lines[6]) < 10
    owner = (house.folder / "ws" / "x").stat().st_uid
    assert owner == (UNPRIVILEGED if os.geteuid() == 0 else os.geteuid()) != 0


def test_a_polite_command_is_given_its_chance_and_a_daemon_is_not(house: House | None) -> None:
    if house is None:
        return
    script = "(trap '' TERM HUP; setsid sleep 1000 &); trap 'echo bye; exit 4' TERM; echo up; sleep 1000 & wait"
    ended = house.run("bash", "-c", script, timeout_s=1.5)
    assert (ended.why, ended.exit_code) == ("timeout", 4)
    assert house.stdout.decode() == "up\nbye\n"
    assert ended.left == 0


def test_processes_are_counted_inside(house: House | None, not_run: Callable[[str, str], None]) -> None:
    if house is None:
        return
    if house.box.prlimit is None:
        not_run("the limit on processes in a box", "there is no prlimit here")
        return
    few = house.box._replace(processes=8)
    code = (
        "import os\nn = 0\ntry:\n    while n < 50 and os.fork(): n += 1\nexcept OSError: print('no more')\nos._exit(0)"
    )
    house.run("/usr/bin/python3", "-I", "-S", "-u", "-c", code, box=few)
    assert "no more" in house.stdout.decode()
    house.stdout.clear()
    plenty = house.box._replace(processes=None)
    house.run("/usr/bin/python3", "-I", "-S", "-u", "-c", code, box=plenty)
    assert "no more" not in house.stdout.decode()


def test_limits_and_tmpfs_sizes_hold(house: House | None) -> None:
    if house is None:
        return
    small = house.box._replace(tmp_bytes=1 << 20, shm_bytes=1 << 20)
    script = (
        "for f in /tmp/f /dev/shm/f; do head -c 3000000 /dev/zero > $f; done; stat -c %s /tmp/f /dev/shm/f; ulimit -n"
    )
    house.run("bash", "-c", script, box=small, limits=ProcessLimits(open_files=99))
    assert house.stdout.decode().split() == ["1048576", "1048576", "99"]


def test_a_terminal_inside(house: House | None) -> None:
    if house is None:
        return

    async def story() -> None:
        async with asyncio.timeout(GUARD_S), Processes() as processes:
            box = house.box._replace(tty=True)
            session = await processes.open_session(house.command("bash", "--norc", box=box))
            await session.write(b"test -t 0 && echo yes-$((20 + 3)); exit 6\n")
            assert (await session.wait()).exit_code == 6
            assert b"yes-23" in await session.read()
            await session.aclose()

    asyncio.run(story())
