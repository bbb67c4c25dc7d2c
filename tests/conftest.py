"""Every test has a machine of its own: empty home, empty cache, no settings. See not_run.py for what is left out."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from prowess.workspace.skill_trees import remove_tree

# `HYPOTHESIS_PROFILE=ci make test` looks harder. CI does so by itself, with the same examples each time: there, red
# means that the change is wrong, not that the dice fell differently.
_IN_CI = bool(os.environ.get("CI"))
settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile(
    "ci", max_examples=300, deadline=None, derandomize=_IN_CI, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if _IN_CI else "default"))
# For the properties whose examples take longest (they make files or read long text): five took a quarter of the time.
dear = settings(max_examples=min(settings.default.max_examples, 100))

pytest_plugins = ("not_run", "two_machines")
_OURS = ("PROWESS_", "SKILLS_", "TRPC_")
_LONGEST_FIRST = (
    "test_container.py", "test_escapes.py", "test_docs.py", "test_sandbox_executor.py", "test_objects.py",
    "test_dependencies.py", "test_packages.py", "test_local_executor.py", "test_event_log.py", "test_cli_approvals.py",
    "test_cli_chat.py", "test_cli_run.py", "test_demanding_user.py", "test_resume.py", "test_posix.py",
)  # fmt: skip


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; what tests start inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, workspace_dir: str) -> Path:
    """The home of this test. It is beside tmp_path, so that a test sees nothing in there that it did not write."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(_OURS) or name.lower().endswith("_proxy") or name == "XDG_CACHE_HOME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PROWESS_HOME", str(home))
    monkeypatch.setenv("PROWESS_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("PROWESS_WORKSPACE_DIR", workspace_dir)
    return home


@pytest.fixture(scope="session")
def _workspace_dirs() -> Iterator[str]:
    folder = _open_folder()
    yield folder
    remove_tree(folder)


@pytest.fixture
def workspace_dir(_workspace_dirs: str) -> str:
    """Where the user that scripts run as can get to, which pytest's own folders are not."""
    return _open_folder(_workspace_dirs)


@pytest.fixture
def folder() -> Iterator[Path]:
    """As tmp_path, and the user that scripts run as can get to it."""
    path = _open_folder()
    yield Path(path)
    remove_tree(path)


def _open_folder(parent: str | None = None) -> str:
    path = tempfile.mkdtemp(prefix="prowess-test-", dir=parent)
    os.chmod(path, 0o711)
    return path


def make_skill(
    folder: Path,
    *,
    name: str | None = None,
    description: str = "Does one thing. Use when the user asks for it.",
    body: str = "# Steps\n\n1. Do the thing.\n",
    files: Mapping[str, str | bytes] | None = None,
    front: str | None = None,
) -> Path:
    """Write a skill into `folder`, by whose name it goes unless told. `front` is the whole text between the fences."""
    if front is None:
        front = f"name: {name or folder.name}\ndescription: {json.dumps(description, ensure_ascii=False)}\n"
    if front and not front.endswith("\n"):
        front += "\n"
    for path, content in {"SKILL.md": f"---\n{front}---\n\n{body}", **(files or {})}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return folder


@pytest.fixture(name="make_skill")
def _make_skill() -> Callable[..., Path]:
    return make_skill


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than processors, because tests wait for other programs about half as long as they compute."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors + 1, 4)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A worker takes one file after the other: those that take longest come first, so that all end at the same time."""
    if hasattr(config, "workerinput"):
        order = {name: place for place, name in enumerate(_LONGEST_FIRST)}
        items.sort(key=lambda item: order.get(item.path.name, len(order)))
