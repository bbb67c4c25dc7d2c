"""Shares the suite between two machines: all tests run on a bare one (tools/bare.sh); a prepared one, with bubblewrap,
containers, PostgreSQL and root, runs what the bare one could not, and again whatever depends on isolation or root.

--write-not-run=FILE   writes the names of tests of which something was not run
--prepared=FILE        runs these, and the modules below; with `=`, because pytest takes a file that is there for a test
"""

from __future__ import annotations

from pathlib import Path

import pytest

from not_run import find_left_out

AGAIN = (
    "escapes", "hostile", "test_bwrap", "test_demo", "test_docs", "test_escapes", "test_exec", "test_interactive",
    "test_kernel", "test_local_executor", "test_managed_policy", "test_offline_skills", "test_permissions_kit",
    "test_place", "test_sandbox_executor", "test_skill_run", "test_workspace_files",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("two machines")
    group.addoption("--write-not-run", metavar="FILE", help="write the names of tests of which something was not run")
    group.addoption("--prepared", metavar="FILE", help="run the tests that FILE names, and those of isolation")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (file := config.option.prepared) is None:
        return
    wanted = set(Path(file).read_text(encoding="utf-8").splitlines())
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (chosen if item.nodeid in wanted or _is_again(item.path) else left_out).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=left_out)


def _is_again(path: Path) -> bool:
    return path.stem in AGAIN or path.parent.name in AGAIN


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.write_not_run is not None:
        names = {each.test for each in find_left_out(terminalreporter)}
        Path(config.option.write_not_run).write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")
