"""The arguments of the tools that load, show and search skills, plan and ask. A model reads what `advertise` leaves of
them; the names and shapes of other systems are taken as well.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from prowess.tools.schema import Arguments, by_our_names, render_schema

SKILL_NAMES = {"skill_name": "skill", "name": "skill"}


def advertise(kind: type[Arguments], *fields: str) -> dict[str, Any]:
    """The schema of these fields; the others are accepted, and cost nothing."""
    schema = render_schema(kind)
    properties = {name: schema["properties"][name] for name in fields}
    return {**schema, "properties": properties}


def _listed(value: Any) -> Any:
    """One text is a list of one, and a list may come as JSON text."""
    if isinstance(value, str):
        value = parsed if isinstance(parsed := read_json(value), list) else [value]
    return [item for item in value if item != ""] if isinstance(value, list) else value


def read_json(text: Any) -> Any:
    """What a JSON document says; the value as it is, when it is none."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _said(value: Any) -> Any:
    """Arguments are a text: of a list or an object, its JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _counted(value: Any) -> Any:
    """Zero, as many models send it, means that nothing was asked for."""
    return None if value in (0, "0", "") and value is not False else value


Names = Annotated[list[str], BeforeValidator(_listed)]
Said = Annotated[str | None, BeforeValidator(_said)]
Count = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_counted)]


class SkillArguments(Arguments):
    """About one skill in use: by name or id, or as {name, source}, which becomes its id."""

    ALIASES: ClassVar = SKILL_NAMES

    skill: str = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Many models send every field, and null where they mean nothing."""
        if not isinstance(value, dict):
            return value
        given = {name: item for name, item in by_our_names(cls, value).items() if item is not None}
        several = given.pop("skills", None)
        if several is not None and "skill" not in given:
            given["skill"] = _only_one(several)
        skill = read_json(given.get("skill"))
        if isinstance(skill, dict):
            given |= {"source": skill["source"]} if skill.get("source") else {}
            skill = skill.get("name") or skill.get("id") or ""
        if isinstance(skill, str):
            given["skill"] = skill.strip()
            if "source" in given and "source" not in cls.model_fields:
                given["skill"] = f"{given.pop('source')}:{given['skill']}"
        return given


def _only_one(several: Any) -> Any:
    if isinstance(several, (str, dict)):
        return several
    if not isinstance(several, list) or len(several) != 1:
        raise ValueError("load one skill at a time: one call for each, with `skill`")
    return several[0]


class LoadArguments(SkillArguments):
    ALIASES: ClassVar = {**SKILL_NAMES, "args": "arguments"}

    docs: Names = Field(default_factory=list)
    include_all_docs: bool = False
    source: str | None = None
    arguments: Said = None
    reason: Said = None


class SelectArguments(SkillArguments):
    docs: Names = Field(default_factory=list)
    include_all_docs: bool = False
    mode: Literal["replace", "add", "clear"] = "replace"

    @model_validator(mode="after")
    def _nothing_beside_clear(self) -> SelectArguments:
        if self.mode == "clear" and (self.docs or self.include_all_docs):
            raise ValueError("mode clear takes no docs")
        return self


class ReadArguments(SkillArguments):
    ALIASES: ClassVar = {
        **SKILL_NAMES,
        "relative_path": "path",
        "file_name": "path",
        "file_path": "path",
        "file": "path",
        "offset": "start_line",
        "limit": "num_lines",
    }

    path: str = Field(min_length=1)
    section: str | None = Field(None, description="a heading")
    start_line: Count = None
    num_lines: Count = None
    section_hint: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> ReadArguments:
        if (self.section or "").strip() and self.start_line:
            raise ValueError("say either section or start_line")
        return self


class SearchArguments(Arguments):
    ALIASES: ClassVar = {"q": "query", "max_results": "limit"}

    query: str = Field(min_length=1)
    limit: int = Field(5, ge=1, le=20)


class PlanArguments(Arguments):
    """Read by plan_patch; what is known here is only where the plan and the patch are."""

    ALIASES: ClassVar = {"plan_update": "patch", "todos": "plan"}

    plan: Any = None
    patch: Any = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """A plan or a patch may also stand there by itself, with a remark that nobody needs."""
        if not isinstance(value, dict):
            return value
        given = {name: item for name, item in by_our_names(cls, value).items() if name != "explanation"}
        for name, marks in (("plan", _OF_PLAN), ("patch", _OF_PATCH)):
            if given and given.keys() <= marks and given.keys() & {*marks - _OF_BOTH}:
                return {name: given}
        read = {name: read_json(item) for name, item in given.items()}
        if not any(read.get(name) for name in ("plan", "patch")) and not read.keys() - {"plan", "patch"}:
            raise ValueError("give a plan {goal, steps}, or a patch {set, add, remove, order}")
        return read


_OF_BOTH = frozenset({"goal", "assumptions", "constraints"})
_OF_PLAN = _OF_BOTH | {"steps"}
_OF_PATCH = _OF_BOTH | {"set", "add", "remove", "order"}


class AskArguments(Arguments):
    ALIASES: ClassVar = {"options": "choices", "prompt": "question", "text": "question"}

    question: str = Field(min_length=1)
    choices: Names = Field(default_factory=list, max_length=50)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """A list of one question is that question; of an option that has more to say, its label is the choice."""
        if not isinstance(value, dict):
            return value
        given = {name: item for name, item in value.items() if item is not None}
        several = given.pop("questions", None)
        if several is not None and "question" not in given:
            if not isinstance(several, list) or len(several) != 1:
                raise ValueError("ask one question at a time")
            asked = several[0] if isinstance(several[0], dict) else {"question": several[0]}
            given = {name: asked[name] for name in ("question", "options", "choices") if name in asked}
        given = by_our_names(cls, given)
        if isinstance(given.get("choices"), list):
            given["choices"] = [
                item.get("label", item.get("text")) if isinstance(item, dict) else item for item in given["choices"]
            ]
        return given
