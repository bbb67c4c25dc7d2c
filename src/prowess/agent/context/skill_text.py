"""Renders the texts of loaded skills for the model, from the content with the pinned digest, redacted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from prowess._internal.text import strip_invisible
from prowess.agent.context.state import InUse, WantedText
from prowess.core.ports import ShownSkill
from prowess.core.values import Part
from prowess.errors import SkillError
from prowess.skills.render import neutralise, render_doc, render_skill
from prowess.skills.skill import Skill
from prowess.tools.session_work import LoadedSkill
from prowess.tools.skills.state import part_ref

_DECLARED = re.compile(r"[<\[$]\s*([A-Za-z_][A-Za-z0-9_-]*)")


class SkillTextRenderer:
    def __init__(self, find: Callable[[str, str], LoadedSkill | None], redact: Callable[[str], str] = str) -> None:
        """Takes `find`: id and digest -> the skill with exactly that content, or None if it no longer exists."""
        self._find = find
        self._redact = redact

    def text(self, id: str, digest: str, path: str) -> str | None:
        """Renders the body (path "") or a doc, with its wrapper."""
        loaded = self._find(id, digest)
        if loaded is None:
            return None
        if not path:
            return self._redact(render_skill(loaded.skill, directory=f"$SKILLS_DIR/{loaded.folder}"))
        try:
            return self._redact(render_doc(loaded.skill, path, loaded.read(path)))
        except SkillError as error:
            return f"The doc {path!r} cannot be shown: {error}"

    def part(self, id: str, digest: str, path: str) -> Part | None:
        text = self.text(id, digest, path)
        return None if text is None else Part(text=text, ref=part_ref(id, digest, path))

    def parts(self, wanted: Mapping[InUse, WantedText]) -> dict[tuple[str, str, str], Part]:
        """Returns the bodies and docs in use, by (id, digest, path)."""
        found: dict[tuple[str, str, str], Part] = {}
        for (id, digest), (body, docs) in wanted.items():
            for path in [*([""] if body else []), *(self._docs(id, digest) if docs is None else docs)]:
                part = self.part(id, digest, path)
                if part is not None:
                    found[id, digest, path] = part
        return found

    def find_loaded(self, contents: Mapping[str, str]) -> dict[str, ShownSkill]:
        """Returns the skills with these digests as values, by the ref of the part that shows the body."""
        found: dict[str, ShownSkill] = {}
        for id, digest in contents.items():
            loaded = self._find(id, digest)
            if loaded is not None:
                skill = loaded.skill
                body = self._redact(strip_invisible(skill.body))
                files = tuple(skill.resources)
                found[part_ref(id, digest)] = ShownSkill(skill.name, skill.entry.description, body, files)
        return found

    def _docs(self, id: str, digest: str) -> Sequence[str]:
        loaded = self._find(id, digest)
        return () if loaded is None else loaded.skill.docs

    def arguments(self, id: str, digest: str, text: str) -> str:
        loaded = self._find(id, digest)
        return "" if loaded is None else self._redact(render_arguments(loaded.skill, text))


def render_arguments(skill: Skill, text: str) -> str:
    """Renders a block with the values of `$ARGUMENTS` and each declared `$name`. The block stands beside the body; the
    body itself stays unchanged."""
    safe = neutralise(strip_invisible(text))
    lines = [f'<skill_arguments skill="{skill.name}">', f"$ARGUMENTS = {safe}"]
    for name, value in zip(declared_arguments(skill), _split(safe), strict=False):
        lines.append(f"${name} = {value}")
    return "\n".join([*lines, "</skill_arguments>"])


def declared_arguments(skill: Skill) -> list[str]:
    """Names in `argument-hint`: `<file> [format]` declares $file and $format."""
    hint = skill.entry.controls.argument_hint or ""
    return list(dict.fromkeys(_DECLARED.findall(hint)))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an unclosed quote: people write such text
        return text.split()
