"""Chooses the command of a skill, and puts the values of a request into its placeholders.

Each value is used once, in order, unless the request gives it by name. Every value is quoted as one shell word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from prowess.core.ports import ShownSkill
from prowess.models.offline.commands import Placeholder, find_commands, names_example, parse_template
from prowess.models.offline.ranking import FAR_BETTER, USED_VALUE, rank_commands
from prowess.models.offline.request_values import RequestValues, base_name, find_phrase

LONGEST_BYTES = 100_000  # per word; Linux allows 131,071
_OUTPUT = re.compile(r"(?:>>?|(?<!\S)(?:-o|--out(?:put)?(?:-file)?))[ =]*[\"']?(out/[\w./-]*\w)(?=[\s\"';|&)]|$)")


class Filled(NamedTuple):
    command: str  # as written, if values are missing or it is refused
    used: int = 0  # number of values of the request in it
    missing: Sequence[Placeholder] = ()
    refusal: str | None = None

    @property
    def ready(self) -> bool:
        return self.refusal is None and not self.missing

    @property
    def outputs(self) -> list[str]:
        """Files that the command writes, as far as it says so."""
        return list(dict.fromkeys(_OUTPUT.findall(self.command)))


def choose(skill: ShownSkill, said: RequestValues) -> tuple[Filled | None, list[str]]:
    """Returns the command to follow, or the best one with what it lacks; and why other commands are not followed."""
    commands = find_commands(skill.body)
    filled = [fill(command.text, said, skill) for command in commands]
    refusals = [f"`{each.command}`: {each.refusal}" for each in filled if each.refusal]
    usable = [at for at, each in enumerate(filled) if each.refusal is None]
    if not usable:
        return None, refusals
    shared = rank_commands(said, commands)
    best = max(usable, key=lambda at: (shared[at], filled[at].used, -len(filled[at].missing), -at))
    ready = [at for at in usable if filled[at].ready]
    chosen = max(ready, key=lambda at: (shared[at] + USED_VALUE * filled[at].used, -at), default=best)
    is_meant = not filled[best].ready and shared[best] - shared[chosen] > FAR_BETTER
    return filled[best if is_meant else chosen], refusals


def fill(command: str, said: RequestValues, skill: ShownSkill) -> Filled:
    pieces, refusal = parse_template(command)
    if (said.given or said.all("file")) and names_example(command, skill.files):
        refusal = "it names a file only as an example, and the request gives another"
    if refusal:
        return Filled(command, refusal=refusal)
    placeholders = [piece for piece in pieces if isinstance(piece, Placeholder)]
    literal, numbers = re.findall(r"(?<!\S)[0-9]+(?!\S)", command), said.all("number")
    if not placeholders and len(literal) == len(numbers) == 1 and numbers[0].isdecimal():
        return Filled(re.sub(r"(?<!\S)[0-9]+(?!\S)", numbers[0], command), used=1)
    filler = _Filler(placeholders, said, skill)
    if filler.missing:
        return Filled(command, filler.used, filler.missing)
    parts = [piece if isinstance(piece, str) else shlex.quote(filler.values[piece]) for piece in pieces]
    return Filled("".join(parts).strip(), filler.used)


class _Filler:
    """Values of the placeholders of one command. Two equal placeholders share one value."""

    def __init__(self, placeholders: Sequence[Placeholder], said: RequestValues, skill: ShownSkill) -> None:
        self._placeholders, self._said, self._own = list(dict.fromkeys(placeholders)), said, skill.files
        self.values: dict[Placeholder, str] = {}
        self._taken: set[str] = set()  # values of the request
        self.used = 0
        for find in (self._by_name, self._by_file_name, self._next):
            for each in self.missing:
                self._take(each, find(each))
        for each in self.missing:
            default = "inputs" if each.kind == "folder" and said.given else each.default
            if default is not None:
                self.values[each] = default

    @property
    def missing(self) -> list[Placeholder]:
        return [each for each in self._placeholders if each not in self.values]

    def _take(self, placeholder: Placeholder, value: str | None) -> None:
        """Takes a value of the request, in the form that is passed on, unless it cannot be passed on."""
        if not value:
            return
        self._taken.add(value)
        is_path = placeholder.kind == "file" and value not in self._said.all("quoted")
        text = self._path(value, placeholder) if is_path else value
        is_option = placeholder.begins_word and text.startswith("-") and placeholder.kind != "number"
        climbs = placeholder.in_path and ("/" in text or text.startswith("."))
        if not is_option and not climbs and len(text.encode("utf-8", "replace")) <= LONGEST_BYTES:
            self.values[placeholder] = text
            self.used += 1

    def _by_name(self, placeholder: Placeholder) -> str | None:
        """Finds a value given by name: `group column: region`, `column=price`, `--limit 20`."""
        said, kind = self._said, placeholder.kind
        name = r"[\s_-]".join(map(re.escape, placeholder.words))
        pattern = rf"(?<![\w-])(?:--)?{name}\s*[=:：]\s*|(?<!\S)--{name}\s+"
        found = re.search(pattern, said.text, re.IGNORECASE) if name else None
        if not found or not said.plain[found.start() : found.start() + 1].strip():
            return None
        rest = said.text[found.end() :]
        end = r"[\n,;，；]" if kind in ("text", "name") else r"[\s,;，；。、]"
        quoted = re.match(r"\"([^\"]*)\"|'([^']*)'|“([^”]*)”|`([^`]*)`", rest)
        text = quoted[quoted.lastindex or 0] if quoted else re.split(end, rest, maxsplit=1)[0].strip().rstrip(".!?")
        if kind == "file":
            return next((path for path in self._files(placeholder) if text.endswith((path, base_name(path)))), None)
        allowed = placeholder.choices or said.all(kind)
        return text if kind in ("text", "name", "column", "other") or text in allowed else None

    def _by_file_name(self, placeholder: Placeholder) -> str | None:
        """Finds a file with a telling word of the placeholder in its name: `old.json` for `<old_file>`."""
        words = set(placeholder.words) - {"file", "path", "input", "document", "text", "data", *placeholder.extensions}
        files = self._files(placeholder) if placeholder.kind == "file" else []
        return next((path for path in files if words & set(re.split(r"[\W_]+", base_name(path).lower()))), None)

    def _next(self, placeholder: Placeholder) -> str | None:
        """Returns the next value of the request that fits."""
        said, kind = self._said, placeholder.kind
        quoted, phrase = said.all("quoted"), find_phrase(kind, placeholder.words, said.plain)
        named = [(re.search(rf"(?i)(?<![a-z0-9]){re.escape(each)}", said.text), each) for each in placeholder.choices]
        values = {
            "file": self._next_files(placeholder),
            "text": (*quoted, said.after_colon or said.arguments),
            "name": (*quoted, phrase),
            "column": (phrase, *quoted),
            "arguments": (said.arguments,),
            "request": (said.text.strip(),),
            "choice": [each for _, each in sorted((found.start(), each) for found, each in named if found)],
        }.get(kind, said.all(kind))
        return next((value for value in values if value and (value not in self._taken or kind == "choice")), None)

    def _files(self, placeholder: Placeholder) -> list[str]:
        """Returns the unused files that the request names, in its order; or else those that were given."""
        files = [path for path in self._said.all("file") or self._said.given if path not in self._taken]
        endings = placeholder.extensions
        return [path for path in files if not endings or path.rsplit(".", 1)[-1].lower() in endings]

    def _next_files(self, placeholder: Placeholder) -> tuple[str, ...]:
        free = self._files(placeholder)
        if len(free) > sum(each.kind == "file" for each in self.missing) and not self._said.all("file"):
            return ()  # ambiguous: the person must name one
        is_path = placeholder.words[-1:] == ("path",)  # it may be a path inside a document
        return (*free, *(self._said.all("quoted") if is_path else ()))

    def _path(self, path: str, placeholder: Placeholder) -> str:
        """Returns the path as seen from the skill's folder."""
        if path not in self._said.given and path not in self._own:
            inside = path.startswith(("out/", "work/", "inputs/")) and ".." not in path.split("/")
            path = path if inside else f"inputs/{base_name(path)}"
        return base_name(path) if placeholder.in_path else path
