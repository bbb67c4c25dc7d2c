"""The packages of a block: wheels only, made once, whole or not there, for whoever a script runs as; all offline."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from loopback import Exchange, Server
from prowess.errors import WorkspaceError
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command
from prowess.workspace.scripts.environment_store import hold_environment, list_environments, remove_environment
from prowess.workspace.scripts.environments import Built, Environments
from prowess.workspace.scripts.installers import InstallerOutput, find_uv, installer_environment, pip_knows_better
from prowess.workspace.scripts.pep723 import ScriptBlock, parse_block

PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else os.path.realpath(sys.executable)
UNPRIVILEGED = 64321
PWNED = "import os; open({path!r}, 'a').write('x')\n"


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-any",
) -> Path:
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},{_sha256(text)},{len(text.encode())}\n" for path, text in whole.items())
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**whole, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(file, text)
    return path


def _sha256(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All packages that there are in the world of these tests."""
    folder = tmp_path_factory.mktemp("shelf")
    make_wheel(folder, "alpha", "1.0", {"alpha.py": "import beta\nvalue = beta.value + 1\n"}, ("beta>=1",))
    make_wheel(folder, "beta", "1.2", {"beta/__init__.py": "value = 1\n"})
    make_wheel(folder, "beta", "2.0", {"beta/__init__.py": "value = 2\n"})
    make_wheel(folder, "old_beta", "1.0", {"old_beta.py": ""}, ("beta<2",))
    make_wheel(folder, "new_beta", "1.0", {"new_beta.py": ""}, ("beta>=2",))
    make_wheel(folder, "only310", "1.0", {"only310.py": ""}, ("beta",), tag="cp310-cp310-manylinux_2_17_x86_64")
    make_wheel(folder, "outside", "1.0", {"outside.py": "", "../../../../../../escaped.txt": "x"})
    data = "usurper-1.0.data"
    make_wheel(
        folder, "usurper", "1.0", {"usurper.py": "", f"{data}/scripts/python": "#!python\n", f"{data}/data/x": ""}
    )
    make_wheel(folder, "settings", "1.0", {"settings.py": "", "settings-1.0.data/data/pyvenv.cfg": "home = /nowhere\n"})
    make_wheel(folder, "starter", "1.0", {"starter.py": "", "zz.pth": PWNED.format(path=str(folder / "pwned"))})
    with tarfile.open(folder / "source-1.0.tar.gz", "w:gz") as archive:
        setup = folder / "setup.py"
        setup.write_text(PWNED.format(path=str(folder / "pwned")), encoding="utf-8")
        archive.add(setup, "source-1.0/setup.py")
        setup.unlink()
    return folder


@pytest.fixture
def place(workspace_dir: str, tmp_path: Path) -> Iterator[Path]:
    """Where the user that scripts run as can get to."""
    folder = Path(workspace_dir, tmp_path.name)
    folder.mkdir()
    folder.chmod(0o711)
    yield folder / "environments"
    assert [path.name for path in folder.parent.rglob("escaped.txt")] == []


def block(*dependencies: str, python: str = "") -> ScriptBlock:
    found = parse_block(f"# /// script\n# dependencies = {list(dependencies)}\n# requires-python = '{python}'\n# ///\n")
    assert found is not None
    return found


def pip_only(shelf: Path) -> dict[str, str]:
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf), "PIP_CONFIG_FILE": os.devnull}


class Lab:
    """Environments at one place. Each call is a runtime of its own, so that nothing is remembered but on disk."""

    def __init__(self, place: Path, environ: Mapping[str, str], **more: Any) -> None:
        installer = "uv" if "UV_FIND_LINKS" in environ else "pip"
        self.place = place
        self._environ, self._more = environ, {"installer": installer, **more}

    def environments(self, processes: Processes) -> Environments:
        return Environments(str(self.place), processes=processes, environ=self._environ, **self._more)

    def find(self, wanted: ScriptBlock, python: str = PYTHON) -> Built | None:
        return self.environments(Processes()).find(wanted, python)

    def build(self, wanted: ScriptBlock, python: str = PYTHON, **more: Any) -> Built:
        return self._run(lambda environments: environments.build(wanted, python, **more))

    def build_target(self, wanted: ScriptBlock, **there: str) -> Built:
        return self._run(lambda environments: environments.build_target(wanted, **there))

    def fails(self, wanted: ScriptBlock, python: str = PYTHON) -> WorkspaceError:
        with pytest.raises(WorkspaceError) as failed:
            self.build(wanted, python)
        return failed.value

    def left(self) -> list[str]:
        return os.listdir(self.place)

    def _run(self, story: Callable[[Environments], Awaitable[Built]]) -> Built:
        async def whole() -> Built:
            async with asyncio.timeout(GUARD_S), Processes() as processes:
                return await story(self.environments(processes))

        return asyncio.run(whole())


