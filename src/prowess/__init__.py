"""Prowess, the Agent Skills runtime for Python.

A skill is a folder with a SKILL.md: a name, a description, and instructions for an agent. Prowess finds skills and
shows an agent only their names and descriptions. It loads a body when a task needs it, runs the skill's scripts in an
isolated workspace, and records each step.

    import prowess

    result = prowess.run_sync("Summarise sales.csv", skills="./skills", files=["sales.csv"])   # an agent with skills
    print(result.text)

    kit = prowess.SkillKit("./skills")           # skills for an agent that you already have
    print(kit.instructions, kit.schemas("openai"))

    catalog = prowess.discover("./skills")       # reads folders into a catalog, with every skill found
    print(prowess.render_catalog(catalog))       # the text that a model is shown
    skill = prowess.load(catalog, "pdf")         # the body, the files, the digest
    print(prowess.render_skill(skill))           # the text that a model gets when it loads the skill
    for finding in catalog.findings:             # problems and notes about the library
        print(finding.severity, finding.path, finding.message)

Names are imported on first use, so `import prowess` is cheap. It reads no file and configures nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than the rest of this file
if TYPE_CHECKING:  # the names of _HOME, for type checkers and editors; a test compares both
    from prowess.agent.agent import AgentSpec as AgentSpec
    from prowess.agent.agent import Limits as Limits
    from prowess.agent.agent import Result as Result
    from prowess.core.ports import SkillSource as SkillSource
    from prowess.core.tool_context import ToolContext as ToolContext
    from prowess.core.values import CatalogPlan as CatalogPlan
    from prowess.core.values import Finding as Finding
    from prowess.core.values import Outcome as Outcome
    from prowess.core.values import Question as Question
    from prowess.errors import ConfigError as ConfigError
    from prowess.errors import ProwessError as ProwessError
    from prowess.errors import ResourceNotFound as ResourceNotFound
    from prowess.errors import RunError as RunError
    from prowess.errors import SkillDenied as SkillDenied
    from prowess.errors import SkillInvalid as SkillInvalid
    from prowess.errors import SkillNotFound as SkillNotFound
    from prowess.errors import ToolFailed as ToolFailed
    from prowess.errors import ToolRetry as ToolRetry
    from prowess.models.actions.model import StructuredActions as StructuredActions
    from prowess.models.providers.anthropic import AnthropicModel as AnthropicModel
    from prowess.models.providers.openai import OpenAIModel as OpenAIModel
    from prowess.runtime.agent import Agent as Agent
    from prowess.runtime.agent import AgentSession as AgentSession
    from prowess.runtime.api import run as run
    from prowess.runtime.api import run_sync as run_sync
    from prowess.runtime.api import stream as stream
    from prowess.runtime.arguments import SkillPlace as SkillPlace
    from prowess.runtime.check import Report as Report
    from prowess.runtime.check import check as check
    from prowess.runtime.kit_session import KitOutcome as KitOutcome
    from prowess.runtime.kit_session import KitSession as KitSession
    from prowess.runtime.library import Library as Library
    from prowess.runtime.library import LibraryView as LibraryView
    from prowess.runtime.library import discover as discover
    from prowess.runtime.own_executor import make_executor as make_executor
    from prowess.runtime.runtime import open_runtime as open_runtime
    from prowess.runtime.skill_kit import SkillKit as SkillKit
    from prowess.skills.catalog import Catalog as Catalog
    from prowess.skills.load import load as load
    from prowess.skills.load import read_resource as read_resource
    from prowess.skills.load import select_docs as select_docs
    from prowess.skills.reference import Properties as Properties
    from prowess.skills.reference import find_skill_md as find_skill_md
    from prowess.skills.reference import parse_front_matter as parse_front_matter
    from prowess.skills.reference import read_properties as read_properties
    from prowess.skills.reference import to_prompt as to_prompt
    from prowess.skills.render import plan_catalog as plan_catalog
    from prowess.skills.render import render_catalog as render_catalog
    from prowess.skills.render import render_doc as render_doc
    from prowess.skills.render import render_skill as render_skill
    from prowess.skills.search import search_catalog as search_catalog
    from prowess.skills.skill import Changes as Changes
    from prowess.skills.skill import Entry as Entry
    from prowess.skills.skill import Root as Root
    from prowess.skills.skill import Skill as Skill
    from prowess.stores.artifacts import FolderArtifacts as FolderArtifacts
    from prowess.stores.postgres import PostgresEventLog as PostgresEventLog
    from prowess.stores.sqlite import SqliteEventLog as SqliteEventLog
    from prowess.tools.function import tool as tool
    from prowess.tools.toolset import Joined as Joined
    from prowess.tools.toolset import Only as Only
    from prowess.tools.toolset import Prefixed as Prefixed
    from prowess.tools.toolset import Renamed as Renamed
    from prowess.tools.toolset import Tools as Tools
    from prowess.workspace.run_file import RunFile as RunFile

__version__ = "0.1.0"

# public name -> module that defines it
_HOME = {
    "Agent": "prowess.runtime.agent",
    "AgentSession": "prowess.runtime.agent",
    "AgentSpec": "prowess.agent.agent",
    "AnthropicModel": "prowess.models.providers.anthropic",
    "Catalog": "prowess.skills.catalog",
    "CatalogPlan": "prowess.core.values",
    "Changes": "prowess.skills.skill",
    "ConfigError": "prowess.errors",
    "Entry": "prowess.skills.skill",
    "Finding": "prowess.core.values",
    "FolderArtifacts": "prowess.stores.artifacts",
    "Joined": "prowess.tools.toolset",
    "KitOutcome": "prowess.runtime.kit_session",
    "KitSession": "prowess.runtime.kit_session",
    "Library": "prowess.runtime.library",
    "LibraryView": "prowess.runtime.library",
    "Limits": "prowess.agent.agent",
    "Only": "prowess.tools.toolset",
    "OpenAIModel": "prowess.models.providers.openai",
    "Outcome": "prowess.core.values",
    "PostgresEventLog": "prowess.stores.postgres",
    "Prefixed": "prowess.tools.toolset",
    "Properties": "prowess.skills.reference",
    "ProwessError": "prowess.errors",
    "Question": "prowess.core.values",
    "Renamed": "prowess.tools.toolset",
    "Report": "prowess.runtime.check",
    "ResourceNotFound": "prowess.errors",
    "Result": "prowess.agent.agent",
    "Root": "prowess.skills.skill",
    "RunError": "prowess.errors",
    "RunFile": "prowess.workspace.run_file",
    "Skill": "prowess.skills.skill",
    "SkillDenied": "prowess.errors",
    "SkillInvalid": "prowess.errors",
    "SkillKit": "prowess.runtime.skill_kit",
    "SkillNotFound": "prowess.errors",
    "SkillPlace": "prowess.runtime.arguments",
    "SkillSource": "prowess.core.ports",
    "SqliteEventLog": "prowess.stores.sqlite",
    "StructuredActions": "prowess.models.actions.model",
    "ToolContext": "prowess.core.tool_context",
    "ToolFailed": "prowess.errors",
    "ToolRetry": "prowess.errors",
    "Tools": "prowess.tools.toolset",
    "check": "prowess.runtime.check",
    "discover": "prowess.runtime.library",
    "find_skill_md": "prowess.skills.reference",
    "load": "prowess.skills.load",
    "make_executor": "prowess.runtime.own_executor",
    "open_runtime": "prowess.runtime.runtime",
    "parse_front_matter": "prowess.skills.reference",
    "plan_catalog": "prowess.skills.render",
    "read_properties": "prowess.skills.reference",
    "read_resource": "prowess.skills.load",
    "render_catalog": "prowess.skills.render",
    "render_doc": "prowess.skills.render",
    "render_skill": "prowess.skills.render",
    "run": "prowess.runtime.api",
    "run_sync": "prowess.runtime.api",
    "search_catalog": "prowess.skills.search",
    "select_docs": "prowess.skills.load",
    "stream": "prowess.runtime.api",
    "to_prompt": "prowess.skills.reference",
    "tool": "prowess.tools.function",
}

# A type checker takes the names from the imports above. It would not find the misspelt ones if it saw __getattr__.
if not TYPE_CHECKING:
    __all__ = ["__version__", *sorted(_HOME)]

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'prowess' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
