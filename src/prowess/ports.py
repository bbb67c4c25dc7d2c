"""Protocols that models, stores, executors, policies and approvers implement, and the values that they exchange.

Values of workspaces, and functions that link the events of a log, are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prowess.core.ports import (
    Approver,
    ArtifactStore,
    Asker,
    CallGrant,
    CapabilityRequest,
    ClosableModel,
    Content,
    EventLog,
    Executor,
    ExecutorSetup,
    FiniteModel,
    Interactive,
    Model,
    Policy,
    Program,
    Readable,
    RecordedModel,
    Redaction,
    SecretProvider,
    Shortened,
    ShownSkill,
    SkillReader,
    SkillsInRequest,
    SkillSource,
    Toolset,
    Workspace,
)
from prowess.core.values import (
    Artifact,
    ArtifactRef,
    CatalogPlan,
    ChainHead,
    Decision,
    Finding,
    Isolation,
    IsolationKind,
    Lease,
    LimitStatus,
    Located,
    Message,
    Mode,
    ModelInfo,
    OrphanedEvents,
    Outcome,
    Part,
    Plan,
    Question,
    Role,
    SessionInfo,
    SessionKey,
    Severity,
    SkillRef,
    Source,
    Spawn,
    Status,
    Step,
    StepStatus,
    TokenUse,
    ToolCall,
    ToolSpec,
    Trigger,
    Usage,
    Verdict,
)

if TYPE_CHECKING:
    from prowess.records.chain import (
        ChainReport,
        check_fence,
        parse_expiry,
        seal,
        unknown_session,
        verify_chain,
    )
    from prowess.workspace.layout import Layout
    from prowess.workspace.process.command import Ended, NotStarted
    from prowess.workspace.session_folder import Place
    from prowess.workspace.skill_trees import Tree

__all__ = [
    "Approver",
    "Artifact",
    "ArtifactRef",
    "ArtifactStore",
    "Asker",
    "CallGrant",
    "CapabilityRequest",
    "CatalogPlan",
    "ChainHead",
    "ChainReport",
    "ClosableModel",
    "Content",
    "Decision",
    "Ended",
    "EventLog",
    "Executor",
    "ExecutorSetup",
    "Finding",
    "FiniteModel",
    "Interactive",
    "Isolation",
    "IsolationKind",
    "Layout",
    "Lease",
    "LimitStatus",
    "Located",
    "Message",
    "Mode",
    "Model",
    "ModelInfo",
    "NotStarted",
    "OrphanedEvents",
    "Outcome",
    "Part",
    "Place",
    "Plan",
    "Policy",
    "Program",
    "Question",
    "Readable",
    "RecordedModel",
    "Redaction",
    "Role",
    "SecretProvider",
    "SessionInfo",
    "SessionKey",
    "Severity",
    "Shortened",
    "ShownSkill",
    "SkillReader",
    "SkillRef",
    "SkillSource",
    "SkillsInRequest",
    "Source",
    "Spawn",
    "Status",
    "Step",
    "StepStatus",
    "TokenUse",
    "ToolCall",
    "ToolSpec",
    "Toolset",
    "Tree",
    "Trigger",
    "Usage",
    "Verdict",
    "Workspace",
    "check_fence",
    "parse_expiry",
    "seal",
    "unknown_session",
    "verify_chain",
]

# name -> module that defines it, above the protocols
_HOME = {
    "ChainReport": "prowess.records.chain",
    "Ended": "prowess.workspace.process.command",
    "Layout": "prowess.workspace.layout",
    "NotStarted": "prowess.workspace.process.command",
    "Place": "prowess.workspace.session_folder",
    "Tree": "prowess.workspace.skill_trees",
    "check_fence": "prowess.records.chain",
    "parse_expiry": "prowess.records.chain",
    "seal": "prowess.records.chain",
    "unknown_session": "prowess.records.chain",
    "verify_chain": "prowess.records.chain",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'prowess.ports' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
