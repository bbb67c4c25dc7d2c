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
if TYPE_CHECKING:
    from typing import Any

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
    "Library": "prowess.skills.discover",
    "Limits": "prowess.agent.agent",
    "Only": "prowess.tools.toolset",
    "OpenAIModel": "prowess.models.providers.openai",
    "Outcome": "prowess.core.values",
    "PostgresEventLog": "prowess.stores.postgres",
    "Prefixed": "prowess.tools.toolset",
    "Properties": "prowess.skills.reference",
    "ProwessError": "prowess.errors",
    "Renamed": "prowess.tools.toolset",
    "Report": "prowess.runtime.check",
    "ResourceNotFound": "prowess.errors",
    "Result": "prowess.agent.agent",
    "Root": "prowess.skills.skill",
    "Skill": "prowess.skills.skill",
    "SkillDenied": "prowess.errors",
    "SkillInvalid": "prowess.errors",
    "SkillKit": "prowess.runtime.skill_kit",
    "SkillNotFound": "prowess.errors",
    "SkillSource": "prowess.core.ports",
    "SqliteEventLog": "prowess.stores.sqlite",
    "StructuredActions": "prowess.models.actions.model",
    "Tools": "prowess.tools.toolset",
    "check": "prowess.runtime.check",
    "discover": "prowess.skills.discover",
    "find_skill_md": "prowess.skills.reference",
    "load": "prowess.skills.load",
    "make_executor": "prowess.runtime.own_executor",
    "open_runtime": "prowess.runtime.runtime",
    "search_catalog": "prowess.skills.search",
    "parse_front_matter": "prowess.skills.reference",
    "plan_catalog": "prowess.skills.render",
    "read_properties": "prowess.skills.reference",
    "read_resource": "prowess.skills.load",
    "render_catalog": "prowess.skills.render",
    "render_doc": "prowess.skills.render",
    "render_skill": "prowess.skills.render",
    "run": "prowess.runtime.api",
    "run_sync": "prowess.runtime.api",
    "select_docs": "prowess.skills.load",
    "stream": "prowess.runtime.api",
    "to_prompt": "prowess.skills.reference",
    "tool": "prowess.tools.function",
}

__all__ = ["__version__", *sorted(_HOME)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'prowess' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