@pytest.fixture
def pip(place: Path, shelf: Path) -> Lab:
    return Lab(place, pip_only(shelf))


@pytest.fixture
def lab(request: pytest.FixtureRequest, place: Path, shelf: Path, tmp_path: Path, installer: str) -> Lab:
    """With each installer that there is here."""
    if installer == "pip":
        return Lab(place, pip_only(shelf))
    uv = shutil.which("uv")
    assert uv is not None
    offline = {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(shelf), "UV_CACHE_DIR": str(tmp_path / "uv")}
    return Lab(place, {**offline, "PATH": str(Path(uv).parent)})


@pytest.fixture(params=["pip", *(["uv"] if shutil.which("uv") else [])])
def installer(request: pytest.FixtureRequest) -> str:
    return request.param


def test_both_installers_are_tried(not_run):
    if shutil.which("uv") is None:
        if "uv" in os.environ.get("REQUIRE_TIERS", "").split(","):
            pytest.fail("REQUIRE_TIERS names uv, and there is none on the PATH")
        not_run("environments made by uv", "there is no uv on the PATH")


def said(built: Built, code: str, *, uid: int | None = None) -> str:
    """What the environment's interpreter prints, started as a script is."""
    out = bytearray()

    async def whole() -> None:
        async with asyncio.timeout(GUARD_S), Processes() as processes:
            command = Command(argv=[built.python, "-c", code], cwd="/", env={}, uid=uid)
            ended = await processes.run(command, out.extend, out.extend)
            assert ended.exit_code == 0, out

    asyncio.run(whole())
    return out.decode().strip()


# --- made once --------------------------------------------------------------------------------------------------------


