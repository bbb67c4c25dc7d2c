"""Setup of our own executors: the settings that every executor gets, and the processes that ours share."""

from __future__ import annotations

from prowess._internal.light_dataclass import dataclass
from prowess.core.ports import ExecutorSetup
from prowess.workspace.isolation.selftest import DEFAULT_UID
from prowess.workspace.limits import RunLimits, parse_limits
from prowess.workspace.process.client import Processes


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnExecutorSetup(ExecutorSetup):
    """Setup of an executor of ours, with the processes that it starts."""

    processes: Processes

    @property
    def run_limits(self) -> RunLimits:
        return parse_limits(self.limits)

    @property
    def run_as(self) -> int:
        """User of scripts in a sandbox or container, where they never run as root."""
        return DEFAULT_UID if self.uid is None else self.uid
