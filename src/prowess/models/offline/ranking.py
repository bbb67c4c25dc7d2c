"""Ranks skills, and the commands of a skill, by how well they fit a request. It uses the same search as people do.

A skill fits when it shares two telling words with the request, or one of its name that comes first or is half of it. A
verb such as "write" alone says nothing. Words in "not for …" phrases of a description count against the skill.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from prowess.core.ports import ShownSkill
from prowess.models.offline.commands import DocumentedCommand
from prowess.models.offline.request_values import RequestValues
from prowess.skills.search import SearchDocument, find_telling_words, open_search

LEAST = 4.0  # lowest score that fits: about one word of a description
TELLING = 5.2  # a word that the description has twice, or a rare word in a short description
MOST = 6.0  # highest score of one word
WORD = 4.0  # score of a word that only one command has
USED_VALUE = 3.0  # score of a value of the request that a command uses
FAR_BETTER = 3.5  # with this lead, a command wins even if values for it are missing


def rank_skills(said: RequestValues, skills: Sequence[ShownSkill]) -> tuple[list[ShownSkill], list[ShownSkill]]:
    """Returns the skills that fit, the best first, then those that share a word. A skill that is named comes first."""
    named = [skill for skill in skills if _is_named(skill.name, said.text)]
    named.sort(key=lambda skill: -len(skill.name))
    endings = [path.rsplit(".", 1)[-1].lower() for path in (*said.all("file"), *said.given) if "." in path]
    fitting, near = _rank(re.split("[:：]", said.plain)[0], skills, endings)
    if not fitting:
        fitting, near = _rank(" ".join([said.plain, *said.all("quoted")]), skills, endings)
    return list(dict.fromkeys([*named, *fitting])), near


def rank_commands(said: RequestValues, commands: Sequence[DocumentedCommand]) -> list[float]:
    """Returns for each command how much it shares with the request."""
    terms = _terms(said.plain)
    scores = [0.0] * len(commands)
    # Words and choices of the command. Names of placeholders are left out: they describe a value, not the work.
    own = [re.sub(r"<[^<>|]*>|[<>|=/._-]+", " ", command.text) for command in commands]
    for texts in ([command.about for command in commands], own):
        for hits in _search(terms, [""] * len(commands), texts):
            for at in hits:  # each word counts once; a word that few commands have counts more
                scores[at] += WORD * (len(commands) - len(hits) + 1) / len(commands)
    return scores


def _rank(text: str, skills: Sequence[ShownSkill], endings: Sequence[str]) -> tuple[list[ShownSkill], list[ShownSkill]]:
    """Ranks by the words of the request and the types of its files."""
    words = _terms(text)
    terms = list(dict.fromkeys([*words, *endings]))
    about = [_PHRASES.sub(" ", skill.description) for skill in skills]
    titles, nothing = [skill.name for skill in skills], [""] * len(skills)
    goods = _search(terms, titles, [_NEGATIVE.sub(" ", each) for each in about])
    bads = _search(terms, nothing, [" ".join(_NEGATIVE.findall(each)) for each in about])
    names = _search(terms, titles, nothing)
    found = list(zip(terms, goods, names, bads, strict=True))
    is_short = len(words) == 1 and len(text.split()) <= 3
    ranked: list[tuple[bool, float, ShownSkill]] = []
    for at, skill in enumerate(skills):
        score = sum(min(good[at], MOST) if at in good else -bad.get(at, 0.0) for _, good, _, bad in found)
        matched = [term for term, good, _, _ in found if at in good]
        named = {term for term, _, name, _ in found if at in name}
        is_half = 2 * len(matched) >= len(words) and bool(named or score >= TELLING)
        is_first = not named.isdisjoint([*words[:1], *endings])  # the first word is mostly the subject
        enough = len(matched) > 1 or is_short or is_half or is_first
        fits = score >= LEAST and enough and not _VERBS.issuperset(matched)
        ranked += [(fits, -round(score, 4), skill)] if matched else []
    ranked.sort(key=lambda each: (each[1], each[2].name))
    return [skill for fits, _, skill in ranked if fits], [skill for fits, _, skill in ranked if not fits]


def _search(terms: Sequence[str], titles: Sequence[str], texts: Sequence[str]) -> Iterator[dict[int, float]]:
    """Yields for each term its score in every document that has it, by the number of the document."""
    documents = [SearchDocument(f"{at:06}", *each) for at, each in enumerate(zip(titles, texts, strict=True))]
    # A document with all terms, so that search does not fall back to prefixes for a word that no other document has.
    documents.append(SearchDocument("~", "", " ".join(terms)))
    with open_search(documents) as index:
        for term in terms:
            yield {int(hit.id): hit.score for hit in index.search(term, len(documents)) if hit.id != "~"}


def _terms(text: str) -> list[str]:
    lowered = text.lower()
    words = [word for word in find_telling_words(text) if word in lowered and word not in _WEAK]
    return [word for word in words if len(word) > 1 and not word.isdecimal()][:64]


def _is_named(name: str, text: str) -> bool:
    """True when the text names the skill: by a name of several words, or by a sign and a name of one word."""
    bare = re.split("[:/]", name)[-1]
    sign = "[/$]" if re.fullmatch(r"[^\W_]+", bare) else "[/$]?"  # a skill called `text` is not meant by every text
    if not bare:
        return False
    written = re.escape(bare.lower())
    return re.search(rf"(?<![\w./-]){sign}{written}(?![\w-]|\.\w)", text.lower()) is not None


# Words that say nothing about the topic of a request, in addition to the stop words of search.
_WEAK = frozenset(
    "about all also create file files give hello hi just let like make more new now one out over put run show tell then"
    " there today up where why 什么 怎么 今天 文件 请".split()
)
_VERBS = frozenset("add change check draft edit explain find fix improve look open read review send write".split())
_NEGATIVE = re.compile(
    r"(?i)(?:^|(?<=[.!?;。！？；，,]))\s*(?:(?:and\s+)?not\s+(?:for|when|if)|(?:do\s+not|don't|never)\s+use"
    r"|不用于|不要用于|不适用于|不能用于)[^.!?;。！？；]*"
)
_PHRASES = re.compile(r"\buse (?:this|the) skill\b|使用本技能", re.IGNORECASE)  # says nothing: every skill has it
