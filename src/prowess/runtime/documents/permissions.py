"""Documents about trust, approvals and policy."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from prowess.core.catalog_values import Source, Status
from prowess.core.events import Answer
from prowess.core.isolation import IsolationRecord
from prowess.core.values import Verdict
from prowess.policy.trust import TrustedFile, TrustedFolder, TrustedSkill, TrustedUrl
from prowess.runtime.documents.shared import ErrorRow, FindingRow, Open, Texts


class NewSettingRow(TypedDict):
    name: str
    value: Any


class NewRuleRow(TypedDict):
    rule: int
    line: int | None
    verdict: Verdict
    text: str


class TrustGivenDocument(TypedDict):
    schema: Literal["prowess.trust-given/1"]
    kind: Literal["folder", "url"]
    place: str
    digest: str | None
    skills: Texts
    settings: list[NewSettingRow]
    rules: list[NewRuleRow]
    problems: Texts


class TrustRevokedDocument(TypedDict):
    schema: Literal["prowess.trust-revoked/1"]
    place: str


class TrustParts(TypedDict):
    folders: list[TrustedFolder]
    files: list[TrustedFile]
    urls: list[TrustedUrl]


class TrustListDocument(TrustParts):
    schema: Literal["prowess.trust-list/1"]
    skills: list[TrustedSkill]
    findings: list[FindingRow]


class StoredTrust(TrustParts):
    """File of trust. A release that installed no skills wrote no list of them."""

    schema: Literal["prowess.trust/1"]
    skills: NotRequired[list[TrustedSkill]]


class _Approved(TypedDict):
    skill: str
    digest: str
    capability: str
    at: str
    by: str


class Revoked(_Approved):
    tenant: str
    user: str


class StoredApproval(_Approved):
    files: dict[str, str]
    tenant: NotRequired[str]
    user: NotRequired[str]


class StoredApprovals(TypedDict):
    schema: Literal["prowess.approvals/1"]
    approvals: list[StoredApproval]


class ApprovalRow(Revoked):
    number: int
    files: int


class QuestionRow(TypedDict):
    """Question that waits. `about` is what the person who is asked has to know: risk, source, isolation, changes."""

    session: str
    tenant: str
    app: str
    user: str
    run: str
    call_id: str
    token: str
    tool: str
    capability: str
    skill: str | None
    args: Open
    why: str
    about: Open
    since: str
    answer: Answer | None
    of_child: bool
    state: Literal["waiting", "asking", "cut-off"]


class WaitingRow(QuestionRow):
    to_answer: str | None
    to_resume: str | None


class ApprovalsListDocument(TypedDict):
    schema: Literal["prowess.approvals-list/1"]
    store: str
    waiting: list[WaitingRow]
    approvals: list[ApprovalRow]
    damaged: Texts
    findings: list[FindingRow]


class ApprovalAnsweredDocument(TypedDict):
    schema: Literal["prowess.approval-answered/1"]
    session: str
    run: str
    call_id: str
    capability: str
    answer: Answer
    waiting: int
    to_resume: str


class ApprovalGrantedDocument(TypedDict):
    schema: Literal["prowess.approval-granted/1"]
    skill: str
    digest: str
    allowed_tools: Texts


class ApprovalsRevokedDocument(TypedDict):
    schema: Literal["prowess.approvals-revoked/1"]
    revoked: list[Revoked]


class PolicyStep(TypedDict):
    """Step of a decision. It has no verdict when it left the decision to the next one."""

    by: Literal["configuration", "allowed-tools", "policy", "grant", "table", "require_approval_for"]
    path: str | None
    tightens: bool
    verdict: Verdict | None
    rule: str | None
    why: str | None
    looked_at: Texts
    decided: bool


class PolicySkill(TypedDict):
    id: str
    source: Source
    trusted: bool
    status: Status


class PolicyPlace(TypedDict):
    path: str
    line: int | None
    number: int


class PolicyLoad(TypedDict):
    skill: str
    verdict: Verdict
    rule: str
    why: str


class PolicyCheckDocument(TypedDict):
    """Decision about a call that nobody made."""

    schema: Literal["prowess.policy-check/1"]
    tool: str
    called: str
    kind: Literal["call", "capability"]
    args: Open
    skill: PolicySkill | None
    risk: Literal["low", "medium", "high", "unknown"]
    verdict: Verdict
    effective: Verdict
    rule: str
    why: str
    place: PolicyPlace | None
    steps: list[PolicyStep]
    loads: PolicyLoad | None
    limits: Open
    isolation: IsolationRecord | None
    isolation_error: ErrorRow | None
    change: Texts
    notes: Texts