def test_an_environment_is_made_once_and_found_without_anybody(lab):
    heard: list[str] = []
    wanted = block("Alpha")
    assert lab.find(wanted) is None
    built = lab.build(wanted, on_line=heard.append)
    assert built.resolved == ("alpha==1.0", "beta==2.0") and not built.note
    assert any("alpha" in line for line in heard)
    assert said(built, "import alpha; print(alpha.value)") == "3"
    assert list(Path(built.path).rglob("alpha.*.pyc")), "a run could not write it down"
    code = "import importlib.util as u; print([n for n in ('pip', 'setuptools', 'yaml', 'pytest') if u.find_spec(n)])"
    assert said(built, code) == "[]", "nothing else is in there"
    base = subprocess.run([PYTHON, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert said(built, "import sys; print(sys.base_prefix)") == base.stdout.strip(), "from that interpreter, not ours"
    offline = Lab(lab.place, {})
    assert offline.find(wanted) == offline.build(wanted) == built
    assert offline.find(wanted, os.path.realpath(PYTHON)) == built, "another name of the same interpreter"
    assert offline.find(block("alpha", "beta")) is None


def test_nothing_to_install_is_an_empty_environment(lab):
    built = lab.build(block())
    assert built.resolved == () and said(built, "print(1)") == "1"


def test_whoever_a_script_runs_as_can_use_it_and_not_change_it(lab, not_run):
    if os.geteuid() != 0:
        not_run("another user in an environment", "that needs root")
        return
    built = lab.build(block("alpha"))
    assert said(built, "import os, alpha; print(os.getuid(), alpha.value)", uid=UNPRIVILEGED) == f"{UNPRIVILEGED} 3"
    tries = "import os, sys; print([p for p in (sys.prefix, sys.prefix + '/pyvenv.cfg') if os.access(p, os.W_OK)])"
    assert said(built, tries, uid=UNPRIVILEGED) == "[]"
    for path in (Path(built.path), *Path(built.path).rglob("*")):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            assert mode & 0o044 == 0o044 and not mode & 0o7022, path


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dependencies", "hint"),
    [
        (["source"], "No wheel fits|cannot be reached"),  # offline, uv says that more often than it is true
        (["no-such-package"], "No wheel fits|cannot be reached"),
        (["old-beta", "new-beta"], "exclude each other"),
    ],
)
def test_what_cannot_be_installed_says_why_and_leaves_nothing(lab, shelf, dependencies, hint):
    error = lab.fails(block(*dependencies))
    assert error.code == "dependencies-failed" and any(words in (error.hint or "") for words in hint.split("|")), error
    assert all(name in error.message for name in dependencies), "the installer's own words"
    assert lab.left() == [] and lab.find(block(*dependencies)) is None
    assert not (shelf / "pwned").exists(), "a package was executed while it was installed"


def test_a_wheel_writes_nowhere_else(lab):
    try:
        lab.build(block("outside"))  # uv leaves such a file out
    except WorkspaceError as error:
        assert error.code == "dependencies-failed" and "Do not use it" in (error.hint or "")
    assert not list(lab.place.parent.rglob("escaped.txt"))


@pytest.mark.parametrize("name", ["usurper", "settings"])
def test_a_package_cannot_choose_the_interpreter(lab, name):
    error = lab.fails(block(name))
    assert error.code == "dependencies-failed" and "Do not use it" in (error.hint or "") and lab.left() == []


def test_code_that_a_package_has_run_at_every_start_does_not_run_here(lab, shelf):
    built = lab.build(block("starter", "alpha"))
    assert lab.find(block("starter", "alpha")) == built
    assert not (shelf / "pwned").exists()
    said(built, "")
    assert (shelf / "pwned").exists(), "the control: in a run it does"
    (shelf / "pwned").unlink()


def test_a_python_that_does_not_fit_is_named_with_what_was_wanted(pip):
    error = pip.fails(block("beta", python=">=3.99"))
    assert (
        error.code == "python-too-old"
        and "Python >=3.99" in error.message
        and f"{PYTHON} is Python 3." in error.message
    )
    for python in ("/no/such/python", "/bin/false", "/bin/echo"):
        error = pip.fails(block("beta"), python)
        assert error.code == "interpreter-missing" and python in error.message
    assert not pip.place.exists()


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path, shelf):
    (tmp_path / "file").write_text("", encoding="utf-8")
    error = Lab(tmp_path / "file" / "x", pip_only(shelf)).fails(block("beta"))
    assert error.code == "dependencies-failed" and str(tmp_path) in error.message and error.hint


def test_a_full_disk_is_said_and_leaves_nothing(place, shelf, not_run):
    make_wheel(shelf, "big", "1.0", {"big.py": "x" * (3 << 20)})
    place.mkdir()
    mount = f"mount -t tmpfs -o size=2m,mode=711 none '{place}' && exec \"$@\""
    private = ["unshare", "-m", "sh", "-c", mount, "sh"]
    if os.geteuid() != 0 or subprocess.run([*private, "true"], capture_output=True).returncode != 0:
        not_run("a full disk", "no file system can be mounted here")
        return
    argv = [sys.executable, "-c", BUILDER, str(place), json.dumps(pip_only(shelf)), PYTHON, "big"]
    answer = subprocess.run([*private, *argv], capture_output=True, text=True, timeout=GUARD_S)
    document = json.loads(answer.stdout)
    assert (document["code"], document["retryable"], document["left"]) == ("dependencies-failed", True, [])
    assert "no room" in document["hint"]


# --- more than one at a time, and being interrupted -------------------------------------------------------------------

BUILDER = """
import asyncio, json, os, sys
from prowess.errors import WorkspaceError
from prowess.workspace.scripts.environments import Environments
from prowess.workspace.process.client import Processes
from prowess.workspace.scripts.pep723 import ScriptBlock
async def main(place, environ, python, name):
    async with Processes() as processes:
        environments = Environments(place, processes=processes, environ=json.loads(environ), installer="pip")
        try:
            built = await environments.build(ScriptBlock(dependencies=(name,)), python)
            return {"path": built.path}
        except WorkspaceError as error:
            return {**error.to_json(), "retryable": error.retryable, "left": os.listdir(place)}
print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
"""


