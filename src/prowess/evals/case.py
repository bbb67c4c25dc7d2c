"""Shapes of eval cases and suites. Unknown keys are kept in `model_extra`, and the reader reports them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from prowess.policy.call_patterns import parse_call_pattern


def _check_filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
_ID = {"type": ["string", "integer"], "minLength": 1}
_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_as_list = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
Text = Annotated[str, AfterValidator(_check_filled), WithJsonSchema(_TEXT)]  # a check for an empty one always passes
Texts = Annotated[tuple[Text, ...], _as_list, WithJsonSchema(_TEXTS)]  # one text, or several


class EvalShape(BaseModel):
    """Base of everything that a case file has."""

    model_config = ConfigDict(extra="allow", frozen=True)


class SkillsExpected(EvalShape):
    """Skills that a run loads and does not load. `at_most` counts different skills."""

    load: Texts = ()
    not_load: Texts = ()
    at_most: Count | None = None


class StepRule(EvalShape):
    """Rule about the calls of a run. It has exactly one of `before`, `requires`, `never` and `count`.

    A pattern is `TOOL`, `TOOL(SKILL)` or `TOOL(SKILL, ARGUMENT=VALUE, ARGUMENT=~'PATTERN')`; `*` is any.

    - before: if both happen, the first call of each pattern comes before those of the next one
    - requires: at least one such call, after a call of `after` if given; `same: skill` compares their skills
    - never: no such call, tried or done
    - count: `min` to `max` such calls
    """

    before: tuple[Text, ...] | None = None
    requires: Text | None = None
    after: Text | None = None
    same: Literal["skill"] | None = None
    never: Texts | None = None
    count: Text | None = None
    min: Count | None = None
    max: Count | None = None

    def find_skills(self) -> set[str]:
        """Returns the names of skills in the patterns, without those with a `*`."""
        texts = (*(self.before or ()), self.requires, self.after, *(self.never or ()), self.count)
        patterns = [parse_call_pattern(text) for text in texts if text]
        names = [each.skill for each in patterns]
        names += [test.value for each in patterns for test in each.arguments if test.name == "skill"]
        return {name.rpartition(":")[2] for name in names if "*" not in name}

    @model_validator(mode="after")
    def _check_one(self) -> StepRule:
        if (self.before, self.requires, self.never, self.count).count(None) != 3:
            raise ValueError("a step has exactly one of before, requires, never and count")
        if self.before is not None and len(self.before) < 2:
            raise ValueError("before needs two patterns or more")
        if self.never == ():
            raise ValueError("never needs a pattern")
        if self.after is not None and self.requires is None:
            raise ValueError("after needs requires")
        if self.same is not None and self.after is None:
            raise ValueError("same needs after")
        if self.count is None and (self.min, self.max) != (None, None):
            raise ValueError("min and max need count")
        if self.count is not None and not self.min and self.max is None:
            raise ValueError("count needs a min above 0, or max")
        return self


class OutputExpected(EvalShape):
    """Checks of the final answer. `json_schema` is a schema, or the path of one; then the answer must be JSON."""

    contains: Texts = ()  # letter case does not matter
    matches: Texts = ()  # regular expressions, searched anywhere
    not_matches: Texts = ()
    equals: Any = None  # a text, or the JSON value of the answer
    json_schema: dict[str, Any] | str | None = None

    @model_validator(mode="after")
    def _check_any(self) -> OutputExpected:
        if not (self.contains or self.matches or self.not_matches) and self.equals is self.json_schema is None:
            raise ValueError("checks nothing")
        return self


class FileExpected(EvalShape):
    """File that a run makes. `path` is a glob below the workspace, such as `out/*.png`."""

    path: Annotated[Text, Field(pattern="[^./]")]
    min_bytes: Count = 1
    max_bytes: Count | None = None
    contains: Texts = ()
    matches: Texts = ()
    json_schema: dict[str, Any] | str | None = None


class Expected(EvalShape):
    """Everything that a run is checked for. An empty `skills.load` and a null `skills` differ: null checks nothing."""

    skills: SkillsExpected | None = None
    steps: tuple[StepRule, ...] = ()
    output: OutputExpected | None = None
    files: tuple[FileExpected, ...] = ()
    judge: Texts = ()  # statements that a model judges


class Constraints(EvalShape):
    """Limits of a run. The run is stopped at a limit, and the check fails."""

    max_calls: Count | None = None
    max_turns: Count | None = None
    max_tokens: Count | None = None
    max_seconds: Positive | None = None
    max_cost: Positive | None = None  # dollars
    forbidden_tools: Texts = ()


class CaseCatalog(EvalShape):
    """Skills that a model can choose from. Without `skills`, all that are installed."""

    skills: Texts | None = None
    distractors: Count = 0  # made-up skills, chosen by `seed`
    seed: int = 0


class CaseDefaults(EvalShape):
    """Values for cases that do not set them."""

    files: Texts | None = None
    catalog: CaseCatalog | None = None
    constraints: Constraints | None = None
    arms: Texts | None = None  # with_skill, without_skill, or old_skill=REF: a git ref, or the path of a pack
    gate: Literal["hard", "soft"] | None = None  # soft: a failure is reported, and does not fail the suite
    repeats: Annotated[int, Field(ge=1, le=1000)] | None = None


class Case(CaseDefaults):
    """Case of a file. `prompt` is one request, `turns` are several of one conversation."""

    id: Annotated[str, Field(min_length=1, coerce_numbers_to_str=True), WithJsonSchema(_ID)]
    prompt: Text | None = None
    turns: Texts = ()
    expect: Expected = Expected()
    script: tuple[dict[str, Any], ...] | str | None = None  # replies for --model scripted, or the path of a script
    canary: bool = False  # runs with every live suite and must pass

    @model_validator(mode="after")
    def _check_prompt(self) -> Case:
        if (self.prompt is None) == (not self.turns):
            raise ValueError("a case has a prompt, or turns")
        return self

    @property
    def requests(self) -> tuple[str, ...]:
        if self.prompt is not None:
            return (self.prompt,)
        return self.turns


class CaseFile(EvalShape):
    """Native case file."""

    version: Literal[1] = 1
    name: str | None = None
    skill: str | None = None  # the skill that the cases are about; arms with and without it
    defaults: CaseDefaults = CaseDefaults()
    cases: Annotated[tuple[Case, ...], Field(json_schema_extra={"minItems": 1})]
