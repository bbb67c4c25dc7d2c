"""Shows what a model would be shown, with a kit that opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prowess.agent.recorder import Recorder
from prowess.agent.toolkit import Toolkit
from prowess.agent.toolkit_options import KitPolicy
from prowess.core.tool_table import Profile
from prowess.core.values import Lease, SessionKey, ToolSpec
from prowess.runtime.factories import KitOptions, find_style, skill_access
from prowess.runtime.policy_files import RuleFiles, find_surroundings
from prowess.stores.memory import MemoryEventLog
from prowess.tools.session_work import SessionWork, WorkBackend, WorkOptions
from prowess.workspace.executors.none import NoExecutor

if TYPE_CHECKING:
    from prowess.runtime.runtime import Runtime


def preview_kit(runtime: Runtime, options: KitOptions | None = None, *, profile: Profile | None = None) -> Toolkit:
    """Makes a kit that shows what a model would be shown. It opens nothing and cannot be used for calls."""
    options = options or KitOptions()
    config = runtime.config
    key = SessionKey(session="preview")
    lease = Lease(key=key, token=0)
    skills = skill_access(runtime, "")
    work = SessionWork(key, WorkOptions(dir=""), lambda: WorkBackend(executor=NoExecutor()))
    recorder = Recorder(MemoryEventLog(), key, lease, "preview")
    objects = options.objects
    rules = RuleFiles(runtime).current
    policy = KitPolicy(surroundings=find_surroundings(config), rules=rules, objects=objects.policies)
    style = find_style(config, options)
    if profile is not None:
        style = style._replace(profile=profile)
    toolsets = options.toolsets
    return Toolkit(skills=skills, work=work, recorder=recorder, policy=policy, style=style, toolsets=toolsets)


def fixed_prompt(runtime: Runtime, profile: Profile) -> tuple[str, Sequence[ToolSpec]]:
    """Returns the part of every request besides the catalog: the guidance with its headings, and the tools of this
    profile. Both are empty without skills."""
    kit = preview_kit(runtime, profile=profile)
    tools = kit.tools
    names = [spec.name for spec in tools]
    return kit.offer.render_fixed(names), tools
