"""Documents about skills: finding, checking, showing, loading and trusting them."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from prowess.core.catalog_values import Mode, SkillRef, Source, Status, TokenUse
from prowess.core.values import CatalogPlan
from prowess.runtime.documents.shared import FindingRow, Open, Texts
from prowess.runtime.services.inspect_skill import FixedTokens, SkillTokens
from prowess.skills.render import RowTokens

InPrompt = Literal["shown", "name_only", "searchable", "hidden"]
ChosenProfile = Literal["default", "spec", "portable", "security"]


class SkillControls(TypedDict):
    mode: Mode
    allowed_tools: Texts | None
    run_mode: str
    role: str | None
    user_invocable: bool


class SkillKind(TypedDict):
    """Part of a row that many skills have in common."""

    version: str | None
    digest: str | None
    status: Status
    reasons: Texts
    model_visible: bool
    user_visible: bool
    controls: SkillControls


class SkillRow(SkillKind):
    id: str
    name: str
    description: str
    source: Source
    path: str
    tokens: RowTokens
    finding_codes: Texts


class RootRow(TypedDict):
    source: Source
    path: str
    skills: int
    exists: bool


class ListDocument(TypedDict):
    schema: Literal["prowess.list/1"]
    skills: list[SkillRow]
    findings: list[FindingRow]
    roots: list[RootRow]


class FileRow(TypedDict):
    path: str
    size_bytes: int
    executable: bool


class InspectedSkill(SkillRow):
    qualified_name: str
    declared_name: str
    location: str
    user_invocable: bool
    argument_hint: str | None
    paths: Texts
    requires: dict[str, Texts]
    missing: Texts
    keywords: Texts
    fields: Open
    files: list[FileRow]
    docs: Texts


class BudgetUse(TypedDict):
    budget: int
    used: int


class WhyRow(TypedDict):
    status: Status
    model_visible: bool
    user_visible: bool
    mode: Mode
    in_prompt: InPrompt
    reasons: Texts
    budget: BudgetUse


class InspectDocument(TypedDict):
    schema: Literal["prowess.inspect/1"]
    skill: InspectedSkill
    why: WhyRow
    findings: list[FindingRow]


class ValidatedSkill(TypedDict):
    path: str
    name: str
    valid: bool
    findings: list[FindingRow]


class ValidateDocument(TypedDict):
    schema: Literal["prowess.validate/1"]
    valid: bool
    profile: ChosenProfile
    skills: list[ValidatedSkill]


class PlanDocument(TypedDict):
    schema: Literal["prowess.plan/1"]
    tokens: TokenUse
    shown: Texts
    name_only: Texts
    searchable: Texts
    hidden: Texts
    budget_why: str


class PromptDocument(TypedDict):
    schema: Literal["prowess.prompt/1"]
    format: Literal["xml", "markdown", "json"]
    text: str
    plan: CatalogPlan
    budget_why: str


class LoadDocument(TypedDict):
    schema: Literal["prowess.load/1"]
    skill: SkillRef
    directory: str | None
    docs: Texts
    text: str
    findings: list[FindingRow]


class SearchResult(TypedDict):
    id: str
    name: str
    source: Source
    score: float
    description: str


class SearchResultsDocument(TypedDict):
    schema: Literal["prowess.search/1"]
    query: str
    results: list[SearchResult]
    took_ms: float


class DoctorRoot(RootRow):
    origin: str
    trusted: bool
    statuses: dict[str, int]
    repaired: Texts
    shadowed: dict[str, str]
    skipped: Texts


class DoctorCatalog(TypedDict):
    shown: int
    name_only: int
    over_budget: Texts
    hidden: Texts
    tokens: BudgetUse
    budget_why: str


class DoctorIsolation(TypedDict):
    configured: str
    executor: str | None
    mechanism: str | None
    notes: Texts
    hint: str | None


class ExaminedDocument(TypedDict):
    """Document of `prowess doctor` before anything was run."""

    schema: Literal["prowess.doctor/1"]
    roots: list[DoctorRoot]
    catalog: DoctorCatalog
    findings: list[FindingRow]
    installation: Open


class DoctorDocument(ExaminedDocument):
    isolation: DoctorIsolation
    workspace: NotRequired[Open]


class CatalogCost(TypedDict):
    tokens: int
    budget: int
    shown: int


class TokensDocument(TypedDict):
    schema: Literal["prowess.tokens/1"]
    method: str
    exact: bool
    catalog: CatalogCost
    fixed: dict[str, FixedTokens]
    skills: list[SkillTokens]


class NewDocument(TypedDict):
    schema: Literal["prowess.new/1"]
    name: str
    path: str
    file: str


class InitDocument(TypedDict):
    schema: Literal["prowess.init/1"]
    path: str
    written: Texts
    kept: Texts


class ConfigDocument(TypedDict):
    schema: Literal["prowess.config-show/1"]
    values: Open
    origins: Open
    places: Open
    environment: Open
    trusted: bool
    findings: list[FindingRow]
