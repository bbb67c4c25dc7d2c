"""skill_list_docs lists the docs of a skill; skill_select_docs selects the docs that the model wants to see.

Listing the docs of a skill does not load it. Selecting docs loads the skill first, with a call of skill_load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import ToolRetry
from prowess.skills.render import neutralise
from prowess.tools.arguments import SelectArguments, SkillArguments, advertise
from prowess.tools.schema import parse_arguments
from prowess.tools.session_work import LoadedSkill
from prowess.tools.skills.loaded import ShelfTool, describe, shown_name, shown_names
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
        ref = parse_arguments(SkillArguments, args, self.spec.name).skill
        loaded = self._shelf.find_loaded(ref)
        skill = self._shelf.library.look(ref, within.trigger) if loaded is None else loaded.skill
        if skill is None:
            return await self._shelf.load_first({"skill": ref}, within)  # its outcome says why the skill cannot be read
        docs = skill.docs
        content = neutralise(json.dumps(docs[:MAX_LISTED], ensure_ascii=False))
        if len(docs) > MAX_LISTED:
            content += f"\nand {len(docs) - MAX_LISTED} more: select them by a pattern, such as references/*.md"
        selected = [] if loaded is None else self._shelf.selected(loaded)
        return Outcome(status="ok", content=content, data={**describe(skill), "docs": list(docs), "selected": selected})


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
        skill = shelf.library.look(wanted.skill, within.trigger) if loaded is None else loaded.skill
        all_docs = wanted.include_all_docs or ALL in wanted.docs
        if skill is not None and wanted.mode != "clear" and not all_docs and not wanted.docs:
            real = f"Its docs: {shown_names(skill.docs)}." if skill.docs else "It has no docs."
            asked = f"Say which docs of {shown_name(skill.name)} as `docs`, or include_all_docs, or mode clear."
            raise ToolRetry(f"{asked} {real}")
        if loaded is None:
            if skill is not None and wanted.mode == "clear":
                content = f"{shown_name(skill.name)} is not loaded: none of its docs is selected."
                return Outcome(status="ok", content=content, data={**describe(skill), "docs": []})
            return await shelf.load_first(
                {"skill": wanted.skill, "docs": wanted.docs, "include_all_docs": all_docs}, within
            )
        return self._select(loaded, wanted, all_docs=all_docs)

    def _select(self, loaded: LoadedSkill, wanted: SelectArguments, *, all_docs: bool) -> Outcome:
        shelf = self._shelf
        name, before = shown_name(loaded.skill.name), shelf.selected(loaded)
        added = shelf.choose(loaded, (doc for doc in wanted.docs if doc != ALL))
        if wanted.mode == "add":
            all_docs = all_docs or shelf.is_all(loaded)
            added = list(dict.fromkeys([*before, *added]))
        docs = list(loaded.skill.docs) if all_docs else added
        show = shelf.unseen(loaded, docs)
        data: dict[str, Any] = {**describe(loaded.skill), "show": show, "docs": docs}
        content = f"selected docs of {name}: {shown_names(docs) or 'none'}"
        if above := [doc for doc in docs if doc not in show]:
            data |= {"above": above, "stub": content}
            content += f"; already above: {shown_names(above)}"
        if gone := [doc for doc in before if doc not in docs]:
            content += f"; no longer selected: {shown_names(gone)}"
        return Outcome(
            status="ok",
            content=content,
            data={**data, "no_longer_selected": gone},
            state_delta=shelf.delta_docs(loaded, docs, all=all_docs),
        )
