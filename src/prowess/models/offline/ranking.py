"""Ranks skills, and the commands of a skill, by how well they fit a request. It uses the same search as people do.

A skill fits when the request shares two telling words with it, or one word of its name that comes first in the request
or is half of it. A verb such as "write" alone says nothing. Words in "not for …" phrases of a description count against
the skill.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prowess.core.ports import ShownSkill
from prowess.models.offline.commands import DocumentedCommand
from prowess.models.offline.request_values import RequestValues
from prowess.skills.search import SearchDocument, open_search

LEAST = 4.0  # lowest score that fits: about one word of a description
TELLING = 5.2  # a word that the description has twice, or a rare word in a short description
MOST = 6.0  # highest score of one word
WORD = 4.0  # score of a word that only one command has
USED_VALUE = 3.0  # score of a value of the request that a command uses
FAR_BETTER = 3.5  # with this lead, a command wins even if values for it are missing


class Ranked(NamedTuple):
    skill: ShownSkill
    fits: bool


def rank_skills(said: RequestValues, skills: Sequence[ShownSkill]) -> list[Ranked]:
    """Returns the skills, the best first, without those that share no word. A skill that is named comes first."""
    named = sorted((skill for skill in skills if _is_named(skill.name, said.text)), key=lambda skill: -len(skill.name))
    endings = [path.rsplit(".", 1)[-1].lower() for path in (*said.all("file"), *said.given) if "." in path]
    ranked = _rank(re.split("[:：]", said.plain)[0], skills, endings)
    if not any(each.fits for each in ranked):
        ranked = _rank(" ".join([said.plain, *said.all("quoted")]), skills, endings) or ranked
    return [*(Ranked(skill, True) for skill in named), *(each for each in ranked if each.skill not in named)]


def rank_commands(said: RequestValues, commands: Sequence[DocumentedCommand]) -> list[float]:
    """Returns for each command how much it shares with the request."""
    terms = _terms(said.plain)
    scores = [0.0] * len(commands)
    # Words and choices of the command. Names of placeholders are left out: they describe a value, not the work.
    own = [re.sub(r"<[^<>|]*>|[<>|=/._-]+", " ", command.text) for command in commands]
    for texts in ([command.about for command in commands], own):
        for hits in _search(terms, [("", text) for text in texts]):
            for at in hits:  # each word counts once; a word that few commands have counts more
                scores[at] += WORD * (len(commands) - len(hits) + 1) / len(commands)
    return scores


def _rank(text: str, skills: Sequence[ShownSkill], endings: Sequence[str]) -> list[Ranked]:
    """Ranks by the words of the request and the types of its files."""
    words = _terms(text)
    first = {*words[:1], *endings}  # the first word is mostly the subject
    terms = list(dict.fromkeys([*words, *endings]))
    kinds = [_NEGATIVE.sub(" ", _PHRASES.sub(" ", skill.description)) for skill in skills]
    against = [" ".join(_NEGATIVE.findall(skill.description)) for skill in skills]
    score, matched = [0.0] * len(skills), [list[str]() for _ in skills]
    in_name: list[set[str]] = [set() for _ in skills]
    goods = _search(terms, [(skill.name, kind) for skill, kind in zip(skills, kinds, strict=True)])
    names = _search(terms, [(skill.name, "") for skill in skills])
    for term, good, name, bad in zip(terms, goods, names, _search(terms, [("", each) for each in against]), strict=True):
        for at in range(len(skills)):
            score[at] += min(good[at], MOST) if at in good else -bad.get(at, 0.0)
            matched[at] += [term] if at in good else []
            in_name[at] |= {term} if at in name else set()
    alone = len(words) == 1 and len(text.split()) <= 3

    def fits(at: int) -> bool:
        half = 2 * len(matched[at]) >= len(words) and bool(in_name[at] or score[at] >= TELLING)
        enough = len(matched[at]) > 1 or alone or half or bool(in_name[at] & first)
        return score[at] >= LEAST and enough and not _VERBS.issuperset(matched[at])

    order = [at for at in range(len(skills)) if matched[at]]
    order.sort(key=lambda at: (not fits(at), -round(score[at], 4), skills[at].name))
    return [Ranked(skills[at], fits(at)) for at in order]


def _search(terms: Sequence[str], texts: Sequence[tuple[str, str]]) -> Iterator[dict[int, float]]:
    """Yields for each term its score in every (title, text) that has it."""
    documents = [SearchDocument(f"{at:06}", title, text) for at, (title, text) in enumerate(texts)]
    # A document with all terms, so that search does not fall back to prefixes for a word that no other document has.
    documents.append(SearchDocument("~", "", " ".join(terms)))
    with open_search(documents) as index:
        for term in terms:
            yield {int(hit.id): hit.score for hit in index.search(term, len(documents)) if hit.id != "~"}


def _terms(text: str) -> list[str]:
    """Returns the distinct telling words, each with its other spellings; of Chinese words, the pairs of characters."""
    terms: dict[str, None] = {}
    for word in re.findall(rf"[{_CJK}]+|[^\W_{_CJK}]+", text[:10_000].lower()):
        if re.match(f"[{_CJK}]", word):
            pairs = list(map(str.__add__, word, word[1:])) or [word]
            terms |= dict.fromkeys(pair for pair in pairs if pair not in _WEAK and not _GRAMMAR.search(pair))
        elif word not in _WEAK and not word.isdecimal() and len(word) > 1:
            terms[_spellings(word)] = None
    return list(terms)[:64]


def _spellings(word: str) -> str:
    """Returns the word with its British and American spellings; "summarise" also finds "summary"."""
    if found := re.fullmatch(r"(\w{3,}[iy])([sz])(e|es|ed|er|ing|ation)", word):
        other = f"{found[1]}{'z' if found[2] == 's' else 's'}{found[3]}"
        noun = " analysis" if found[1] == "analy" else f" {found[1][:-1]}y" if found[1].endswith("ari") else ""
        return f"{word} {other}{noun}"
    found = re.fullmatch(r"(\w{2,})(our|or)(s|ed|ing|ful)?", word)
    return f"{word} {found[1]}{'or' if found[2] == 'our' else 'our'}{found[3] or ''}" if found else word


def _is_named(name: str, text: str) -> bool:
    """True when the text names the skill: by a name of several words, or by a sign and a name of one word."""
    bare = re.split("[:/]", name)[-1]
    sign = "[/$]" if re.fullmatch(r"[^\W_]+", bare) else "[/$]?"  # a skill called `text` is not meant by every text
    return bool(bare) and re.search(rf"(?<![\w./-]){sign}{re.escape(bare.lower())}(?![\w-]|\.\w)", text.lower()) is not None


_CJK = "\u3005\u3041-\u3096\u30a1-\u30fe\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3"
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
_NEGATIVE = re.compile(
    r"(?:^|(?<=[.!?;。！？；，,]))\s*(?:(?:and\s+)?not\s+(?:for|when|if)|(?:do\s+not|don't|never)\s+use|不用于|不要用于|不适用于|不能用于)"
    r"[^.!?;。！？；]*",
    re.IGNORECASE,
)
_PHRASES = re.compile(r"\buse (?:this|the) skill\b|使用本技能", re.IGNORECASE)  # says nothing: every skill has it
