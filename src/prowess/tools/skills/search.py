"""skill_search: finds skills that the model may see, by their purpose, and returns their full descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prowess._internal.text import strip_invisible
from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import SkillNotFound, ToolRetry
from prowess.skills.render import neutralise
from prowess.skills.skill import Entry
from prowess.tools.arguments import SearchArguments, advertise
from prowess.tools.schema import parse_arguments
from prowess.tools.skills.loaded import ShelfTool

_MAX_QUERY = 1000


class SkillSearch(ShelfTool):
    kind = SearchArguments
    spec = ToolSpec(
        name="skill_search",
        description="Find skills that are not listed, by what they are for.",
        parameters=advertise(SearchArguments, "query", "limit"),
        read_only=True,
    )

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(SearchArguments, args, self.spec.name)
        words = wanted.query.split()
        query = " ".join(words)[:_MAX_QUERY]
        if not query:
            raise ToolRetry("skill_search: say in a few words what the skill should be for, as `query`.")
        library = self._shelf.library
        results: list[dict[str, Any]] = []
        for entry, score in library.search(query, wanted.limit):
            name = _clean(self._name(entry))
            description = _clean(entry.description)
            results.append({"name": name, "description": description, "source": entry.source, "score": score})
        if results:
            content = "\n".join(f"{hit['name']}: {' '.join(hit['description'].split())}" for hit in results)
            return Outcome(status="ok", content=content, data={"results": results})
        content = f"No skill was found for '{query[:100]}'."
        if not library.names():
            content += " No skills are installed."
        content += " Try other words, or go on without a skill."
        return Outcome(status="ok", content=content, data={"results": []})

    def _name(self, entry: Entry) -> str:
        """Name that identifies this skill: its name if that is unique, else its id."""
        try:
            found = self._shelf.library.find(entry.name, None)
        except SkillNotFound:  # several skills have that name
            return entry.id
        if found.id != entry.id:
            return entry.id
        return entry.name


def _clean(text: str) -> str:
    return neutralise(strip_invisible(text))
