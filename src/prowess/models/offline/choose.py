"""Chooses the command of a skill to follow, or the values that the best command still needs."""

from __future__ import annotations

from dataclasses import dataclass

from prowess.models.offline.commands import find_commands, find_output_files
from prowess.models.offline.fill import Filled, fill
from prowess.models.offline.ranking import FAR_BETTER, USED_VALUE, rank_commands
from prowess.models.offline.request_values import RequestValues
from prowess.models.offline.template import Placeholder, Template, mark_files, parse_template
from prowess.models.offline.transcript import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    filled: Filled | None = None
    outputs: tuple[str, ...] = ()
    command: str = ""  # as written, when it could not be filled
    missing: tuple[Placeholder, ...] = ()
    refusals: tuple[str, ...] = ()  # why commands were not considered


def choose(body: Body, said: RequestValues) -> Choice:
    commands = find_commands(body.text)
    templates = [_template(command.text, body, said) for command in commands]
    filled = [fill(template, said, skill=body.name, own_files=body.files) for template in templates]
    shared = rank_commands(said, commands)
    usable = [at for at, each in enumerate(filled) if each.refusal is None]
    refusals = tuple(f"`{commands[at].text}`: {each.refusal}" for at, each in enumerate(filled) if each.refusal)
    if not usable:
        return Choice(refusals=refusals)
    ready = [at for at in usable if not filled[at].missing]
    best = max(usable, key=lambda at: (shared[at], filled[at].used, -len(filled[at].missing), -at))
    chosen = max(ready, key=lambda at: (shared[at] + USED_VALUE * filled[at].used, -at), default=best)
    if filled[chosen].missing or (filled[best].missing and shared[best] - shared[chosen] > FAR_BETTER):
        return Choice(command=commands[best].text, missing=filled[best].missing, refusals=refusals)
    outputs = filled[chosen].outputs or tuple(find_output_files(body.text))
    return Choice(filled=filled[chosen], outputs=outputs)


def _template(text: str, body: Body, said: RequestValues) -> Template:
    """Parses a command. If the request gives a file, example file names of the skill become placeholders too."""
    template = parse_template(text)
    if not said.given and set(said.files) <= set(said.made):
        return template
    if not template.placeholders and not template.refusal:
        text = fill(template, said, skill=body.name).command  # replace its literal number first
    return parse_template(mark_files(text, body.files))
