"""What happens in one tier, through the executor's port alone; `Bare` has the same port and no executor behind it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pty
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from escapes import naive
from escapes.hosts import sites
from escapes.looks import Looks
from escapes.scene import NEIGHBOUR, SKILL, Scene
from escapes.tiers import ENGINE, Bare, BareWorkspace
from prowess.core.ports import Executor, Program, Workspace
from prowess.errors import WorkspaceError
from prowess.workspace.container.engine import OWNER_LABEL
from prowess.workspace.inputs import Input, InputPlaces, stage_input
from prowess.workspace.layout import environment
from prowess.workspace.outputs import collect
from prowess.workspace.process.command import Ended
from prowess.workspace.session_folder import Place

WAIT_S = 15.0
Found = dict[str, dict[str, Any]]


class Done(NamedTuple):
    ended: Ended
    out: bytes
    err: bytes


def found_by_host(through: bool | None, said: object) -> dict[str, Any]:
    """None: it could not be tried."""
    return {"through": through, "by": "the host", "said": ascii(said)[:600]}


class Story:
    """One tier and one scene. Every part returns, for each of its attempts, whether it got through and who says so."""

    def __init__(self, tier: str, scene: Scene, executor: Executor, uid: int | None) -> None:
        self.tier, self.scene, self.executor, self.uid = tier, scene, executor, uid
        self.bare = isinstance(executor, Bare)
        self.seen_alive = False
        self._numbers = itertools.count(1)

    async def open(self, session: str, executor: Executor | None = None) -> tuple[Place, Workspace]:
        place = self.scene.open_place(session, uid=self.uid)
        workspace = await (executor or self.executor).open(place)
        for name in (SKILL, NEIGHBOUR):
            await workspace.stage(self.scene.trees[name], name)
        return place, workspace

    def program(
        self,
        workspace: Workspace,
        script: str,
        *args: str,
        env: dict[str, str] | None = None,
        task: dict[str, Any] | None = None,
        timeout_s: float = 60,
        tty: bool = False,
        cwd: str = f"skills/{SKILL}",
    ) -> Program:
        run = f"r{next(self._numbers)}"
        mark = {"SCENE": self.scene.nonce, "READABLE": str(self.scene.tools)}
        return Program(
            argv=[workspace.python, "-B", f"{workspace.layout.seen(f'skills/{SKILL}')}/scripts/{script}", *args],
            skill=SKILL,
            run=run,
            cwd=cwd,
            env={
                **workspace.environment,
                **environment(workspace.layout, skill=SKILL, run=run),
                **mark,
                **(env or {}),
            },
            stdin=None if task is None else json.dumps(task).encode(),
            timeout_s=timeout_s,
            readable=self.scene.readable,
            tty=tty,
        )

    def changed(self, workspace: Workspace, **changes: Any) -> Program:
        """A program that is as it should be, but for this."""
        return replace(self.program(workspace, "echo.py"), **changes)

    def containers(self, pid: int) -> list[str]:
        """Those that the runtime with that number has made."""
        if not self.tier.startswith("docker"):
            return []
        import docker

        with closing(docker.DockerClient(base_url=os.environ[ENGINE])) as client:
            found = client.api.containers(all=True, filters={"label": OWNER_LABEL})
        return [each["Id"] for each in found if f"/{pid}/" in each["Labels"][OWNER_LABEL]]

    async def run(self, workspace: Workspace, script: str, *args: str, **more: Any) -> Done:
        out, err = bytearray(), bytearray()
        async with asyncio.timeout(300):
            ended = await workspace.run(self.program(workspace, script, *args, **more), out.extend, err.extend)
        return Done(ended, bytes(out), bytes(err))

    # --- everything that one start of the sandbox can try -------------------------------------------------------------

    async def attempts(self) -> Found:
        place, workspace = await self.open("one")
        other_place, other = await self.open("two")
        self.scene.other_place(other_place)
        looks = Looks(self.scene)
        async with Waiting(self, other) as waiting:
            done = await self.run(workspace, "main.py", task=self.scene.task(other_run=waiting.pid))
            if done.ended.exit_code != 0 or not done.out:
                raise RuntimeError(f"{done.ended} {done.err.decode()[-2000:]}")
            return looks.judge(place, json.loads(done.out), waiting.pid)

    async def terminal(self) -> Found:
        """Case 35. Somebody of the same user sits at a terminal nearby, and has typed something."""
        _, workspace = await self.open("terminal")
        keys, forged = self.scene.canary("keys"), self.scene.canary("forged")
        ours, theirs = pty.openpty()
        try:
            if self.uid is not None:
                os.chown(theirs, self.uid, self.uid)
            os.write(ours, f"{keys}\n".encode())
            os.read(ours, 1 << 12)  # as its terminal shows it to that person
            os.set_blocking(ours, False)
            task = {"only": ["tty-type", "tty-paste", "tty-forge", "tty-keys"]}
            task |= {"terminal": os.ttyname(theirs), "forged": forged}
            program = self.program(workspace, "main.py", env={"TASK": json.dumps(task)}, tty=True)
            printed = await self._on_terminal(workspace, program)
            shown = naive.shown_on(ours)
        finally:
            os.close(ours)
            os.close(theirs)
        said = json.loads(printed[printed.index(b"{") :])
        found = {
            name: {"through": answer["got"] == "ok", "by": "the inside", "said": json.dumps(answer)}
            for name, answer in said.items()
        }
        found["tty-forge"] = found_by_host(forged in shown, [said["tty-forge"], shown])
        found["tty-keys"] = found_by_host(keys in json.dumps(said["tty-keys"]), said["tty-keys"])
        return found

    async def _on_terminal(self, workspace: Workspace, program: Program) -> bytes:
        """What it prints, as soon as that is whole."""
        if isinstance(workspace, BareWorkspace):
            return naive.on_terminal(workspace, program)
        session = await workspace.open_session(program)
        try:
            said = b""
            async with asyncio.timeout(WAIT_S):
                while session.ended is None or not said.strip().endswith(b"}"):
                    said += await session.read(wait_s=0.5)
                    if said.count(b"{") and said.count(b"{") == said.count(b"}"):
                        break
            return said
        finally:
            await session.aclose()

    # --- between two runs ---------------------------------------------------------------------------------------------

    async def between(self) -> Found:
        """Case 12: a run leaves links where folders were; then come the next run and the host itself."""
        _, workspace = await self.open("between")
        outside = self.scene.outside
        made = (await self.run(workspace, "swapping.py", "links", str(outside))).out.decode().strip()
        refused = ""
        try:
            await self.run(workspace, "swapping.py", "write")
        except (WorkspaceError, OSError) as error:
            refused = str(error)
        found = {"next-run": self._is_outside("by-next-run")}
        source = self.scene.base / "given.txt"
        source.write_text("given", encoding="utf-8")
        (outside / "loot.txt").write_text(self.scene.canary("loot"), encoding="utf-8")
        found["next-input"] = self._given(workspace, str(source))
        found["next-collect"] = self.scene.canary("loot") in self._collected(workspace)
        said = {"links": made, "refused": refused}
        return {name: found_by_host(through, said) for name, through in found.items()}

    def _given(self, workspace: Workspace, source: str) -> bool:
        """The host puts an input in its place; a naive one does so by path."""
        target = Path(workspace.layout.host("work/inputs/given.txt"))
        try:
            if self.bare:
                target.write_text("given", encoding="utf-8")
            else:
                places = InputPlaces(workspace.layout, host_roots=[os.path.dirname(source)], uid=self.uid)
                stage_input(Input(f"host://{source}"), places)
        except (WorkspaceError, OSError):
            pass
        return self._is_outside("given.txt")

    def _is_outside(self, name: str) -> bool:
        return (self.scene.outside / name).exists()

    def _collected(self, workspace: Workspace, pattern: str = "**") -> str:
        """All that a collector brings home; a naive one opens whatever is called like a file."""
        if not self.bare:
            patterns = [f"{folder}/{pattern}" for folder in ("out", "work", "runs")]
            try:
                return "".join(file.content or "" for file in collect(workspace.layout, patterns).files)
            except WorkspaceError:
                return ""
        top = Path(workspace.layout.root)
        paths = [path for folder in ("out", "work", "runs") for path in (top / folder).glob("*")]
        return "".join(path.read_text(errors="replace") for path in paths if path.is_file())

    # --- odd names ----------------------------------------------------------------------------------------------------

    async def odd(self) -> Found:
        """Case 59: whatever a path or an argument looks like, it means itself, or is refused with a word about it."""
        return {
            "odd-paths": await self._odd(
                "-odd\n,:=$(id) '\"", ["-rf", "--", "a\nb", "", "$(id)", "--bind", "*"], "x\n=y"
            ),
            "odd-bytes": await self._odd("odd\udcff", ["\udcff", "a\udcffb"], "\udcff"),
        }

    async def _odd(self, name: str, words: list[str], value: str) -> dict[str, Any]:
        expected = {"given": [os.fsencode(word).hex() for word in words], "odd": os.fsencode(value).hex()}
        folder = self.scene.base / name
        folder.mkdir(mode=0o711)
        try:
            place = self.scene.open_place("odd", uid=self.uid, dir=str(folder))
            workspace = await self.executor.open(place)
            await workspace.stage(self.scene.trees[SKILL], SKILL)
            program = self.program(workspace, "echo.py", *words, env={"ODD": value}, cwd="work")
            if isinstance(workspace, BareWorkspace):  # as it is done where nobody thinks of that
                line = " ".join(program.argv).encode("utf-8", "replace")
                program = replace(program, argv=["sh", "-c", line.decode()])
            out = bytearray()
            await workspace.run(program, out.extend)
            said = json.loads(out or b"{}")
            right = {name: said.get(name) for name in expected} == expected and "written" in said["here"]
            right = right and "written" in os.listdir(workspace.layout.host("work"))
        except WorkspaceError as error:
            said, right = repr(error), True
        return found_by_host(not right, said)

    # --- one host is allowed ------------------------------------------------------------------------------------------

    async def proxied(self, open_executor: Callable[[Sequence[str]], Executor]) -> Found:
        """Case 30, end to end. Loopback is allowed by its address and one port; its name is allowed, too, and must not
        help, because a name that leads to such an address is what rebinding is."""
        with sites() as (allowed, other_port, other_address):
            urls = {
                "allowed": allowed.url("allowed"),
                "proxy-redirect": allowed.url("proxy-redirect"),
                "proxy-other-port": other_port.url("proxy-other-port"),
                "proxy-other-address": other_address.url("proxy-other-address"),
                "proxy-name": other_port.url("proxy-name", "localhost"),
                "proxy-around": allowed.url("proxy-around"),
            }
            executor = open_executor([f"127.0.0.1:{allowed.server_port}", f"localhost:{other_port.server_port}"])
            try:
                _, workspace = await self.open("proxied", executor)
                done = await self.run(workspace, "proxied.py", task=urls)
            finally:
                await executor.aclose()
            asked = {"allowed": allowed.asked, "other": [*other_port.asked, *other_address.asked]}
        said = done.out.decode() + done.err.decode()[-500:]
        if "allowed" not in asked["allowed"]:
            raise RuntimeError(f"Not even the allowed host was reached: {done.ended} {said}")
        through = {name: name in asked["other"] for name in urls if name != "allowed"}
        through["proxy-around"] = "proxy-around" in asked["allowed"]
        return {name: found_by_host(got, said) for name, got in through.items()}

    # --- what has to work ---------------------------------------------------------------------------------------------

    async def needs(self) -> dict[str, str]:
        _, workspace = await self.open("needs")
        done = await self.run(workspace, "needs.py")
        if not done.out:
            raise RuntimeError(f"{done.ended} {done.err.decode()[-2000:]}")
        return json.loads(done.out)


class Waiting:
    """Another session's run, which goes on meanwhile; `pid` is its number on the host."""

    def __init__(self, story: Story, workspace: Workspace) -> None:
        self.story, self.workspace = story, workspace
        self.pid = 0

    async def __aenter__(self) -> Waiting:
        secret = self.story.scene.canary("other-run")
        program = self.story.program(self.workspace, "lasting.py", "wait", env={"PROWESS_OTHER": secret})
        if isinstance(self.workspace, BareWorkspace):
            self.process = self.workspace.start(program)
            assert self.process.stdout is not None
            self.process.stdout.readline()
        else:
            self.session = await self.workspace.open_session(program)
            async with asyncio.timeout(WAIT_S):
                while b"ready" not in await self.session.read(wait_s=1):
                    if self.session.ended is not None:
                        raise RuntimeError(f"The other run ended: {self.session.ended}")
        [self.pid] = find_pids(secret)
        self.story.seen_alive = self.pid in find_pids(self.story.scene.nonce)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.pid and isinstance(self.workspace, BareWorkspace):
            self.process.communicate()
        else:
            await self.session.aclose()


def find_pids(mark: str) -> list[int]:
    """The processes of this machine with that in their environment."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and mark.encode() in Path("/proc", name, "environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def end_left(nonce: str) -> None:
    """What a program of this scene has left; nobody else has that mark."""
    for pid in find_pids(f"SCENE={nonce}"):
        os.kill(pid, signal.SIGKILL)
