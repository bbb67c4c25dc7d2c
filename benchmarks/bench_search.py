"""Search among 10,000 skills, compared in one run with what a bare `LIKE '%word%'` over the same rows costs.

    python benchmarks/bench_search.py

Times depend on the machine; their ratio to the scan hardly does, so the ratios carry the limits. The known-item test
asks for a skill by some of its words among words of others, and counts how often it is not the first, or not in five.
The requests are those of search_requests.py, among 2,000 other skills, and plain FTS5 over names and descriptions is
asked the same: search must miss no more than that. 3 ms are 0.83 to 0.96 of the scan.
"""

from __future__ import annotations

import random
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from search_requests import WANTED, make_others

from prowess.skills.search import SearchDocument, open_search

T = TypeVar("T")

SKILLS = 10_000
QUERIES = 300

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeio"]
_SMALL_WORDS = ("use", "this", "when", "the", "user", "wants", "to", "and", "a", "with")
_HAN = "数据分析报表生成图文件转换合同翻译代码审查测试部署监控搜索邮件会议纪要网页设计视频音频图像识别财务预算"


def main() -> None:
    for name, value, limit in measure(report=print):
        print(f"{name:44}{value:10.3f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[tuple[str, float, float | None]]:
    """Rows of (name, ratio, limit or None); a ratio above its limit is a regression."""
    chance = random.Random(20240607)
    documents = make_documents(chance)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "index"))
        open_search(documents, f"{path}-without").close()
        bodies = make_bodies(documents)
        build_ms, index = timed(lambda: open_search(documents, path, bodies.__getitem__))
        size_mb = Path(path).stat().st_size / 1e6
        without_mb = Path(f"{path}-without").stat().st_size / 1e6
        index.close()
        reopen_ms, index = timed(lambda: open_search(documents, path))
        with index:
            asked = [
                (document.id, make_query(document, documents, chance)) for document in chance.sample(documents, QUERIES)
            ]
            times, ranks = [], []
            for wanted, query in asked:
                ms, hits = timed(lambda query=query: index.search(query, limit=5))
                times.append(ms)
                ranks.append(next((rank for rank, hit in enumerate(hits) if hit.id == wanted), 5))
    scan = scan_ms(documents, [query.split()[0] for _, query in asked])
    p50, p95 = percentile(times, 0.5), percentile(times, 0.95)
    requests = [wanted.request for wanted in WANTED]
    plain, fts5 = missed(requests), missed(requests, plain_fts5=True)
    of_body = missed([wanted.request_of_body for wanted in WANTED])
    names = missed([wanted.name.replace("-", " ") for wanted in WANTED])
    report(f"{SKILLS} skills, {size_mb:.1f} MB ({without_mb:.1f} MB without bodies):")
    report(f"build {build_ms:.0f} ms of CPU, reopen {reopen_ms:.1f} ms,")
    report(f"query p50 {p50:.2f} ms, p95 {p95:.2f} ms, LIKE scan p50 {scan:.2f} ms")
    return [
        ("search: query p50 / LIKE scan", p50 / scan, 0.85),
        ("search: query p95 / LIKE scan", p95 / scan, 2.0),
        ("search: reopen / LIKE scan", reopen_ms / scan, 30.0),
        ("search: build / LIKE scan", build_ms / scan, None),
        ("search: index / index without bodies", size_mb / without_mb, 2.0),
        ("search: plain request, not first", plain[0], fts5[0]),
        ("search: plain request, not in ten", plain[1], fts5[1]),
        ("search: name with spaces, not first", names[0], 0.0),
        ("search: request of the body, not first", of_body[0], 0.3),
        ("search: request of the body, not in ten", of_body[1], 0.15),
        ("search: known item not first", sum(rank > 0 for rank in ranks) / QUERIES, 0.15),
        ("search: known item not in five", sum(rank > 4 for rank in ranks) / QUERIES, 0.02),
    ]