class Index:
    """A package index on loopback that answers, or only listens."""

    def __init__(self, shelf: Path, *, answers: bool = True) -> None:
        self.downloads: list[str] = []
        self.asked = threading.Event()
        self._shelf, self._answers = shelf, answers
        self.server = Server(self._handle)

    def environ(self) -> dict[str, str]:
        return {"PIP_INDEX_URL": self.server.url("/simple"), "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}

    def _handle(self, exchange: Exchange) -> None:
        self.asked.set()
        if not self._answers:
            exchange.stall()
        path = exchange.request.path
        if path.endswith(".whl"):
            self.downloads.append(path)
            exchange.answer(200, (self._shelf / path.rpartition("/")[2]).read_bytes())
            return
        names = sorted(file.name for file in self._shelf.glob("beta-2*.whl"))
        page = "".join(f'<a href="/files/{name}">{name}</a>' for name in names)
        exchange.answer(200, f"<html>{page}</html>".encode(), content_type="text/html")


def builder(place: Path, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", BUILDER, str(place), json.dumps(environ), PYTHON, "beta"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_of_several_processes_one_makes_it_and_the_others_wait(place, shelf):
    index = Index(shelf)
    with index.server:
        builders = [builder(place, index.environ()) for _ in range(3)]
        answers = [json.loads(each.communicate(timeout=GUARD_S)[0]) for each in builders]
    paths = {answer["path"] for answer in answers}
    assert len(paths) == 1 and len(index.downloads) == 1 and len(os.listdir(place)) == 1
    assert sorted(os.listdir(Path(*paths).parent)) == sorted([Path(*paths).name, "record.json"])


def test_tasks_of_one_process_do_the_same(pip):
    async def whole() -> set[str]:
        async with asyncio.timeout(GUARD_S), Processes() as processes:
            environments = pip.environments(processes)
            return {
                each.path for each in await asyncio.gather(*(environments.build(block(), PYTHON) for _ in range(4)))
            }

    assert len(asyncio.run(whole())) == 1 and len(pip.left()) == 1


def test_what_was_killed_half_way_is_made_anew(pip, shelf):
    index = Index(shelf, answers=False)
    with index.server:
        killed = builder(pip.place, index.environ())
        assert index.asked.wait(GUARD_S)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
    [info] = list_environments(str(pip.place))
    assert not info.is_whole and info.size_bytes > 0, "the control: it was half-way"
    assert pip.find(block("beta")) is None
    built = pip.build(block("beta"))
    assert said(built, "import beta; print(beta.value)") == "2"
    assert sorted(os.listdir(Path(built.path).parent)) == sorted([Path(built.path).name, "record.json"])
    assert [info.is_whole for info in list_environments(str(pip.place))] == [True]


def test_a_cancelled_build_ends_its_installer_and_leaves_nothing(place, shelf):
    index = Index(shelf, answers=False)

    async def whole() -> None:
        async with asyncio.timeout(GUARD_S), Processes() as processes:
            environments = Lab(place, index.environ()).environments(processes)
            task = asyncio.ensure_future(environments.build(block("beta"), PYTHON))
            await asyncio.to_thread(index.asked.wait, GUARD_S)
            assert at_work(place), "the control"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert os.listdir(place) == [] and not at_work(place)

    with index.server:
        asyncio.run(whole())


def test_a_build_has_an_end(place, shelf):
    index = Index(shelf, answers=False)
    with index.server:
        error = Lab(place, index.environ(), timeout_s=2.0).fails(block("beta"))
    assert error.code == "dependencies-failed" and error.retryable and "longer than 2 s" in error.message
    assert os.listdir(place) == [] and not at_work(place)


def test_waiting_for_somebody_else_has_an_end(place, shelf):
    lab = Lab(place, pip_only(shelf))
    built = lab.build(block())
    shutil.rmtree(built.path)  # so that it has to be made anew, which somebody is about to do
    fd = os.open(place / built.key, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    error = Lab(place, pip_only(shelf), timeout_s=0.1).fails(block())
    os.close(fd)
    assert error.retryable and "Another process" in error.message
    assert lab.build(block()).path != built.path


def at_work(place: Path) -> list[str]:
    """Processes with that place in their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(place).encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


# --- what is believed -------------------------------------------------------------------------------------------------


def _change(record: Path, **fields: Any) -> None:
    record.write_text(json.dumps({**json.loads(record.read_bytes()), **fields}), encoding="utf-8")


def _replace_python(record: Path) -> None:
    [python] = record.parent.glob("env-*/bin/python")
    python.unlink()
    python.symlink_to("/bin/sh")


DAMAGE: list[Callable[[Path], object]] = [
    lambda record: record.write_bytes(record.read_bytes()[:-20]),
    lambda record: record.write_bytes(b"{}"),
    lambda record: record.write_text("[" * 100_000, encoding="utf-8"),
    lambda record: _change(record, digest="sha256:0"),
    lambda record: _change(record, made_for="/other/python"),
    lambda record: _change(record, folder="../../x"),
    lambda record: _change(record, resolved="x"),
    lambda record: _change(record, schema="prowess.environment/2"),
    lambda record: [shutil.rmtree(path) for path in record.parent.glob("env-*")],
    _replace_python,
]


def test_a_record_that_does_not_fit_is_not_believed(pip):
    for number, damage in enumerate(DAMAGE):
        built = pip.build(block())
        assert pip.find(block()) == built, "the control"
        damage(pip.place / built.key / "record.json")
        assert pip.find(block()) is None, number
    assert said(pip.build(block()), "print(1)") == "1"


def test_an_interpreter_that_was_replaced_by_another_version_is_noticed(pip, tmp_path):
    """An update within one version leaves environments as they are; they would not work with another one."""
    minor = subprocess.run(
        [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
    )
    for name, survives in ((f"python{minor.stdout.strip()}", True), ("python3", False)):
        copy = tmp_path / name / "bin" / name
        copy.parent.mkdir(parents=True)
        shutil.copy(os.path.realpath(PYTHON), copy)
        built = pip.build(block(), str(copy))
        assert pip.find(block(), str(copy)) == built
        os.utime(copy, (1, 1))
        assert (pip.find(block(), str(copy)) == built) is survives


def test_environments_are_listed_held_and_removed(pip):
    place = str(pip.place)
    assert list_environments(place) == []
    built = pip.build(block("alpha"))
    [info] = list_environments(place)
    assert (info.key, info.is_whole, info.in_use) == (built.key, True, False)
    assert info.dependencies == ("alpha",) and info.resolved == built.resolved and info.size_bytes > 10_000
    os.utime(pip.place / built.key / "record.json", (1, 1))
    assert list_environments(place)[0].used_at == 1
    assert pip.find(block("alpha")) == built and list_environments(place)[0].used_at > 1, "being found is being used"
    with hold_environment(place, built.key), hold_environment(place, built.key):
        assert list_environments(place)[0].in_use and not remove_environment(place, built.key)
    for key in ("../x", "", ".", "0" * 16 + "-x"):
        assert not remove_environment(place, key)
    assert remove_environment(place, built.key) and pip.left() == [] and pip.find(block("alpha")) is None
    with pytest.raises(WorkspaceError), hold_environment(place, built.key):
        pass


# --- elsewhere --------------------------------------------------------------------------------------------------------


def test_packages_for_a_python_elsewhere(lab, installer):
    there = {"version": "3.10.4", "machine": "x86_64", "libc": "glibc-2.31"}
    wanted = block("only310")
    built = lab.build_target(wanted, **there)
    assert built.python == "" and built.resolved == ("beta==2.0", "only310==1.0")
    assert Path(built.path, "only310.py").is_file() and os.stat(built.path).st_mode & 0o777 == 0o755
    assert lab.environments(Processes()).find_target(wanted, **there) == built == lab.build_target(wanted, **there)
    assert ("conditions" in built.note) == (installer == "pip" and sys.version_info[:2] != (3, 10))
    assert lab.left() == [built.key] and built.key != lab.build(block("beta")).key


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"version": "3.12.0"}, "dependencies-failed"),
        ({"machine": "aarch64"}, "dependencies-failed"),
        ({"libc": "musl-1.2"}, "dependencies-failed"),
        ({"libc": "none"}, "dependencies-failed"),
        ({"version": "3"}, "dependencies-failed"),
        ({"machine": "x/../.."}, "dependencies-failed"),
        ({"version": "3.9.1"}, "python-too-old"),
    ],
)
def test_packages_that_do_not_fit_elsewhere(lab, other, code):
    there = {"version": "3.10.4", "machine": "x86_64", "libc": "glibc-2.31", **other}
    with pytest.raises(WorkspaceError) as failed:
        lab.build_target(block("only310", python=">=3.10"), **there)
    assert failed.value.code == code and not (lab.place.exists() and lab.left())


# --- who installs -----------------------------------------------------------------------------------------------------


def test_without_a_pip_of_ours_that_of_the_interpreter_is_used_and_without_that_its_own(
    place, shelf, tmp_path, not_run
):
    bare = tmp_path / "bare"
    subprocess.run([PYTHON, "-I", "-m", "venv", "--without-pip", str(bare)], check=True)
    python = str(bare / "bin" / "python")
    lab = Lab(place, pip_only(shelf), python=python)
    for module, interpreter in (("pip", PYTHON), ("ensurepip", python)):
        if subprocess.run([interpreter, "-I", "-m", module, "--version"], capture_output=True).returncode != 0:
            not_run(f"installing with the {module} of {interpreter}", "it has none")
            continue
        assert "beta==2.0" in lab.build(block("beta", python=">=3" if module == "pip" else ""), interpreter).resolved
    with pytest.raises(WorkspaceError) as failed:
        lab.build_target(block("beta"), version="3.11", machine="x86_64")
    assert "neither uv nor pip" in failed.value.message


def test_an_installer_gets_what_says_where_packages_come_from_and_nothing_else():
    asked_for = {"HOME": "/h", "PIP_INDEX_URL": "u", "UV_INDEX_ACME_PASSWORD": "p", "https_proxy": "x"}
    others = {"PIP_TARGET": "/etc", "PIP_NO_BINARY": ":all:", "PYTHONPATH": "/evil", "LD_PRELOAD": "x", "API_KEY": "s"}
    passed = installer_environment({**asked_for, **others, "PATH": "/evil"})
    ours = {"PATH", "LANG", "PIP_ROOT_USER_ACTION", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"}
    assert {**passed, **asked_for} == passed and passed.keys() == {*asked_for, *ours} and passed["PATH"] == os.defpath


def test_settings_of_a_person_neither_hinder_an_installer_nor_have_it_build_anything(place, shelf, tmp_path):
    config = tmp_path / "pip.conf"
    links = f"no-index = true\nfind-links = {shelf}\nno-binary = :all:\nrequire-virtualenv = true\n"
    config.write_text(f"[global]\n{links}[install]\nuser = true\n", encoding="utf-8")
    lab = Lab(place, {"PIP_CONFIG_FILE": str(config)})
    assert lab.build(block("alpha")).resolved == ("alpha==1.0", "beta==2.0")
    assert lab.fails(block("source")).code == "dependencies-failed" and not (shelf / "pwned").exists()


def test_uv_is_not_used_when_only_pip_knows_where_packages_come_from(tmp_path):
    nothing = {"PIP_CONFIG_FILE": os.devnull, "HOME": str(tmp_path)}
    assert not pip_knows_better(nothing)
    internal = {**nothing, "PIP_INDEX_URL": "https://internal"}
    assert pip_knows_better(internal) and not pip_knows_better({**internal, "UV_DEFAULT_INDEX": "https://internal"})
    config = tmp_path / ".config"
    (config / "pip").mkdir(parents=True)
    (config / "pip" / "pip.conf").write_text("[global]\nindex-url = https://internal\n", encoding="utf-8")
    assert pip_knows_better({"HOME": str(tmp_path)}) and not pip_knows_better(nothing)
    (config / "uv").mkdir()
    (config / "uv" / "uv.toml").write_text("", encoding="utf-8")
    assert not pip_knows_better({"HOME": str(tmp_path)})


def test_a_uv_that_others_could_have_put_there_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    uv = folder / "uv"
    uv.write_text("#!/bin/sh\n", encoding="utf-8")
    uv.chmod(0o755)
    beside = str(tmp_path / "nowhere" / "python")
    assert find_uv({"PATH": f"relative:{folder}"}, beside) == str(uv)
    for path in (folder, uv):
        path.chmod(0o777)
        assert find_uv({"PATH": str(folder)}, beside) != str(uv)
        path.chmod(0o755)
    monkeypatch.chdir(folder)
    assert find_uv({"PATH": "::."}, beside) != str(uv)


def test_a_password_in_an_address_is_not_passed_on():
    heard: list[str] = []
    lines = InstallerOutput(heard.append, keep=2)
    for data in (b"one\ntwo ht", b"tps://user:secret@host/x\r\n", b"\n", b"thr\xffee"):
        lines.take(data)
    lines.close()
    assert heard == ["one", "two https://…@host/x", "thr\ufffdee"] and lines.kept == heard[-2:]
