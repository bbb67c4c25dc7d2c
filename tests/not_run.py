"""Counts what was not run, by cause, at the end of a test run; `make test ARGS=-v` lists all of it.

@pytest.mark.needs("isolation")      a test that some machines cannot run; see `find_lack`
not_run("curl in a box", "no curl")  a part of a test that was left out
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest

from prowess.workspace.isolation.selftest import Proof, probe
from prowess.workspace.process.client import Processes

_NOT_RUN = "not run"  # a property of the report, with which it gets from a worker to whoever sums up
_DESELECTED = pytest.StashKey[int]()
# A cause, and the reasons that come to it; the first that fits counts, and any other reason is a cause of its own.
CAUSES = {
    "no isolation on this machine": r"no isolation|bubblewrap: .*\bLandlock: ",
    "no Landlock": r"Landlock \(ABI|no Landlock",
    "not root": r"not root|only root (can|becomes)|without root|needs root(,? to|$)|not permitted|mounted here",
    "as root": r"^as root",
    "no bubblewrap": r"bubblewrap|bwrap",
    "no container engine": r"container|engine",
    "no PostgreSQL": r"PostgreSQL",
    "refused here without a sandbox, too: it shows nothing": r"shows nothing|not discriminating|to everybody",
    "a limit that this machine cannot hold": r"^it is (absent|best-effort)|cannot hold|control group|whose number",
    "not promised by that executor": r"not promised",
    "a program is not installed": r"not installed|there is no |could not install|it has none|no headers",
    "not in this kernel or processor": r"this kernel|not available on|only x86_64|processor",
    "left out on its page": r"what CI runs itself|on its page",
}


@pytest.fixture
def not_run(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """not_run(what, why): for something inside a test that was left out on purpose."""
    return lambda what, why: request.node.user_properties.append((_NOT_RUN, (what, why)))


@pytest.fixture(scope="session")
def lacks() -> Callable[[str], str]:
    """lacks(what): see `find_lack`."""
    return find_lack


@cache
def find_lack(what: str) -> str:
    """Cause for not running what needs this: `root`, `no root`, `ray` or `isolation`. Empty when the machine has it."""
    if what == "root":
        return "" if os.geteuid() == 0 else "not root"
    if what == "no root":
        return "" if os.geteuid() != 0 else "as root"
    if what == "ray":
        if importlib.util.find_spec("ray") is not None:
            return ""
        if "ray" in os.environ.get("REQUIRE_TIERS", "").split(","):
            pytest.fail("REQUIRE_TIERS names ray, which is not installed")
        return "ray is not installed"
    assert what == "isolation", what
    if any(proof.holds for proof in asyncio.run(_prove())):
        return ""
    if wanted := {"bwrap", "landlock"} & set(os.environ.get("REQUIRE_TIERS", "").split(",")):
        pytest.fail(f"REQUIRE_TIERS names {' and '.join(sorted(wanted))}, and no isolation holds here")
    return "no isolation on this machine"


async def _prove() -> list[Proof]:
    async with Processes() as processes:
        return [await probe(mechanism, processes) for mechanism in ("bwrap+seccomp", "landlock+seccomp")]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(what): not run where find_lack(what) names a cause")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        if cause := find_lack(*mark.args):
            pytest.skip(cause)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    told = getattr(items[0].config, "workeroutput", {})
    told["deselected"] = told.get("deselected", 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker has left out the same ones, and one that crashed has not said so."""
    stash = node.config.stash
    stash[_DESELECTED] = max(stash.get(_DESELECTED, 0), getattr(node, "workeroutput", {}).get("deselected", 0))


class LeftOut(NamedTuple):
    test: str
    what: str
    why: str


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around all others, so that this comes last
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    yield
    left_out = find_left_out(terminalreporter)
    deselected = config.stash.get(_DESELECTED, len(terminalreporter.getreports("deselected")))
    causes = Counter(find_cause(each.why) for each in left_out)
    if deselected:
        causes["left out by the command line"] = deselected
    lines = [f"{number:4}  {cause}" for cause, number in sorted(causes.items(), key=lambda each: (-each[1], each[0]))]
    if config.option.verbose >= 0:  # -v, because pyproject.toml says -q
        lines += sorted(f"{each.what}: {each.why}" for each in left_out)  # with workers they come in any order
    lines += ["speed and memory: make bench", "a real model: make e2e"]
    title = f"NOT RUN: {causes.total()} (each of them: make test ARGS=-v)"
    terminalreporter.write_sep("=", title, yellow=True, bold=True)
    for line in lines:
        terminalreporter.write_line(f"NOT RUN  {line}", yellow=True)


def find_left_out(reporter: pytest.TerminalReporter) -> list[LeftOut]:
    """Tests and parts of tests that were not run, with the reasons they gave."""
    found = [
        LeftOut(report.nodeid, *said)
        for reports in reporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"  # the last of each test, which has all of them
        for name, said in report.user_properties
        if name == _NOT_RUN
    ]
    for report in reporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found.append(LeftOut(report.nodeid, report.nodeid, reason.removeprefix("Skipped: ")))
    for report in reporter.getreports("xfailed"):
        found.append(LeftOut(report.nodeid, report.nodeid, f"expected to fail: {report.wasxfail}"))
    return found


def find_cause(why: str) -> str:
    return next((cause for cause, fits in CAUSES.items() if re.search(fits, why)), why)