def make_documents(chance: random.Random) -> list[SearchDocument]:
    """Words as unequally common as in any language; one skill in ten is Chinese."""
    vocabulary = sorted({"".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4))) for _ in range(8_000)})
    chance.shuffle(vocabulary)
    weights = [1 / (rank + 20) for rank in range(len(vocabulary))]
    documents = []
    for number in range(SKILLS):
        words = chance.choices(vocabulary, weights, k=30)
        name = "-".join(chance.sample(words, 2))
        description = " ".join(chance.choice(_SMALL_WORDS) if chance.random() < 0.4 else word for word in words)
        if number % 10 == 0:
            description = "".join(chance.choices(_HAN, k=40)) + f" {words[0]}"
        documents.append(SearchDocument(f"skill-{number:05}", name, description, tuple(words[:2])))
    return documents


def make_bodies(documents: list[SearchDocument]) -> dict[str, str]:
    """1,500 characters for each, in the words of all descriptions, as common as there."""
    chance = random.Random(77)
    words = [word for document in documents if document.description.isascii() for word in document.description.split()]
    return {document.id: " ".join(chance.choices(words, k=230)) for document in documents}


def missed(requests: list[str], *, plain_fts5: bool = False) -> tuple[float, float]:
    """The parts of the requests whose skill is not the first, and not among ten."""
    rows = [(wanted.name, wanted.description, wanted.body) for wanted in WANTED]
    rows += make_others(random.Random(3), 2_000)
    if plain_fts5:
        found = ask_fts5([(name, text) for name, text, _ in rows], requests)
    else:
        bodies = {name: body for name, _, body in rows}
        with open_search(
            [SearchDocument(name, name, text) for name, text, _ in rows], None, bodies.__getitem__
        ) as index:
            found = [[hit.id for hit in index.search(request, limit=10)] for request in requests]
    first = sum(wanted.name not in hits[:1] for wanted, hits in zip(WANTED, found, strict=True))
    ten = sum(wanted.name not in hits for wanted, hits in zip(WANTED, found, strict=True))
    return first / len(WANTED), ten / len(WANTED)


def ask_fts5(rows: list[tuple[str, str]], requests: list[str]) -> list[list[str]]:
    """The best ten of FTS5 as it comes: porter, every word of the request, all weights alike."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE skills USING fts5(name, description, tokenize='porter')")
        connection.executemany("INSERT INTO skills VALUES (?, ?)", rows)
        ask = "SELECT name FROM skills WHERE skills MATCH ? ORDER BY rank LIMIT 10"
        words = [" OR ".join(f'"{word}"' for word in re.findall(r"\w+", request)) for request in requests]
        return [[name for (name,) in connection.execute(ask, (each,))] for each in words]


def make_query(document: SearchDocument, documents: list[SearchDocument], chance: random.Random) -> str:
    """A word of the name and a part of the description, then two words of some other skill."""
    words = document.description.split()
    if document.description.isascii():
        known = chance.sample(words, 8)
    else:
        start = chance.randrange(30)
        known = [words[0][start : start + 8]]
    other = chance.sample(chance.choice(documents).description.split(), 2)
    return " ".join([chance.choice(document.name.split("-")), *known, *other])


def scan_ms(documents: list[SearchDocument], words: list[str]) -> float:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE skills(id, name, keywords, description)")
        rows = [
            (document.id, document.name, " ".join(document.keywords), document.description) for document in documents
        ]
        connection.executemany("INSERT INTO skills VALUES (?, ?, ?, ?)", rows)
        scan = "SELECT id FROM skills WHERE name LIKE ?1 OR keywords LIKE ?1 OR description LIKE ?1"
        times = [timed(lambda word=word: connection.execute(scan, (f"%{word}%",)).fetchall())[0] for word in words[:50]]
    finally:
        connection.close()
    return percentile(times, 0.5)


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds of CPU, which a busy machine hardly changes."""
    start = time.process_time()
    result = action()
    return (time.process_time() - start) * 1000, result


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


if __name__ == "__main__":
    main()
