"""Every test has a machine of its own: empty home, empty cache, no settings. What was not run is said at the end."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from prowess.workspace.staging import remove_tree

# `HYPOTHESIS_PROFILE=ci make test` looks harder. CI does so by itself, with the same examples each time: there, red
# means that the change is wrong, not that the dice fell differently.
_IN_CI = bool(os.environ.get("CI"))
settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile(
    "ci", max_examples=300, deadline=None, derandomize=_IN_CI, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if _IN_CI else "default"))

_OURS = ("PROWESS_", "SKILLS_", "TRPC_")
_NOT_RUN = pytest.StashKey[list[tuple[str, str]]]()


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
def workspace_dir() -> Iterator[str]:
    """Where the user that scripts run as can get to, which pytest's own folders are not."""
    folder = tempfile.mkdtemp(prefix="prowess-test-")
    os.chmod(folder, 0o711)
    yield folder
    remove_tree(folder)


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


@pytest.fixture
def not_run(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """not_run(what, why): for something inside a test that was left out on purpose."""
    return lambda what, why: request.config.stash[_NOT_RUN].append((what, why))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_NOT_RUN] = []


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around all others, so that this comes last
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    yield
    left_out = list(config.stash[_NOT_RUN])
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        left_out.append((report.nodeid, reason.removeprefix("Skipped: ")))
    left_out += [
        (report.nodeid, f"expected to fail: {report.wasxfail}") for report in terminalreporter.getreports("xfailed")
    ]
    if deselected := len(terminalreporter.getreports("deselected")):
        left_out.append((f"{deselected} tests", "left out by the command line"))
    left_out.append(("speed and memory", "make bench"))
    left_out.append(("a real model", "make e2e"))
    terminalreporter.write_sep("=", f"NOT RUN: {len(left_out)}", yellow=True, bold=True)
    for what, why in left_out:
        terminalreporter.write_line(f"NOT RUN  {what}: {why}", yellow=True)
