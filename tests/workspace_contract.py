"""What every executor promises: `CASES` is run against each of them, word for word the same.

    @pytest.mark.parametrize("case", CASES, ids=case_name)
    def test_contract(case, ground): ground.go(case)

A case is a coroutine function that is given a Desk: an opened workspace of a new session with the skill `demo` in it.
What a tier promises beyond the port, or does differently for a good reason, is said in its Claims and nowhere else.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import itertools
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import prowess
from guard import GUARD_S
from prowess.core.ports import Executor, Interactive, Program, Workspace
from prowess.core.values import Isolation, SessionKey
from prowess.errors import PathEscape, WorkspaceError, WorkspaceUnavailable
from prowess.workspace.layout import environment
from prowess.workspace.limits import MIB, NAMES, RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Ended, NotStarted
from prowess.workspace.session_folder import OpenPlace, Place
from prowess.workspace.skill_trees import Tree, publish, remove_tree

FRONT = "---\nname: demo\ndescription: Shows what a workspace promises. Use when it is tested.\n---\n\n# Demo\n"
SCRIPT = '#!/bin/sh\necho "here is $0 in $(pwd)"\n'
_numbers = itertools.count(1)

# Leaves a process that has no parent, session or group of the run, hears no TERM, and holds a lock while it is there.
DAEMON = """
import fcntl, os, signal, sys
held = os.open(os.environ["WORK_DIR"] + "/lock", os.O_RDWR | os.O_CREAT, 0o600)
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
        fcntl.flock(held, fcntl.LOCK_EX)
        os.write(tell, b"x")
        while True: signal.pause()
    os._exit(0)
