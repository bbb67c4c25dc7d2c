"""Which skill, and which command of it, a request is about: the search that people use, asked twice.

A skill fits when the request shares two telling words with it; or one that stands in the skill's name and comes first
in the request, or is half of it. A verb such as "write" alone says nothing. What a description says it is not for
counts against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from prowess.models.offline.commands import DocumentedCommand
from prowess.models.offline.request_values import RequestValues
from prowess.skills.search import SearchDocument, open_search

LEAST = 4.0  # about one word of a description
TELLING = 5.2  # one that it says twice, or a rare one in a short description
NAMED = 100.0  # more than any words can reach
FIRST = 2
MOST = 6.0  # of one word, however prominent
WORD = 4.0  # what a word at one command only is worth
USED_VALUE = 3.0  # what it is worth that a command uses a value of the request
FAR_BETTER = 3.5  # a command that shares so much more with the request is the one that was meant


class ListedSkill(NamedTuple):
    """A skill as the catalog shows it."""

    name: str
    description: str = ""


class Ranked(NamedTuple):
    skill: ListedSkill
    score: float
    fits: bool


def rank_skills(said: RequestValues, skills: Sequence[ListedSkill]) -> list[Ranked]:
    """The best first; a skill that shares no word is not in it."""
    named = sorted((skill for skill in skills if _is_named(skill.name, said.text)), key=lambda skill: -len(skill.name))
    endings = [path.rsplit(".", 1)[-1].lower() for path in (*said.files, *said.given) if "." in path]
    ranked = _rank(said.plain.split(":")[0].split("：")[0], skills, endings)
    if not any(each.fits for each in ranked):
        ranked = _rank(" ".join([said.plain, *said.quoted]), skills, endings) or ranked
    return [*(Ranked(skill, NAMED, True) for skill in named), *(each for each in ranked if each.skill not in named)]


def rank_commands(said: RequestValues, commands: Sequence[DocumentedCommand]) -> list[float]:
    """How much each of them shares with the request."""
    terms = _terms(said.plain)
    scores = [0.0] * len(commands)
    # Its own words, with its choices; what a placeholder is called says what goes in, not what is done with it.
    own = [re.sub(r"<[^<>|]*>|[<>|=/._-]+", " ", command.text) for command in commands]
    for texts in ([command.about for command in commands], own):
        for hits in _search(terms, [SearchDocument("", "", text) for text in texts]):
            for at in hits:  # however often; and the fewer commands have the word, the more it says
                scores[at] += WORD * (len(commands) - len(hits) + 1) / len(commands)
    return scores


def _rank(text: str, skills: Sequence[ListedSkill], endings: Sequence[str]) -> list[Ranked]:
    """By what the request is about, and the kinds of its files."""
    words = _terms(text)
    first = {*words[:1], *endings}  # what is asked for comes first
    terms = list(dict.fromkeys([*words, *endings]))
    split = [_split(skill.description) for skill in skills]
    score, matched, in_name = [0.0] * len(skills), [0] * len(skills), [0] * len(skills)
    subject = [False] * len(skills)  # it shares more than a verb that goes with everything
    searches = zip(
        _search(terms, [SearchDocument("", skill.name, split[at][0]) for at, skill in enumerate(skills)]),
        _search(terms, [SearchDocument("", skill.name, "") for skill in skills]),
        _search(terms, [SearchDocument("", "", against) for _, against in split]),
        strict=True,
    )
    for term, (good, names, bad) in zip(terms, searches, strict=True):
        for at in range(len(skills)):
            score[at] += min(good[at], MOST) if at in good else -bad.get(at, 0.0)
            matched[at] += at in good
            subject[at] |= at in good and term not in _VERBS
            in_name[at] = max(in_name[at], (FIRST if term in first else 1) if at in names else 0)
    alone = len(words) == 1 and len(text.split()) <= 3

    def fits(at: int) -> bool:
        half = 2 * matched[at] >= len(words) and (in_name[at] or score[at] >= TELLING)
        return score[at] >= LEAST and subject[at] and bool(matched[at] > 1 or alone or half or in_name[at] == FIRST)

    ranked = [Ranked(skill, round(score[at], 4), fits(at)) for at, skill in enumerate(skills) if matched[at]]
    return sorted(ranked, key=lambda each: (not each.fits, -each.score, each.skill.name))


def _search(terms: Sequence[str], documents: Sequence[SearchDocument]) -> Iterator[dict[int, float]]:
    """For each term its score in every document that has it."""
    numbered = [document._replace(id=f"{at:06}") for at, document in enumerate(documents)]
    # With a document of all terms, a word that no other has is not searched for by its beginning.
    numbered.append(SearchDocument(_OWN, "", " ".join(terms)))
    with open_search(numbered) as index:
        for term in terms:
            yield {int(hit.id): hit.score for hit in index.search(term, len(numbered)) if hit.id != _OWN}


_OWN = "~"
_CJK = re.compile("([\u3005\u3041-\u3096\u30a1-\u30fe\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]+)")
_GRAMMAR = re.compile("[\u3041-\u3096的了吗呢吧把被我你您他她它们这那帮么请]")
# What a request says whatever it is about, in addition to what search leaves out.
_WEAK = frozenset(
    "a about all also an and any are as at be by can could create did do does for from get give has have help hello hi"
    " how i if in into is it its just let like make me more my need new now of on one or out over please put run"
    " should show so some tell that the their them then there these they this those to today up us use user using want"
    " was we were our what when where which who why will with would you your file files 一个 一下 一份 一些 如何 可以"
    " 需要 想要 使用 什么 怎么 今天 文件".split()
)


_VERBS = frozenset("add change check draft edit explain find fix improve look open read review send write".split())


def _terms(text: str) -> list[str]:
    """Distinct telling words, each with its other spellings."""
    terms: dict[str, None] = {}
    for word in filter(None, chain.from_iterable(map(_CJK.split, re.findall(r"[^\W_]+", text[:10_000].lower())))):
        if _CJK.match(word):
            pairs = list(map(str.__add__, word, word[1:])) or [word]
            terms.update(dict.fromkeys(pair for pair in pairs if pair not in _WEAK and not _GRAMMAR.search(pair)))
        elif word not in _WEAK and not word.isdecimal() and len(word) > 1:
            terms[_spellings(word)] = None
    return list(terms)[:64]


def _spellings(word: str) -> str:
    """British and American; and a summary is what summarising makes."""
    others = [word]
    if found := re.fullmatch(r"(\w{3,})([iy])([sz])(e|es|ed|er|ing|ation)", word):
        stem, letter, ending = found[1] + found[2], "z" if found[3] == "s" else "s", found[4]
        others.append(f"{stem}{letter}{ending}")
        others += [f"{stem[:-1]}y"] if stem.endswith("ari") else []  # summarise: summary
        others += ["analysis"] if stem == "analy" else []
    elif found := re.fullmatch(r"(\w{2,})(our|or)(s|ed|ing|ful)?", word):
        others.append(f"{found[1]}{'or' if found[2] == 'our' else 'our'}{found[3] or ''}")
    return " ".join(others)


_NEGATIVE = re.compile(
    r"(?:^|(?<=[.!?;。！？；，,]))\s*(?:(?:and\s+)?not\s+(?:for|when|if)|(?:do\s+not|don't|never)\s+use|不用于|不要用于|不适用于|不能用于)"
    r"[^.!?;。！？；]*",
    re.IGNORECASE,
)


_PHRASES = re.compile(r"\buse (?:this|the) skill\b|使用本技能", re.IGNORECASE)  # every skill says so


def _split(description: str) -> tuple[str, str]:
    """What it is for, and what not."""
    return _NEGATIVE.sub(" ", _PHRASES.sub(" ", description)), " ".join(_NEGATIVE.findall(description))


def _is_named(name: str, text: str) -> bool:
    """By a name of several words, or of one after a sign: a skill called `text` is not meant by every text."""
    bare = name.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    spelled = re.escape(bare.lower())
    sign = r"(?<![\w./-])[/$]" if re.fullmatch(r"[^\W_]+", bare) else r"(?<![\w./-])[/$]?"
    return bool(bare) and re.search(rf"{sign}{spelled}(?![\w-]|\.\w)", text.lower()) is not None
