"""Defines every setting: name, type, default and meaning. docs/configuration-reference.md is generated from this
module.

None means not set; the text of the setting says what happens then. The sections are named tuples, because `prowess
list` reads them at every start and a dataclass takes five times as long to make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_type_hints

from prowess._internal.plugins import PluginTable
from prowess.core.catalog_values import Mode
from prowess.runtime.config_file import Schema, render_type

if TYPE_CHECKING:
    from prowess.core.ports import Executor, ExecutorSetup

# An executor has a line here. Other packages add theirs in the entry-point group.
EXECUTORS: PluginTable[Callable[[ExecutorSetup], Executor]] = PluginTable(
    "prowess.workspaces",
    "executor",
    {
        "auto": "prowess.workspace.executors.auto:make_auto",
        "local": "prowess.workspace.executors.local:make_local",
        "sandbox": "prowess.workspace.executors.sandbox:make_sandbox",
        "container": "prowess.workspace.container.executor:make_container",
        "none": "prowess.workspace.executors.none:make_none",
    },
)


class ModelConfig(NamedTuple):
    provider: str | None = None
    params: dict[str, Any] = {}


class ExecutionConfig(NamedTuple):
    require_approval_for: tuple[str, ...] = ()


class SecurityConfig(NamedTuple):
    max_skill_body_lines: int | None = None
    block_angle_brackets_in_frontmatter: bool = False


class SkillsConfig(NamedTuple):
    load_mode: Literal["turn", "once", "session"] = "turn"
    placement: Literal["tool_result", "system"] = "tool_result"
    max_loaded: int | None = None
    max_bodies_per_turn: int = 2
    budget: int | None = None
    modes: dict[str, Mode] = {}
    nested: bool = False
    require_load: bool = False
    dependencies: dict[str, tuple[str, ...]] = {}
    catalog_format: Literal["xml", "markdown", "json"] | None = None


class WorkspaceConfig(NamedTuple):
    executor: Annotated[str, EXECUTORS] = "auto"
    host_roots: tuple[str, ...] = ()
    run_as: str | int | None = None
    limits: dict[str, float] = {}
    inline_bytes: int = 4 << 20
    require_isolation: bool = False
    require: tuple[str, ...] = ()
    network_allow: tuple[str, ...] = ()
    commands_allow: tuple[str, ...] = ()
    commands_deny: tuple[str, ...] = ()
    dir: str | None = None
    image: str | None = None
    python: str | None = None


class ToolsConfig(NamedTuple):
    profile: Literal["default", "lean", "full"] = "default"
    enable: tuple[str, ...] = ()
    code_blocks: bool = False


class LimitsConfig(NamedTuple):
    turns: Annotated[int, 1] = 25
    calls: int = 60
    scripts: int = 30
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None


class RecordConfig(NamedTuple):
    copies: bool = True


class Config(NamedTuple):
    skill_roots: tuple[str, ...] | None = None
    model: ModelConfig = ModelConfig()
    execution: ExecutionConfig = ExecutionConfig()
    security: SecurityConfig = SecurityConfig()
    skills: SkillsConfig = SkillsConfig()
    workspace: WorkspaceConfig = WorkspaceConfig()
    tools: ToolsConfig = ToolsConfig()
    limits: LimitsConfig = LimitsConfig()
    prices: dict[str, dict[str, float]] = {}
    secrets: dict[str, str] = {}
    redact: tuple[str, ...] = ()
    guidance: str | None = None
    mcp_servers: dict[str, dict[str, Any]] = {}
    store: str | None = None
    artifacts: str | None = None
    record: RecordConfig = RecordConfig()


DOCS = {
    "model.provider": "The model, as `--model` takes it (`openai:NAME`, `anthropic:NAME`, `offline`, …); unset: `offline`.",
    "model.params": "Passed to the provider (temperature, base URL, …; for `mock`: `script`, a list of replies, or `file`).",
    "execution.require_approval_for": "Tools that always ask, even if something else allows them.",
    "security.max_skill_body_lines": "Refuse a skill with a longer body; unset: warn over 500 lines.",
    "security.block_angle_brackets_in_frontmatter": "Refuse a skill with `<` or `>` in its front matter, instead of warning.",
    "skills.load_mode": "How long a loaded skill stays in view.",
    "skills.placement": "Where a loaded body stands in the request.",
    "skills.max_loaded": "Skills in view at one time; the least recently used one leaves first. Unset: no bound.",
    "skills.max_bodies_per_turn": "Bodies that may be loaded in one turn.",
    "skills.budget": "Tokens for the catalog; unset: 2 % of the model's window (of 200,000 where that is not known), at least 400.",
    "skills.modes": "Skill name or pattern -> how the model is offered it.",
    "skills.nested": "Also load skills that lie below another skill, as skills of their own.",
    "skills.require_load": "Refuse `skill_run`, `skill_exec` and `skill_read` of a skill that is not loaded, instead of loading it first.",
    "skills.dependencies": 'Skill name or pattern -> Python packages that its runs have, installed as wheels (`pdf = ["pypdf>=5"]`).',
    "skills.catalog_format": "Form of the catalog in the prompt; unset: `markdown` in runs, `xml` in a `SkillKit`.",
    "workspace.executor": "Executor of a skill's scripts; `none`: no script runs, and the model is offered no tool for it. Installed packages add more (entry points `prowess.workspaces`).",
    "workspace.host_roots": "Folders that the model may name with `host://`.",
    "workspace.run_as": "User name or id that scripts run as when Prowess is root; unset: a dedicated, unprivileged one.",
    "workspace.limits": "Limit of one script run (`memory`, `processes`, `cpu`, `open_files`, `file_size`, `tmp`, `disk`) -> its value in bytes, seconds or a number; 0: none.",
    "workspace.inline_bytes": "Most bytes of text from files in one result, and so in the record, for any call; the rest is only named.",
    "workspace.require_isolation": "Refuse to run anything without real isolation.",
    "workspace.require": "Limits that must be enforced; where one is not, a run is refused.",
    "workspace.network_allow": "Hosts that a run may reach; empty: none.",
    "workspace.commands_allow": "The only programs that may run, by name; empty: no such list.",
    "workspace.commands_deny": "Programs that may never run, by name; wins over `commands_allow`.",
    "workspace.image": "The image of containers; unset: `prowess-box`, which `prowess workspaces build-image` makes.",
    "workspace.python": "The Python for scripts: an interpreter or the folder of a venv; unset: the system's. In a container it is the image's.",
    "workspace.dir": "Where workspaces live; unset: the cache folder, as root `/var/lib/prowess`.",
    "tools.profile": "Which skill tools the model is offered.",
    "tools.enable": "Tools that are offered besides those of the profile (`update_plan`, `grep`, …), and tools that are off until named here (`delete_file`, `network_request`; `write_file` outside of the workspace).",
    "tools.code_blocks": "Run fenced code of an answer, through the same policy as any call.",
    "limits.turns": "Model turns of one run.",
    "limits.calls": "Tool calls of one run.",
    "limits.scripts": "Script runs of one run.",
    "limits.tokens": "Tokens of one run; unset: no bound.",
    "limits.seconds": "Seconds of one run; unset: no bound.",
    "limits.cost": "Money of one run, in the currency of `prices`; unset: no bound.",
    "skill_roots": "Folders and URLs to look for skills in, in this order; unset: the project's, the user's and our own.",
    "prices": "Model -> price of a million tokens (`input`, `cached`, `cache_written`, `output`).",
    "secrets": "Secret that a skill may declare -> where its value is (`env:NAME`, `file:PATH`).",
    "redact": "Regular expressions; what matches is never shown to a model or recorded.",
    "guidance": "Replaces the guidance that the model is shown; an empty text removes it; unset: ours.",
    "mcp_servers": "Name -> MCP server to take skills and tools from.",
    "store": "Where sessions are kept: a path, `sqlite:///PATH`, `postgresql://…`, `memory:`, or an address of an installed package (entry points `prowess.stores`); unset: SQLite in your state folder.",
    "artifacts": "Where artifacts are kept: a path, `s3://bucket/prefix`, `gs://…`, `az://…`, `memory:`, or `none`: nothing is kept; unset: your state folder, whatever `store` is.",
    "record.copies": "Write a copy of each run that has ended into `.agent/runs/`, in a project that you made with `prowess init` or that you trust.",
}

# Settings that have an effect. The others are only read and checked; add a setting here when it gets its effect.
IN_USE = (
    "skill_roots",
    "model.provider",
    "model.params",
    "skills.load_mode",
    "skills.placement",
    "skills.max_loaded",
    "skills.max_bodies_per_turn",
    "tools.profile",
    "tools.enable",
    "tools.code_blocks",
    "limits.turns",
    "limits.calls",
    "limits.scripts",
    "limits.tokens",
    "limits.seconds",
    "limits.cost",
    "prices",
    "guidance",
    "execution.require_approval_for",
    "workspace.executor",
    "workspace.host_roots",
    "workspace.run_as",
    "workspace.limits",
    "workspace.inline_bytes",
    "workspace.require_isolation",
    "workspace.require",
    "workspace.network_allow",
    "workspace.commands_allow",
    "workspace.commands_deny",
    "workspace.dir",
    "workspace.image",
    "workspace.python",
    "secrets",
    "redact",
    "store",
    "artifacts",
    "record.copies",
    "skills.budget",
    "skills.modes",
    "skills.nested",
    "skills.require_load",
    "skills.dependencies",
    "skills.catalog_format",
    "security.max_skill_body_lines",
    "security.block_angle_brackets_in_frontmatter",
)
PATHS = (
    "skill_roots",
    "workspace.host_roots",
    "workspace.dir",
    "workspace.python",
)  # values become absolute when they are read

_SECTIONS: dict[str, Any] = {
    name: type(default) for name, default in Config._field_defaults.items() if hasattr(default, "_fields")
}


def describe_fields() -> list[tuple[str, str, Any, str]]:
    """Returns (dotted name, type in words, default, doc) of every setting."""
    schema = load_schema()
    described = []
    for name, default in default_values().items():
        section, _, last = name.rpartition(".")
        fields = schema[section] if section else schema
        kind = render_type(fields[last])
        described.append((name, kind, default, DOCS[name]))
    return described


def default_values() -> dict[str, Any]:
    """Returns dotted name -> default."""
    return dict(_defaults())


def build_config(values: Mapping[str, Any]) -> Config:
    """Builds the configuration from dotted names and values, complete and checked."""
    parts: dict[str, Any] = {name: {} for name in _SECTIONS}
    for name, value in values.items():
        section, _, last = name.rpartition(".")
        fields = parts[section] if section else parts
        fields[last] = value
    for name, make in _SECTIONS.items():
        parts[name] = make(**parts[name])
    return Config(**parts)


@cache
def load_schema() -> Schema:
    """Returns name -> type, or section. Called only when there is something to check, because it takes time."""
    schema: dict[str, Any] = get_type_hints(Config)
    for name, section in _SECTIONS.items():
        schema[name] = get_type_hints(section, include_extras=True)
    return schema


def _defaults() -> Iterator[tuple[str, Any]]:
    for name, default in Config._field_defaults.items():
        section = _SECTIONS.get(name)
        if section is None:
            yield name, _fresh(default)
            continue
        for field, value in section._field_defaults.items():
            yield f"{name}.{field}", _fresh(value)


def _fresh(default: Any) -> Any:
    """Copies a table, because its owner fills it."""
    return dict(default) if isinstance(default, dict) else default