os.wait()
os.read(ready, 1)
os.close(held)
print("daemon up", flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a tier promises beyond the port, and where it differs from the others."""

    skill_is_read_only: bool = True
    other_skills_hidden: bool = True
    host_hidden: bool = True  # files of the host, but for the system, cannot be read
    files_protected: bool = True  # work/, out/, runs/, skills/ cannot be replaced by a script
    exact_signals: bool = True  # a program that died of a signal says which; otherwise its exit code is 128 + that
    adds_to_environment: frozenset[str] = frozenset()  # variables that its mechanism always sets
    arguments_are_bytes: bool = True  # arguments that are no UTF-8 arrive
    terminal: bool = True
    finds_daemons: bool = True  # a process that left its group and session ends with its run as well
    programs_of_host: bool = True  # those that this machine has are there, too


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One executor as a test makes it: from processes, limits, and a folder for workspaces and proofs."""

    name: str
    make: Callable[[Processes, RunLimits, str], Executor]
    claims: Claims
    processes: Callable[[], Processes] = Processes


@dataclass
class Result:
    ended: Ended
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@dataclass
class Desk:
    """A workspace with the skill `demo`, and short ways to use it."""

    tier: Tier
    ground: Ground
    executor: Executor
    place: Place
    workspace: Workspace
    trees: str
    extra_env: dict[str, str] = field(default_factory=dict)

    @property
    def claims(self) -> Claims:
        return self.tier.claims

    @property
    def daemon(self) -> str:
        return DAEMON if self.claims.finds_daemons else DAEMON.replace("os.setsid()", "pass")

    def host(self, rel: str) -> Path:
        return Path(self.workspace.layout.host(rel))

    def put(self, rel: str, content: str | bytes, mode: int = 0o600) -> Path:
        """A file of the script's own, made by the host."""
        path = self.host(rel)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        self.place.own(str(path))
        return path

    def publish(self, files: Mapping[str, str] | None = None, name: str = "demo") -> Tree:
        text = FRONT.replace("name: demo", f"name: {name}")
        return publish(prowess.Skill.from_text(text, files=dict(files or {})), self.trees)

    def program(self, *argv: str, **more: Any) -> Program:
        skill, run = more.pop("skill", "demo"), more.pop("run", f"r{next(_numbers)}")
        told = environment(self.workspace.layout, skill=skill, run=run)
        env = {**self.workspace.environment, **told, **self.extra_env, **more.pop("env", {})}
        return Program(**{"argv": argv, "skill": skill, "run": run, "cwd": "work", "env": env, **more})

    async def run(self, *argv: str, **more: Any) -> Result:
        out, err = bytearray(), bytearray()
        ended = await self.workspace.run(self.program(*argv, **more), out.extend, err.extend)
        return Result(ended, bytes(out), bytes(err))

    async def python(self, code: str, *args: str, **more: Any) -> Result:
        return await self.run(self.workspace.python, "-I", "-S", "-c", code, *args, **more)

    async def done(self, *argv: str, **more: Any) -> list[str]:
        """Its lines, when it went well."""
        result = await self.run(*argv, **more)
        assert result.ended.exit_code == 0, (result.ended, result.err.decode(errors="replace"))
        return result.lines

    async def sh(self, script: str, **more: Any) -> list[str]:
        return await self.done("sh", "-c", script, **more)

    def lock_is_free(self) -> bool:
        """Whether the daemon is gone."""
        fd = os.open(self.host("work/lock"), os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True


class Ground:
    """One tier for all tests of a module: the supervisor and the executor are made once, workspaces for each test."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.not_run: Callable[[str, str], None] = lambda what, why: None
        self.processes = tier.processes()
        self._executors: dict[RunLimits, Executor] = {}
        # Not a folder of pytest's: whoever scripts run as has to get there, and pytest closes its own to others.
        self._dir = tempfile.mkdtemp(prefix="prowess-test-")
        os.chmod(self._dir, 0o711)

    def go(self, case: Callable[[Desk], Coroutine[Any, Any, None]], limits: RunLimits | None = None) -> None:
        """One case in a workspace of its own. What this machine cannot do is said at the end of the test run, and
        fails where CI asked for it."""

        async def story() -> None:
            async with asyncio.timeout(GUARD_S), self.desk(limits) as desk:
                await case(desk)

        try:
            asyncio.run(story())
        except WorkspaceUnavailable as error:
            if self.tier.name in os.environ.get("REQUIRE_TIERS", "").split(","):
                pytest.fail(f"REQUIRE_TIERS names {self.tier.name}: {error}")
            self.not_run(f"{self.tier.name}: {case.__name__}", str(error))

    @asynccontextmanager
    async def desk(self, limits: RunLimits | None = None) -> AsyncIterator[Desk]:
        executor = self.executor(limits or RunLimits())
        isolation = await executor.isolation()
        uid = isolation.uid if os.geteuid() == 0 else None
        with OpenPlace(self._dir, SessionKey(session=f"s{next(_numbers)}"), uid=uid) as place:
            workspace = await executor.open(place)
            desk = Desk(self.tier, self, executor, place, workspace, os.path.join(self._dir, "trees"))
            try:
                await workspace.stage(desk.publish({"scripts/hello.sh": SCRIPT, "data.txt": "published\n"}), "demo")
                yield desk
            finally:
                await workspace.aclose()

    def executor(self, limits: RunLimits) -> Executor:
        if limits not in self._executors:
            self._executors[limits] = self.tier.make(self.processes, limits, self._dir)
        return self._executors[limits]

    def close(self) -> None:
        async def end() -> None:
            for executor in self._executors.values():
                await executor.aclose()
            await self.processes.aclose()

        asyncio.run(end())
        remove_tree(self._dir)


# --- what a program gets ----------------------------------------------------------------------------------------------


async def streams_and_exit_code(desk: Desk) -> None:
    result = await desk.run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (result.ended.why, result.ended.exit_code, result.ended.signal) == ("exit", 7, None)
    assert (result.out, result.err) == (b"out\n", b"err\n")
    assert result.ended.duration_s > 0 and not result.ended.timed_out and not result.ended.killed
    assert result.ended.left == 0 and not result.ended.oom


async def nobody_has_to_listen(desk: Desk) -> None:
    ended = await desk.workspace.run(desk.program("sh", "-c", "echo out; echo err >&2; exit 3"))
    assert ended.exit_code == 3


async def a_program_that_exits_127_has_run(desk: Desk) -> None:
    """Its own words stay its own, whatever they look like."""
    words = "bwrap: execvp x: No such file or directory\n"
    for code in (126, 127, 1):
        result = await desk.run("sh", "-c", f"printf %s '{words}' >&2; exit {code}")
        assert (result.ended.exit_code, result.err.decode()) == (code, words)


async def stdin_is_what_was_given(desk: Desk) -> None:
    data = bytes(range(256)) * 5000
    result = await desk.python(
        "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())", stdin=data
    )
    assert result.text.strip() == hashlib.sha256(data).hexdigest()
    assert (await desk.run("cat")).out == b""
    assert (await desk.run("cat", stdin=b"")).out == b""


async def arguments_arrive_as_they_are(desk: Desk) -> None:
    given = ["--help", "-x", "a b", "a\nb", "", "'\"$(x)`;&|", "--", "ü", "\\"]
    if desk.claims.arguments_are_bytes:
        given.append(os.fsdecode(b"\xff\xfe"))
    code = "import os, sys; print([os.fsencode(argument).hex() for argument in sys.argv[1:]])"
    result = await desk.python(code, *given)
    assert result.text.strip() == str([os.fsencode(argument).hex() for argument in given])


async def the_environment_is_exactly_the_given_one(desk: Desk) -> None:
    odd = {"EMPTY": "", "LINES": "a\nb=c", "LD_PRELOAD": "", "_X": "ü"}
    if desk.claims.arguments_are_bytes:
        odd["ODD"] = os.fsdecode(b"\xff\xfe")
    env = {"PATH": desk.workspace.environment["PATH"], **odd}
    program = replace(desk.program("env", "-0"), env=env)
    out = bytearray()
    assert (await desk.workspace.run(program, out.extend)).exit_code == 0
    got = dict(pair.split(b"=", 1) for pair in bytes(out).split(b"\0") if pair)
    for name in desk.claims.adds_to_environment - env.keys():
        got.pop(name.encode(), None)
    own = {name: got.pop(name.encode()) for name in ("HOME", "TMPDIR")}
    assert got == {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    assert all(value.startswith(b"/") for value in own.values())


async def no_descriptor_is_inherited(desk: Desk) -> None:
    code = """
import os
found = []
for fd in range(300):
    try: os.fstat(fd)
    except OSError: continue
    found.append(fd)
print(found)
"""
    for fd in (secrets := [os.open(desk.put("work/secret", "x"), os.O_RDONLY) for _ in range(3)]):
        os.set_inheritable(fd, True)
    try:
        assert (await desk.python(code)).lines == ["[0, 1, 2]"]
    finally:
        for fd in secrets:
            os.close(fd)


async def home_and_tmpdir_are_the_runs_own(desk: Desk) -> None:
    script = 'ls -A "$HOME" "$TMPDIR" | grep -c mine; touch "$HOME/mine" "$TMPDIR/mine2" && echo "$HOME $TMPDIR"'
    first, second = await desk.sh(script), await desk.sh(script)
    assert first[0] == second[0] == "0", "what one run leaves there, the next does not find"
    given = await desk.sh('echo "$HOME" "$TMPDIR"', env={"HOME": "/workspace/else"})
    assert given[0].split()[0] == "/workspace/else", "a declared one stays"


async def every_variable_leads_somewhere(desk: Desk) -> None:
    code = """
import os
for name in "WORKSPACE_DIR SKILLS_DIR WORK_DIR OUTPUT_DIR RUN_DIR SKILL_DIR".split():
    print(name, os.path.isdir(os.environ[name]))
print(os.environ["SKILL_NAME"], os.path.basename(os.environ["SKILL_DIR"]))
for name in "WORK_DIR OUTPUT_DIR RUN_DIR".split():
    open(os.environ[name] + "/made", "w").write(name)
"""
    result = await desk.python(code, run="the-run")
    assert result.ended.exit_code == 0, result.err.decode()
    assert [line.split()[1] for line in result.lines] == ["True"] * 6 + ["demo"]
    for rel, name in (("work", "WORK_DIR"), ("out", "OUTPUT_DIR"), ("runs/the-run", "RUN_DIR")):
        assert (desk.host(rel) / "made").read_text(encoding="utf-8") == name


async def the_interpreter_is_there(desk: Desk) -> None:
    assert await desk.done(desk.workspace.python, "-c", "import json, ssl, sqlite3, ctypes; print('ok')") == ["ok"]


async def ordinary_programs_work(desk: Desk) -> None:
    code = """
import asyncio, os, sqlite3, subprocess, tempfile, threading
assert subprocess.run(["sh", "-c", "echo sub"], capture_output=True, text=True).stdout == "sub\\n"
threads = [threading.Thread(target=lambda: None) for _ in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
with tempfile.NamedTemporaryFile() as file: file.write(b"x")
async def main():
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    return (await process.communicate(b"through"))[0]
assert asyncio.run(main()) == b"through"
database = sqlite3.connect(os.environ["WORK_DIR"] + "/x.db")
database.execute("create table t (a)"); database.commit()
print("all of it")
"""
    assert await desk.done(desk.workspace.python, "-I", "-c", code) == ["all of it"]


# --- where it is ------------------------------------------------------------------------------------------------------


async def it_starts_where_it_was_told_to(desk: Desk) -> None:
    layout = desk.workspace.layout
    await desk.sh("mkdir -p deep/er", cwd="work")
    for cwd in ("", "work", "out", "skills/demo", "skills/demo/scripts", "work/deep/er", "work/inputs"):
        assert await desk.sh("pwd", cwd=cwd) == [layout.seen(cwd)]
    for through, where in (
        ("skills/demo/out", "out"),
        ("skills/demo/inputs", "work/inputs"),
        ("skills/demo/.venv", ""),
    ):
        assert (await desk.sh("pwd && touch here-$$", cwd=through))[0].startswith("/")
        assert not where or [path.name for path in desk.host(where).glob("here-*")]


async def a_script_of_the_skill_runs_by_its_path(desk: Desk) -> None:
    skill = desk.workspace.layout.seen("skills/demo")
    assert await desk.done("scripts/hello.sh", cwd="skills/demo") == [f"here is scripts/hello.sh in {skill}"]
    assert (await desk.done(f"{skill}/scripts/hello.sh"))[0].startswith(f"here is {skill}")


async def a_folder_that_is_not_there_is_named(desk: Desk) -> None:
    desk.put("work/file", "x")
    for cwd in ("work/nowhere", "work/file", "skills/other", "work/file/x"):
        with pytest.raises(WorkspaceError) as refused:
            await desk.run("true", cwd=cwd)
        assert refused.value.code == "no-cwd" and f"'{cwd}'" in refused.value.message


async def a_folder_that_became_a_link_to_elsewhere_is_refused(desk: Desk) -> None:
    await desk.sh(
        "ln -s /etc etc; ln -s ../../.. up; ln -s /proc/self/root root; mkdir real; ln -s real good; ln -s a a"
    )
    for cwd in ("work/etc", "work/up", "work/root", "work/root/etc", "work/etc/ssl"):
        with pytest.raises(PathEscape) as refused:
            await desk.run("true", cwd=cwd)
        assert f"'{cwd}'" in refused.value.message
    with pytest.raises(WorkspaceError):
        await desk.run("true", cwd="work/a")
    assert await desk.sh("pwd", cwd="work/good") == [desk.workspace.layout.seen("work/real")]


async def a_folder_outside_is_refused(desk: Desk) -> None:
    for cwd in ("..", "work/../../..", "../../../etc", "a\0b"):
        with pytest.raises(PathEscape):
            await desk.run("true", cwd=cwd)
    with pytest.raises(WorkspaceError):
        await desk.run("true", cwd="/etc")


async def a_link_by_the_path_that_a_script_sees_is_good(desk: Desk) -> None:
    await desk.sh('mkdir real; ln -s "$WORK_DIR/real" seen')
    assert await desk.sh("pwd", cwd="work/seen") == [desk.workspace.layout.seen("work/real")]


# --- the skill --------------------------------------------------------------------------------------------------------


async def folders_in_the_skill_lead_to_the_workspace(desk: Desk) -> None:
    desk.put("work/inputs/given.txt", "given\n")
    lines = await desk.sh("cat inputs/given.txt; echo o > out/o; echo w > work/w; cat ../../out/o", cwd="skills/demo")
    assert lines == ["given", "o"]
    assert desk.host("out/o").read_text(encoding="utf-8") == "o\n"
    assert desk.host("work/w").read_text(encoding="utf-8") == "w\n"


HABITS = """
import os, pathlib
for path in "self/status self/stat self/limits cpuinfo meminfo stat loadavg uptime sys/kernel/pid_max".split():
    assert pathlib.Path("/proc", path).read_text(), path
assert f"Pid:\\t{os.getpid()}" in pathlib.Path("/proc/self/status").read_text()
assert "0" in os.listdir("/proc/self/fd") and os.cpu_count()
print("seen")
"""


async def habits_work_alike(desk: Desk) -> None:
    """The sources' own examples among it. What does not, in some tier, is in docs/executors.md and in `doctor`."""
    await desk.sh("echo first > inputs/first", cwd="skills/demo")  # where there was nothing yet
    assert await desk.sh("cat work/inputs/first; rm work/inputs/first", cwd="skills/demo") == ["first"]
    assert await desk.sh("ls inputs", cwd="skills/demo") == []
    desk.put("work/inputs/given.txt", "given\n")
    desk.host("work/inputs/folder").mkdir()
    desk.place.own(str(desk.host("work/inputs/folder")))
    desk.put("work/inputs/folder/below", "below\n")
    script = "find inputs -type f | sort; test ! -L inputs; cp -r inputs out/copied; du -a inputs | wc -l"
    assert await desk.sh(script, cwd="skills/demo") == ["inputs/folder/below", "inputs/given.txt", "4"]
    assert (desk.host("out/copied/folder/below")).read_text(encoding="utf-8") == "below\n"
    await desk.sh("echo more >> inputs/given.txt; echo n > inputs/new; rm -r inputs/folder", cwd="skills/demo")
    assert await desk.sh("find work/inputs -type f | sort; cat work/inputs/given.txt", cwd="skills/demo") == [
        *("work/inputs/given.txt", "work/inputs/new", "given", "more")
    ]
    await desk.sh("rm inputs/new; mkdir inputs/made; echo x > inputs/made/x", cwd="work")
    assert await desk.sh("find inputs | sort; cat inputs/made/x", cwd="skills/demo") == [
        *("inputs", "inputs/given.txt", "inputs/made", "inputs/made/x", "x")
    ]
    python = desk.workspace.python
    has_pip = (await desk.run(python, "-c", "import ensurepip")).ended.exit_code == 0
    await desk.done(python, "-m", "venv", *([] if has_pip else ["--without-pip"]), ".venv", cwd="skills/demo")
    if has_pip:
        [version] = await desk.done(".venv/bin/python", "-m", "pip", "--version", cwd="skills/demo")
        assert f"from {desk.workspace.layout.seen('skills/demo/.venv')}/" in version
    prefix = await desk.done(".venv/bin/python", "-c", "import sys; print(sys.prefix)", cwd="skills/demo")
    assert prefix == [desk.workspace.layout.seen("skills/demo/.venv")]
    if system := shutil.which("python3", path="/usr/bin"):
        pip = await asyncio.create_subprocess_exec(system, "-c", "import ensurepip", stderr=asyncio.subprocess.DEVNULL)
        assert (await desk.run(system, "-c", "import ensurepip")).ended.exit_code == await pip.wait()
    assert await desk.done(python, "-I", "-c", HABITS) == ["seen"]
    if desk.claims.programs_of_host and shutil.which("git"):
        git = "git init -q r && cd r && touch f && git add f && git -c user.name=n -c user.email=e commit -qm m"
        assert (await desk.sh(f"{git} && git status -s && git log --format=%s"))[-1] == "m"


def published(tree: Tree) -> dict[str, str]:
    """Every file of the tree that all sessions share."""
    files = (path for path in Path(tree.path).rglob("*") if not path.is_dir())
    return {str(path.relative_to(tree.path)): path.read_text(encoding="utf-8") for path in files}


async def the_skill_cannot_be_changed(desk: Desk) -> None:
    if not desk.claims.skill_is_read_only:
        desk.ground.not_run(f"{desk.tier.name}: the skill is read-only", "not promised here")
        return
    tree = desk.publish({"scripts/hello.sh": SCRIPT, "data.txt": "published\n"})
    attempts = """
echo x > data.txt; echo x > new; rm -f data.txt; mv data.txt work/; mkdir folder; chmod 777 data.txt; ln -s / link
rmdir out; mv out elsewhere; rm -rf inputs; mv .venv gone; mv scripts x; echo x > scripts/new; mv ../demo ../other
cp /bin/sh scripts/hello.sh; touch -d 2001-01-01 data.txt
true
"""
    await desk.sh(attempts, cwd="skills/demo")
    assert await desk.sh("cat data.txt; ls -A | sort | tr '\\n' ' '", cwd="skills/demo") == [
        *("published", ".venv SKILL.md data.txt inputs out scripts work ")
    ]
    assert published(tree) == {"SKILL.md": FRONT, "data.txt": "published\n", "scripts/hello.sh": SCRIPT}


async def a_skill_that_was_changed_is_whole_again_when_it_is_staged(desk: Desk) -> None:
    """Where a script can change its copy, too."""
    tree = desk.publish({"scripts/hello.sh": SCRIPT, "data.txt": "published\n"})
    await desk.sh(
        "chmod -R u+w . ; echo x > data.txt; rm -rf scripts; ln -sf /etc out; mkdir more; true", cwd="skills/demo"
    )
    await desk.workspace.stage(tree, "demo")
    assert await desk.sh("cat data.txt; ls -A | sort | tr '\\n' ' '", cwd="skills/demo") == [
        *("published", ".venv SKILL.md data.txt inputs out scripts work ")
    ]
    assert published(tree) == {"SKILL.md": FRONT, "data.txt": "published\n", "scripts/hello.sh": SCRIPT}


async def venv_is_writable_and_belongs_to_the_content(desk: Desk) -> None:
    first = desk.publish({"a": "1"})
    await desk.workspace.stage(first, "demo")
    await desk.sh(
        "mkdir -p .venv/bin; printf '#!/bin/sh\\necho installed\\n' > .venv/bin/tool; chmod 755 .venv/bin/tool",
        cwd="skills/demo",
    )
    assert await desk.done(".venv/bin/tool", cwd="skills/demo") == ["installed"]
    await desk.workspace.stage(desk.publish({"a": "2"}), "demo")
    assert await desk.sh("ls -A .venv | wc -l; cat a", cwd="skills/demo") == ["0", "2"]
    await desk.workspace.stage(first, "demo")
    assert await desk.sh(".venv/bin/tool; cat a", cwd="skills/demo") == ["installed", "1"]


async def what_is_staged_anew_is_what_is_seen(desk: Desk) -> None:
    await desk.workspace.stage(desk.publish({"data.txt": "new\n", "only-new": ""}), "demo")
    assert await desk.sh("cat data.txt; ls -A | sort | tr '\\n' ' '", cwd="skills/demo") == [
        *("new", ".venv SKILL.md data.txt inputs only-new out work ")
    ]


async def many_may_stage_at_once(desk: Desk) -> None:
    tree = desk.publish({f"assets/{number}": "x" * 1000 for number in range(40)})
    another = await desk.executor.open(desk.place)
    try:
        await asyncio.gather(*(space.stage(tree, "demo") for space in (desk.workspace, another) * 4))
        assert await desk.sh("cat assets/* | wc -c", cwd="skills/demo") == ["40000"]
    finally:
        await another.aclose()
    assert not [path for path in desk.host("skills").iterdir() if path.name != "demo"]


async def only_the_named_skill_is_seen(desk: Desk) -> None:
    await desk.workspace.stage(desk.publish({"secret.txt": "of another\n"}, name="other"), "other")
    assert await desk.sh("cat secret.txt", cwd="skills/other", skill="other") == ["of another"]
    result = await desk.run("sh", "-c", 'cat "$SKILLS_DIR"/other/secret.txt; ls "$SKILLS_DIR"/other; true')
    assert (b"of another" in result.out) != desk.claims.other_skills_hidden
    assert (b"secret.txt" in result.out) != desk.claims.other_skills_hidden
    trees = await desk.run("ls", os.path.join(desk.trees))
    assert (trees.ended.exit_code == 0) <= (not desk.claims.other_skills_hidden)


async def a_skill_has_to_be_staged_under_a_plain_name(desk: Desk) -> None:
    tree = desk.publish()
    for name in ("../x", "a/b", ".", "..", "", "a\0b", "x" * 65, ".hidden", "-x", "a b"):
        with pytest.raises(WorkspaceError) as refused:
            await desk.workspace.stage(tree, name)
        assert refused.value.code == "unsafe-name"
    with pytest.raises(WorkspaceError) as refused:
        await desk.run("true", skill="never-staged")
    assert refused.value.code == "not-staged"
    for name in ("../x", "a/b", "..", ""):
        with pytest.raises(WorkspaceError) as refused:
            await desk.run("true", run=name)
        assert refused.value.code == "unsafe-name"


async def the_workspaces_own_folders_cannot_be_replaced(desk: Desk) -> None:
    if not desk.claims.files_protected:
        desk.ground.not_run(f"{desk.tier.name}: the workspace's own folders are protected", "not promised here")
        return
    script = """
cd "$WORKSPACE_DIR"
for name in work out runs skills "$RUN_DIR" "$SKILL_DIR" "$SKILL_DIR/out" "$SKILL_DIR/work" "$SKILL_DIR/.venv"; do
    mv "$name" "$WORK_DIR/stolen" 2>/dev/null && echo "moved $name"
    mv "$name" "$name.gone" 2>/dev/null && echo "renamed $name"
    rmdir "$name" 2>/dev/null && echo "removed $name"
    ln -sfn /etc "$name" 2>/dev/null && test -L "$name" && echo "replaced $name"
done
touch "$WORKSPACE_DIR/new" "$SKILLS_DIR/new" "$SKILLS_DIR/../runs/new" 2>/dev/null
mkdir "$SKILLS_DIR/evil" "$WORKSPACE_DIR/runs/evil" 2>/dev/null
true
"""
    before = sorted(os.listdir(desk.place.root)), sorted(os.listdir(desk.host("skills")))
    assert await desk.sh(script) == []
    assert (sorted(os.listdir(desk.place.root)), sorted(os.listdir(desk.host("skills")))) == before
    assert not any(desk.host(name).is_symlink() for name in ("work", "out", "runs", "skills"))
    assert "evil" not in os.listdir(desk.host("runs")) and "new" not in os.listdir(desk.host("runs"))


async def other_sessions_are_out_of_reach(desk: Desk) -> None:
    async with desk.ground.desk() as other:
        secret = other.put("work/secret", "of another session")
        result = await desk.run("sh", "-c", f"cat {secret}; ls {other.place.root}; echo x > {secret}; true")
        seen = (
            b"of another session" in result.out or b"skills" in result.out or secret.read_text() != "of another session"
        )
        assert seen <= (not desk.claims.host_hidden)


async def a_link_in_the_place_of_inputs_shows_nothing_of_the_host(desk: Desk) -> None:
    """Whatever the first run did to it, the next one sees the workspace or does not start."""
    canary = Path(desk.trees).parent / "canary"
    canary.mkdir(exist_ok=True)
    canary.chmod(0o755)
    (canary / "secret").write_text("secret of the host", encoding="utf-8")
    (canary / "secret").chmod(0o644)
    script = f"mv inputs moved; rm -rf inputs; rm -rf ../skills/demo/inputs; ln -s {canary} inputs; true"
    await desk.run("sh", "-c", script)
    await desk.run("sh", "-c", script, cwd="skills/demo/work")
    try:
        result = await desk.run("sh", "-c", "cat inputs/secret ../../work/inputs/secret; true", cwd="skills/demo")
    except PathEscape:
        return
    assert (b"secret of the host" in result.out) <= (not desk.claims.host_hidden)


# --- what cannot start ------------------------------------------------------------------------------------------------


async def a_program_that_is_not_there_was_not_started(desk: Desk) -> None:
    desk.put("work/plain.txt", "no program\n")
    desk.put("work/bare", "echo no first line\n", 0o755)
    desk.put("work/orphan", "#!/nowhere/python\n", 0o755)
    desk.put("work/here", "#!/bin/sh\n", 0o755)
    desk.host("work/folder").mkdir()
    await desk.sh("ln -s /nowhere dangling; ln -s plain.txt/x through", cwd="work")
    cases = [
        ("no-such-program", {}, errno.ENOENT),
        ("/no/such/program", {}, errno.ENOENT),
        ("./nothing", {}, errno.ENOENT),
        ("./dangling", {}, errno.ENOENT),
        ("./through", {}, errno.ENOENT),
        ("./plain.txt", {}, errno.EACCES),
        ("./folder", {}, errno.EACCES),
        ("./bare", {}, errno.ENOEXEC),  # a shell would have run it
        ("./orphan", {}, errno.ENOENT),
        ("here", {"env": {"PATH": ".::relative"}}, errno.ENOENT),  # the working folder is not searched
        ("true", {"env": {"PATH": ""}}, errno.ENOENT),
    ]
    for name, more, number in cases:
        with pytest.raises(NotStarted) as refused:
            await desk.run(name, "--argument", **more)
        assert (refused.value.step, refused.value.errno) == ("exec", number), name
        assert f"'{name}'" in refused.value.message
    assert await desk.done("./here") == []
    assert await desk.done("true", env={"PATH": f".:{desk.workspace.environment['PATH']}"}) == []
    assert os.listdir(os.path.join(desk.place.path, "tmp")) == []


async def what_no_program_can_be_given_is_refused(desk: Desk) -> None:
    for argv, env in (
        ((), {}),
        (("true", "a\0b"), {}),
        (("true",), {"A=B": "x"}),
        (("true",), {"": "x"}),
        (("true",), {"A": "\0"}),
    ):
        with pytest.raises(WorkspaceError):
            await desk.run(*argv, env=env)


async def a_run_has_a_name_of_its_own(desk: Desk) -> None:
    await desk.run("true", run="twice")
    with pytest.raises(WorkspaceError) as refused:
        await desk.run("true", run="twice")
    assert refused.value.code == "run-exists" and "twice" in refused.value.message


# --- how it ends ------------------------------------------------------------------------------------------------------


async def a_signal_is_told(desk: Desk) -> None:
    result = await desk.run("sh", "-c", "echo before; kill -SEGV $$")
    assert result.out == b"before\n" and result.ended.why == "exit"
    if desk.claims.exact_signals:
        assert (result.ended.exit_code, result.ended.signal) == (None, signal.SIGSEGV)
    else:
        assert (result.ended.exit_code, result.ended.signal) == (128 + signal.SIGSEGV, None)


async def what_came_before_a_time_out_is_kept(desk: Desk) -> None:
    """With a grandchild that holds the pipe, and nobody who hears TERM."""
    code = (
        desk.daemon + "signal.signal(15, signal.SIG_IGN)\nopen('partial', 'w').write('kept')\nwhile 1: signal.pause()"
    )
    result = await desk.python(code, timeout_s=1.5)
    assert result.ended.timed_out and result.ended.why == "timeout" and result.ended.left == 0
    assert result.out == b"daemon up\n"
    assert desk.host("work/partial").read_text(encoding="utf-8") == "kept"
    assert desk.lock_is_free()


async def who_hears_term_may_say_goodbye(desk: Desk) -> None:
    script = "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.02; done"
    result = await desk.run("bash", "-c", script, timeout_s=1.5)
    assert (result.ended.timed_out, result.ended.exit_code, result.out) == (True, 4, b"up\nbye\n")


async def a_daemon_ends_with_its_run(desk: Desk) -> None:
    result = await desk.python(desk.daemon)
    assert result.ended.exit_code == 0 and result.out == b"daemon up\n"
    assert desk.lock_is_free()


async def cancelling_ends_everything(desk: Desk) -> None:
    up = asyncio.Event()
    program = desk.program(
        desk.workspace.python,
        "-I",
        "-S",
        "-c",
        desk.daemon + "open(os.environ['TMPDIR'] + '/x', 'w')\nwhile 1: signal.pause()",
    )
    task = asyncio.ensure_future(desk.workspace.run(program, lambda data: up.set()))
    await up.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert desk.lock_is_free()
    assert os.listdir(os.path.join(desk.place.path, "tmp")) == []


async def cancelled_at_any_moment_nothing_is_left(desk: Desk) -> None:
    desk.put("work/lock", "")
    code = "import fcntl, os, signal\nfcntl.flock(os.open('lock', os.O_RDWR), fcntl.LOCK_EX)\nwhile 1: signal.pause()"
    for number in range(10):
        program = desk.program(desk.workspace.python, "-I", "-S", "-c", code)
        task = asyncio.ensure_future(desk.workspace.run(program))
        await asyncio.sleep(0.003 * number)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert desk.lock_is_free() and os.listdir(os.path.join(desk.place.path, "tmp")) == []
    assert await desk.sh("echo still") == ["still"]


async def a_callback_that_raises_ends_the_run(desk: Desk) -> None:
    class Full(Exception):
        pass

    def full(data: bytes) -> None:
        raise Full

    program = desk.program(desk.workspace.python, "-I", "-S", "-c", desk.daemon + "while 1: signal.pause()")
    with pytest.raises(Full):
        await desk.workspace.run(program, full)
    assert desk.lock_is_free()


async def ten_megabytes_arrive(desk: Desk) -> None:
    code = (
        "import sys\nfor n in range(160): sys.stdout.buffer.write(bytes([n]) * 65536)\nsys.stderr.write('e' * 100000)"
    )
    result = await desk.python(code)
    expected = b"".join(bytes([number]) * 65536 for number in range(160))
    assert result.out == expected and result.err == b"e" * 100000


async def any_bytes_arrive(desk: Desk) -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 100 + b'\\xff\\xfe\\x00')"
    assert (await desk.python(code)).out == bytes(range(256)) * 100 + b"\xff\xfe\x00"


async def temporary_files_go_whatever_was_made_of_them(desk: Desk) -> None:
    code = """
import os
os.chdir(os.environ["TMPDIR"])
os.mkdir("closed"); open("closed/x", "w").close(); os.chmod("closed", 0)
os.symlink("/etc", "link"); os.mkfifo("fifo"); open("odd\\nname", "w").close()
for _ in range(1500):
    os.mkdir("a-rather-long-name-of-a-folder"); os.chdir("a-rather-long-name-of-a-folder")
"""
    result = await desk.python(code)
    assert result.ended.exit_code == 0, result.err.decode()
    assert os.listdir(os.path.join(desk.place.path, "tmp")) == []


async def runs_do_not_disturb_each_other(desk: Desk) -> None:
    async def one(number: int) -> None:
        lines = await desk.sh(
            f'echo {number} > "$RUN_DIR/n"; echo {number} > "$TMPDIR/n"; sleep 0.05; cat "$RUN_DIR/n" "$TMPDIR/n"'
        )
        assert lines == [str(number)] * 2

    await asyncio.gather(*(one(number) for number in range(8)))
    assert os.listdir(os.path.join(desk.place.path, "tmp")) == []


async def closing_ends_what_still_runs(desk: Desk) -> None:
    up = asyncio.Event()
    program = desk.program(desk.workspace.python, "-I", "-S", "-c", desk.daemon + "while 1: signal.pause()")
    task = asyncio.ensure_future(desk.workspace.run(program, lambda data: up.set()))
    session = await desk.workspace.open_session(desk.program("cat"))
    await up.wait()
    await desk.workspace.aclose()
    assert task.done() and (await task).killed
    assert session.ended is not None and session.ended.killed
    assert desk.lock_is_free()
    with pytest.raises(WorkspaceError) as refused:
        await desk.run("true")
    assert refused.value.code == "workspace-closed"


async def the_executor_closes_its_workspaces(desk: Desk) -> None:
    session = await desk.workspace.open_session(desk.program("cat"))
    await desk.executor.aclose()
    assert session.ended is not None


# --- programs that go on ----------------------------------------------------------------------------------------------


async def said(session: Interactive, wanted: bytes) -> bytes:
    """What it prints until that is in it."""
    got = b""
    while wanted not in got:
        piece = await session.read(wait_s=GUARD_S)
        assert piece or session.ended is None, got
        got += piece
    return got


async def a_session_is_written_to_and_read_from(desk: Desk) -> None:
    heard = bytearray()
    session = await desk.workspace.open_session(desk.program("cat"), heard.extend)
    await session.write(b"one\n")
    assert await said(session, b"one\n") == b"one\n"
    assert session.ended is None and await session.read() == b""
    await session.write(b"two")
    session.close_stdin()
    ended = await session.wait()
    assert (ended.why, ended.exit_code) == ("exit", 0) and session.ended == ended
    assert await session.read() == b"two" and bytes(heard) == b"one\ntwo" and session.dropped_bytes == 0
    await session.aclose()


async def a_session_has_a_terminal(desk: Desk) -> None:
    if not desk.claims.terminal:
        desk.ground.not_run(f"{desk.tier.name}: a terminal", "not promised here")
        return
    code = "import os, sys; print(os.isatty(0), os.isatty(1)); name = input('Who? '); print('Hello', name); sys.exit(6)"
    program = desk.program(desk.workspace.python, "-I", "-c", code, tty=True)
    session = await desk.workspace.open_session(program)
    assert b"True True" in await said(session, b"Who? ")
    await session.write(b"World\n")
    ended = await session.wait()
    rest = await session.read()
    assert ended.exit_code == 6 and b"Hello World" in rest and b"World\r\n" in rest
    await session.aclose()


async def a_session_can_be_killed(desk: Desk) -> None:
    program = desk.program(desk.workspace.python, "-I", "-S", "-c", desk.daemon + "while 1: signal.pause()")
    session = await desk.workspace.open_session(program)
    await said(session, b"daemon up")
    ended = await session.kill()
    assert ended.killed and session.ended == ended and desk.lock_is_free()
    assert (await session.kill()) == ended
    await session.write(b"to nobody")
    await session.aclose()
    assert os.listdir(os.path.join(desk.place.path, "tmp")) == []


async def a_session_that_is_closed_ends(desk: Desk) -> None:
    program = desk.program(
        desk.workspace.python, "-I", "-S", "-c", desk.daemon + "while 1: signal.pause()", tty=desk.claims.terminal
    )
    session = await desk.workspace.open_session(program)
    await said(session, b"daemon up")
    await session.aclose()
    assert session.ended is not None and desk.lock_is_free()


async def a_session_has_its_time_and_its_folders(desk: Desk) -> None:
    script = "touch $TMPDIR/x $RUN_DIR/y; echo ready; cat"
    session = await desk.workspace.open_session(desk.program("sh", "-c", script, run="mine", timeout_s=1.5))
    await said(session, b"ready")
    ended = await session.wait()
    assert ended.timed_out and (desk.host("runs/mine") / "y").exists()
    assert os.listdir(os.path.join(desk.place.path, "tmp")) == []
    await session.aclose()
    with pytest.raises(NotStarted) as refused:
        await desk.workspace.open_session(desk.program("no-such-program"))
    assert refused.value.errno == errno.ENOENT
    with pytest.raises(WorkspaceError) as exists:
        await desk.workspace.open_session(desk.program("cat", run="mine"))
    assert exists.value.code == "run-exists"


# --- what is promised -------------------------------------------------------------------------------------------------


async def every_limit_is_told(desk: Desk) -> None:
    for isolation in (desk.workspace.isolation, await desk.executor.isolation()):
        assert set(isolation.limits) == set(NAMES)
        assert set(isolation.limits.values()) <= {"enforced", "best-effort", "absent"}
        assert isolation.limits["memory"] == "absent", "nobody asked for it"
        assert isolation.executor and isolation.mechanism and isolation.network in ("none", "host", "proxy")
        assert isolation.kind in ("process", "sandbox", "container")
        assert isolation.is_isolated is (isolation.network != "host")
        assert isolation.uid != 0


async def it_runs_as_whom_it_says(desk: Desk) -> None:
    await desk.sh("touch $WORK_DIR/mine")
    assert desk.host("work/mine").stat().st_uid == desk.workspace.isolation.uid != 0


async def there_is_no_network_where_that_is_said(desk: Desk) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5).close(); print('connected')"
    async with server:
        result = await desk.python(code)
    assert (b"connected" in result.out) == (desk.workspace.isolation.network == "host")


async def the_supervisor_may_be_killed(desk: Desk) -> None:
    """Not among CASES: for executors whose programs are processes of this machine."""
    up = asyncio.Event()
    program = desk.program(desk.workspace.python, "-I", "-S", "-c", desk.daemon + "while 1: signal.pause()")
    task = asyncio.ensure_future(desk.workspace.run(program, lambda data: up.set()))
    session = await desk.workspace.open_session(desk.program("cat"))
    await up.wait()
    supervisor = desk.ground.processes.supervisor_pid
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    try:
        assert (await task).killed
    except WorkspaceError as error:
        assert error.code == "run-lost"
    await asyncio.wait([asyncio.ensure_future(session.wait())])
    assert session.ended is not None and desk.lock_is_free()
    await session.aclose()
    assert os.listdir(os.path.join(desk.place.path, "tmp")) == []
    assert await desk.sh("echo again") == ["again"]


CASES: list[Callable[[Desk], Coroutine[Any, Any, None]]] = [
    streams_and_exit_code,
    nobody_has_to_listen,
    a_program_that_exits_127_has_run,
    stdin_is_what_was_given,
    arguments_arrive_as_they_are,
    the_environment_is_exactly_the_given_one,
    no_descriptor_is_inherited,
    home_and_tmpdir_are_the_runs_own,
    every_variable_leads_somewhere,
    the_interpreter_is_there,
    ordinary_programs_work,
    it_starts_where_it_was_told_to,
    a_script_of_the_skill_runs_by_its_path,
    a_folder_that_is_not_there_is_named,
    a_folder_that_became_a_link_to_elsewhere_is_refused,
    a_folder_outside_is_refused,
    a_link_by_the_path_that_a_script_sees_is_good,
    folders_in_the_skill_lead_to_the_workspace,
    the_skill_cannot_be_changed,
    a_skill_that_was_changed_is_whole_again_when_it_is_staged,
    habits_work_alike,
    venv_is_writable_and_belongs_to_the_content,
    what_is_staged_anew_is_what_is_seen,
    many_may_stage_at_once,
    only_the_named_skill_is_seen,
    a_skill_has_to_be_staged_under_a_plain_name,
    the_workspaces_own_folders_cannot_be_replaced,
    other_sessions_are_out_of_reach,
    a_link_in_the_place_of_inputs_shows_nothing_of_the_host,
    a_program_that_is_not_there_was_not_started,
    what_no_program_can_be_given_is_refused,
    a_run_has_a_name_of_its_own,
    a_signal_is_told,
    what_came_before_a_time_out_is_kept,
    who_hears_term_may_say_goodbye,
    a_daemon_ends_with_its_run,
    cancelling_ends_everything,
    cancelled_at_any_moment_nothing_is_left,
    a_callback_that_raises_ends_the_run,
    ten_megabytes_arrive,
    any_bytes_arrive,
    temporary_files_go_whatever_was_made_of_them,
    runs_do_not_disturb_each_other,
    closing_ends_what_still_runs,
    the_executor_closes_its_workspaces,
    a_session_is_written_to_and_read_from,
    a_session_has_a_terminal,
    a_session_can_be_killed,
    a_session_that_is_closed_ends,
    a_session_has_its_time_and_its_folders,
    every_limit_is_told,
    it_runs_as_whom_it_says,
    there_is_no_network_where_that_is_said,
]


# --- limits, each really hit ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LimitCase:
    """A limit, and a program that goes beyond it: `held` looks at what came of it."""

    name: str
    limits: RunLimits
    code: str
    held: Callable[[Result], bool]


MANY = """
import os
n = 0
try:
    while n < 200:
        if os.fork() == 0:
            import signal; signal.pause()
        n += 1
    print("no end")
except OSError:
    print("stopped at", n)
"""
_FULL = """
import os
with open(os.environ['{folder}'] + '/f', 'wb', buffering=0) as file:
    for _ in range(64): file.write(b'x' * (1 << 20))
print('all of it')
"""
_HOGS = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        data = bytearray(os.urandom(1 << 20)) * 150
        time.sleep(0.5)
        os._exit(0)
codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(8)]
print("all of it" if codes == [0] * 8 else "killed")
"""


def _killed_by(result: Result, number: int) -> bool:
    return result.ended.signal == number or result.ended.exit_code == 128 + number


LIMITS = [
    LimitCase(
        name="memory",
        limits=RunLimits(memory=256 * MIB),
        code="data = bytearray(400 << 20); print('all of it')",
        held=lambda result: result.ended.oom and b"all of it" not in result.out and _killed_by(result, signal.SIGKILL),
    ),
    LimitCase(
        name="memory",
        limits=RunLimits(memory=256 * MIB),
        code=_HOGS,
        held=lambda result: result.ended.oom and b"all of it" not in result.out,
    ),
    LimitCase(
        name="memory",
        limits=RunLimits(memory=256 * MIB),
        code="print('modest')",
        held=lambda result: not result.ended.oom and result.out == b"modest\n",
    ),
    LimitCase(
        name="processes",
        limits=RunLimits(processes=20),
        code=MANY,
        held=lambda result: bool(found := re.match(rb"stopped at (\d+)", result.out)) and int(found[1]) <= 20,
    ),
    LimitCase(
        name="processes",
        limits=RunLimits(processes=20, memory=512 * MIB),
        code=MANY,
        held=lambda result: bool(found := re.match(rb"stopped at (\d+)", result.out)) and int(found[1]) <= 20,
    ),
    LimitCase(
        name="cpu",
        limits=RunLimits(cpu=1),
        code="import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        held=lambda result: _killed_by(result, signal.SIGKILL) and not result.ended.timed_out,
    ),
    LimitCase(
        name="open_files",
        limits=RunLimits(open_files=64),
        code="import resource\ntry: resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))\nexcept Exception: pass\n"
        "files = [open('/dev/null') for _ in range(100)]; print('all of it')",
        held=lambda result: b"Too many open files" in result.err and b"all of it" not in result.out,
    ),
    LimitCase(
        name="file_size",
        limits=RunLimits(file_size=8 * MIB),
        code="import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + _FULL.format(folder="WORK_DIR"),
        held=lambda result: b"File too large" in result.err and b"all of it" not in result.out,
    ),
    LimitCase(
        name="tmp",
        limits=RunLimits(tmp=8 * MIB),
        code=_FULL.format(folder="TMPDIR"),
        held=lambda result: b"No space left" in result.err and b"all of it" not in result.out,
    ),
]


def check_limit(case: LimitCase, ground: Ground) -> None:
    """What is said to be enforced is, and what is not said to be was asked for in vain."""

    async def hit(desk: Desk) -> None:
        told = desk.workspace.isolation.limits[case.name]
        if told != "enforced":
            ground.not_run(f"{ground.tier.name}: the limit on {case.name}", f"it is {told} here")
            return
        result = await desk.python(case.code, timeout_s=30)
        assert case.held(result), (result.ended, result.out[-500:], result.err[-500:])

    ground.go(hit, case.limits)


def case_name(case: Callable[[Desk], Coroutine[Any, Any, None]] | LimitCase) -> str:
    return case.name if isinstance(case, LimitCase) else case.__name__


def isolation_of(ground: Ground, limits: RunLimits | None = None) -> Isolation | None:
    """What the tier says of itself; None when there is none here."""

    async def ask() -> Isolation | None:
        try:
            return await ground.executor(limits or RunLimits()).isolation()
        except WorkspaceUnavailable:
            return None

    return asyncio.run(ask())
