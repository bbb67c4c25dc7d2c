"""Ranks skills, and the commands of a skill, by how well they fit a request. It uses the same search as people do.

A skill fits when the request shares two telling words with it, or one word of its name that comes first in the request
or is half of it. A verb such as "write" alone says nothing. Words in "not for …" phrases of a description count against
the skill.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from prowess.models.offline.commands import DocumentedCommand
from prowess.models.offline.request_values import RequestValues
from prowess.skills.search import SearchDocument, open_search

LEAST = 4.0  # lowest score that fits: about one word of a description
TELLING = 5.2  # a word that the description has twice, or a rare word in a short description
NAMED = 100.0  # more than any number of words can reach
FIRST = 2
MOST = 6.0  # highest score of one word
WORD = 4.0  # score of a word that only one command has
USED_VALUE = 3.0  # score of a value of the request that a command uses
FAR_BETTER = 3.5  # with this lead, a command wins even if values for it are missing


class ListedSkill(NamedTuple):
    """Skill as the catalog shows it."""

    name: str
    description: str = ""


class Ranked(NamedTuple):
    skill: ListedSkill
    score: float
    fits: bool


def rank_skills(said: RequestValues, skills: Sequence[ListedSkill]) -> list[Ranked]:
    """Returns the skills, the best first, without those that share no word."""
    named = sorted((skill for skill in skills if _is_named(skill.name, said.text)), key=lambda skill: -len(skill.name))
    endings = [path.rsplit(".", 1)[-1].lower() for path in (*said.files, *said.given) if "." in path]
    ranked = _rank(said.plain.split(":")[0].split("：")[0], skills, endings)
    if not any(each.fits for each in ranked):
        ranked = _rank(" ".join([said.plain, *said.quoted]), skills, endings) or ranked
    return [*(Ranked(skill, NAMED, True) for skill in named), *(each for each in ranked if each.skill not in named)]


def rank_commands(said: RequestValues, commands: Sequence[DocumentedCommand]) -> list[float]:
    """Returns for each command how much it shares with the request."""
    terms = _terms(said.plain)
    scores = [0.0] * len(commands)
    # Words and choices of the command. Names of placeholders are left out: they describe a value, not the work.
    own = [re.sub(r"<[^<>|]*>|[<>|=/._-]+", " ", command.text) for command in commands]
    for texts in ([command.about for command in commands], own):
        for hits in _search(terms, [SearchDocument("", "", text) for text in texts]):
            for at in hits:  # each word counts once; a word that few commands have counts more
                scores[at] += WORD * (len(commands) - len(hits) + 1) / len(commands)
    return scores


def _rank(text: str, skills: Sequence[ListedSkill], endings: Sequence[str]) -> list[Ranked]:
    """Ranks by the words of the request and the types of its files."""
    words = _terms(text)
    first = {*words[:1], *endings}  # the first word is mostly the subject
    terms = list(dict.fromkeys([*words, *endings]))
    split = [_split(skill.description) for skill in skills]
    score, matched, in_name = [0.0] * len(skills), [0] * len(skills), [0] * len(skills)
    subject = [False] * len(skills)  # shares more than a general verb
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
    """Yields for each term its score in every document that has it."""
    numbered = [document._replace(id=f"{at:06}") for at, document in enumerate(documents)]
    # A document with all terms, so that search does not fall back to prefixes for a word that no other document has.
    numbered.append(SearchDocument(_OWN, "", " ".join(terms)))
    with open_search(numbered) as index:
        for term in terms:
            yield {int(hit.id): hit.score for hit in index.search(term, len(numbered)) if hit.id != _OWN}


_OWN = "~"
_CJK = re.compile("([\u3005\u3041-\u3096\u30a1-\u30fe\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]+)")
_GRAMMAR = re.compile("[\u3041-\u3096的了吗呢吧把被我你您他她它们这那帮么请]")
# Words that say nothing about the topic of a request, in addition to the stop words of search.
_WEAK = frozenset(
    "a about all also an and any are as at be by can could create did do does for from get give has have help hello hi"
    " how i if in into is it its just let like make me more my need new now of on one or out over please put run"
    " should show so some tell that the their them then there these they this those to today up us use user using want"
    " was we were our what when where which who why will with would you your file files 一个 一下 一份 一些 如何 可以"
    " 需要 想要 使用 什么 怎么 今天 文件".split()
)


_VERBS = frozenset("add change check draft edit explain find fix improve look open read review send write".split())


def _terms(text: str) -> list[str]:
    """Returns the distinct telling words, each with its other spellings."""
    terms: dict[str, None] = {}
    for word in filter(None, chain.from_iterable(map(_CJK.split, re.findall(r"[^\W_]+", text[:10_000].lower())))):
        if _CJK.match(word):
            pairs = list(map(str.__add__, word, word[1:])) or [word]
            terms.update(dict.fromkeys(pair for pair in pairs if pair not in _WEAK and not _GRAMMAR.search(pair)))
        elif word not in _WEAK and not word.isdecimal() and len(word) > 1:
            terms[_spellings(word)] = None
    return list(terms)[:64]


def _spellings(word: str) -> str:
    """Returns the word with its British and American spellings; "summarise" also finds "summary"."""
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


_PHRASES = re.compile(r"\buse (?:this|the) skill\b|使用本技能", re.IGNORECASE)  # says nothing: every skill has it


def _split(description: str) -> tuple[str, str]:
    """Returns (text that says what the skill is for, text that says what it is not for)."""
    return _NEGATIVE.sub(" ", _PHRASES.sub(" ", description)), " ".join(_NEGATIVE.findall(description))


def _is_named(name: str, text: str) -> bool:
    """True when the text names the skill: by a name of several words, or by a sign and a name of one word.

    A skill called `text` is not meant by every text.
    """
    bare = name.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    spelled = re.escape(bare.lower())
    sign = r"(?<![\w./-])[/$]" if re.fullmatch(r"[^\W_]+", bare) else r"(?<![\w./-])[/$]?"
    return bool(bare) and re.search(rf"{sign}{spelled}(?![\w-]|\.\w)", text.lower()) is not None
