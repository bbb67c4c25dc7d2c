"""skill_list_docs lists the docs of a skill; skill_select_docs selects the docs that the model wants to see.

Listing the docs of a skill does not load it. Selecting docs loads the skill first, with a call of skill_load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import ToolRetry
from prowess.tools.arguments import SelectArguments, SkillArguments, advertise
from prowess.tools.schema import parse_arguments
from prowess.tools.session_work import LoadedSkill
from prowess.tools.skills.loaded import ShelfTool, describe, docs_text, shown_name, shown_names
from prowess.tools.skills.state import ALL

MAX_LISTED = 500


class SkillListDocs(ShelfTool):
    kind = SkillArguments
    spec = ToolSpec(
        name="skill_list_docs",
        description="Names of a skill's docs.",
        parameters=advertise(SkillArguments, "skill"),
        read_only=True,
    )

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(SkillArguments, args, self.spec.name)
        shelf = self._shelf
        loaded = shelf.find_loaded(wanted.skill)
        skill = shelf.look(wanted.skill, loaded, within)
        if skill is None:
            return await shelf.load_first({"skill": wanted.skill}, within)  # its outcome says why it cannot be read
        docs = list(skill.docs)
        lines = [shown_name(doc) for doc in docs[:MAX_LISTED]]
        if len(docs) > MAX_LISTED:
            lines.append(f"and {len(docs) - MAX_LISTED} more: select them by a pattern, such as references/*.md")
        content = "\n".join(lines) or "(no docs)"
        data = describe(skill)
        data["docs"] = docs
        data["selected"] = [] if loaded is None else shelf.selected(loaded)
        return Outcome(status="ok", content=content, data=data)


class SkillSelectDocs(ShelfTool):
    kind = SelectArguments
    spec = ToolSpec(
        name="skill_select_docs",
        description="Choose the docs of a skill to see.",
        parameters=advertise(SelectArguments, "skill", "docs", "include_all_docs", "mode"),
    )

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(SelectArguments, args, self.spec.name)
        shelf = self._shelf
        loaded = shelf.find_loaded(wanted.skill)
        skill = shelf.look(wanted.skill, loaded, within)
        clears = wanted.mode == "clear"
        all_docs = wanted.include_all_docs or ALL in wanted.docs
        if skill is not None and not clears and not all_docs and not wanted.docs:
            asked = f"Say which docs of {shown_name(skill.name)} as `docs`, or include_all_docs, or mode clear."
            raise ToolRetry(f"{asked} {docs_text(skill)}")
        if loaded is not None:
            return self._select(loaded, wanted, all_docs=all_docs)
        if skill is not None and clears:
            content = f"{shown_name(skill.name)} is not loaded: none of its docs is selected."
            return Outcome(status="ok", content=content, data={**describe(skill), "docs": []})
        load = {"skill": wanted.skill, "docs": wanted.docs, "include_all_docs": all_docs}
        return await shelf.load_first(load, within)

    def _select(self, loaded: LoadedSkill, wanted: SelectArguments, *, all_docs: bool) -> Outcome:
        shelf = self._shelf
        skill = loaded.skill
        before = shelf.selected(loaded)
        named = [doc for doc in wanted.docs if doc != ALL]
        docs = shelf.choose(loaded, named)
        if wanted.mode == "add":
            all_docs = all_docs or shelf.is_all(loaded)
            docs = list(dict.fromkeys([*before, *docs]))
        if all_docs:
            docs = list(skill.docs)
        show = shelf.unseen(loaded, docs)
        above = [doc for doc in docs if doc not in show]
        gone = [doc for doc in before if doc not in docs]
        content = f"selected docs of {shown_name(skill.name)}: {shown_names(docs) or 'none'}"
        data = describe(skill)
        data["show"] = show
        data["docs"] = docs
        if above:
            data["above"] = above
            data["stub"] = content
            content += f"; already above: {shown_names(above)}"
        if gone:
            content += f"; no longer selected: {shown_names(gone)}"
        data["no_longer_selected"] = gone
        delta = shelf.delta_docs(loaded, docs, all=all_docs)
        return Outcome(status="ok", content=content, data=data, state_delta=delta)
