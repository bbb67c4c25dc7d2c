"""Search finds skills by the words of their name, keywords and description. A query is only ever words, never syntax.

The index is a cache. Its file may be deleted at any time, and is used only when it was made from these very documents
and every byte is as it was written. Otherwise the index is built again, and `note` says what was wrong with the file.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from prowess._files import read_regular, write_whole
from prowess.errors import ProwessError

if TYPE_CHECKING:
    import sqlite3

    from prowess.skills.entry import Entry
    from prowess.skills.model import Catalog


class Found(NamedTuple):
    """What a search of a catalog found, and what a person should know about the index's file."""

    results: list[tuple[Entry, float]]  # the best first, with its score
    note: str | None = None


def search_catalog(
    catalog: Catalog,
    query: str,
    *,
    limit: int = 10,
    path: str | None = None,
    keep: Callable[[Entry], bool] | None = None,
) -> Found:
    """Skills by what they are for, among those the model may see (or those that `keep` keeps)."""
    if keep is not None:
        with _open_catalog(catalog, path, keep) as index:
            return _found(catalog, index, query, limit)
    # A catalog never changes, so its index is opened once and closed with it.
    index = _opened.get(catalog)
    if index is None:
        index = _opened[catalog] = _open_catalog(catalog, path, lambda entry: catalog.visibility(entry).model_visible)
        weakref.finalize(catalog, index.close)
    return _found(catalog, index, query, limit)


_opened: weakref.WeakKeyDictionary[Catalog, SearchIndex] = weakref.WeakKeyDictionary()


def _open_catalog(catalog: Catalog, path: str | None, keep: Callable[[Entry], bool]) -> SearchIndex:
    return open_search([Document(e.id, e.name, e.description, e.keywords) for e in catalog if keep(e)], path)


def _found(catalog: Catalog, index: SearchIndex, query: str, limit: int) -> Found:
    return Found([(catalog.get(hit.id), hit.score) for hit in index.search(query, limit)], index.note)


class Document(NamedTuple):
    id: str
    name: str
    description: str
    keywords: tuple[str, ...] = ()


class Hit(NamedTuple):
    id: str
    score: float  # higher is better, within one answer


def open_search(documents: Sequence[Document], path: str | None = None) -> SearchIndex:
    """The index of these documents: the one in the file at `path`, or a new one to keep there. No path, no file."""
    ordered = sorted({document.id: document for document in documents}.values())
    ids = [document.id for document in ordered]
    if path is None:
        return SearchIndex(_build(ordered), ids)
    fingerprint = _fingerprint(ordered)
    connection, note, replaceable = _read(path, fingerprint)
    if connection is None:
        connection = _build(ordered)
        if replaceable:
            note = _write(path, fingerprint, connection) or note
    return SearchIndex(connection, ids, note)


class SearchIndex:
    """Open until closed; use it in a `with`. `note` is what a person should know about its file, or None."""

    def __init__(self, connection: sqlite3.Connection, ids: Sequence[str], note: str | None = None) -> None:
        self.note = note
        self._connection = connection
        self._one_at_a_time = Lock()  # any thread may ask, but a connection answers only one
        self._ids = ids  # row n of the index is ids[n - 1], so that ties by row are ties by id

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """The best first, ties by id. A hit has one of the words at least, and ranks higher for more and rarer ones."""
        for expression in _expressions(_query_terms(query)):
            with self._one_at_a_time:
                rows: list[tuple[int, float]] = self._connection.execute(
                    "SELECT rowid, -bm25(words, 4, 2, 1) AS score FROM words WHERE words MATCH ?"
                    " ORDER BY score DESC, rowid LIMIT ?",
                    (expression, max(0, min(limit, len(self._ids)))),
                ).fetchall()
            if rows:
                return [Hit(self._ids[row - 1], round(score, 4)) for row, score in rows]
        return []

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> SearchIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Chinese and Japanese have no spaces and Korean has endings: there a word is a character, or a pair of neighbours.
_HIRAGANA = "\u3041-\u3096"
_HAN = "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
_CJK_RUN = re.compile(f"([{_HAN}{_HIRAGANA}\u30a1-\u30fa\u30fc-\u30fe\uac00-\ud7a3]+)")
_WORD = re.compile(r"[^\W_]+")
_COMPOUND = re.compile(r"(?<![^\W_])[^\W_]++(?:[-_.][^\W_]++)+")
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# What nearly every request says, whatever it is about. Hiragana alone is grammar, as are some Chinese characters.
_STOP_WORDS = (
    " a an and any are as at be by can could do for from get have help how i in into is it its me my need of on or "
    " please should so some that the this to use user using want wants what when which with would you your "
)
_STOP_PAIRS = re.compile("一个|一下|一份|一些|如何|可以|需要|想要|使用")
_GRAMMAR = re.compile(f"[{_HIRAGANA}的了吗呢吧把被我你您他她它们这那帮么]")


def _query_terms(query: str) -> list[str]:
    """Up to 64 distinct words in their order, without those that say nothing unless there are no others."""
    text = _one_spelling(query[:10_000])
    # NUL, lone surrogates and every sign that is syntax to FTS5 are no part of a word, so they end here.
    telling = {word.lower(): None for word in _joined(text)}
    others: dict[str, None] = {}
    for word in filter(None, chain.from_iterable(map(_CJK_RUN.split, _WORD.findall(text)))):
        if _CJK_RUN.match(word):
            pairs = list(map(str.__add__, word, word[1:])) or [word]
            words = [pair for pair in pairs if not _GRAMMAR.search(pair)]
            paired = set("".join(words))
            # What stands alone between grammar, as the stem of a Japanese verb does, is a word of its own.
            words += [one for one in word if one not in paired and not _GRAMMAR.match(one)]
            telling.update(dict.fromkeys(one for one in words if not _STOP_PAIRS.fullmatch(one)))
            others.update(dict.fromkeys(pairs))
        else:
            word = word.lower()
            (others if f" {word} " in _STOP_WORDS else telling)[word] = None
    return list(telling or others)[:64]


def _expressions(terms: list[str]) -> Iterator[str]:
    """What to ask for, until something answers: the words; the beginning of the last one; the beginnings of all."""
    if terms:
        yield " OR ".join(f'"{term}"' for term in terms)
        yield f'"{terms[-1]}" *'
    # Three letters fewer, for a word half typed or one that the stemmer made shorter; characters instead of pairs.
    starts = [f'"{term[: max(4, len(term) - 3)]}" *' for term in terms if len(term) > 4 and not _CJK_RUN.match(term)]
    starts += [f'"{character}"' for term in terms if _CJK_RUN.match(term) for character in term]
    if starts:
        yield " OR ".join(starts)


def _index_text(text: str, *, is_name: bool = False) -> str:
    """A text that FTS5 splits into the right words, and those that it would not see: CsvReport is also Csv Report."""
    text = _one_spelling(text)
    extra = _joined(text)
    if is_name:
        extra += [_CASE_CHANGE.sub(" ", word) for word in text.split() if _CASE_CHANGE.search(word)]
    if not text.isascii():
        text = _CJK_RUN.sub(lambda run: f" {' '.join([*run[0], *map(str.__add__, run[0], run[0][1:])])} ", text)
    return " ".join([text, *extra]).encode("utf-8", "replace").decode()  # SQLite takes no lone surrogates


def _one_spelling(text: str) -> str:
    """NFKC, for full-width letters, half-width kana and accents."""
    from unicodedata import normalize

    return text if text.isascii() else normalize("NFKC", text)


def _joined(text: str) -> list[str]:
    """csv-report is also csvreport."""
    words = (re.sub("[-_.]", "", _CJK_RUN.sub("", compound)) for compound in _COMPOUND.findall(text))
    return list(filter(None, words))


# BM25 weighs a word by its rarity, which a catalog of five cannot tell: a word in three of them would weigh nothing. So
# a small catalog is weighed as part of a library of this size, the rest being rows that no query matches.
_LIBRARY = 256
_FILLER = "\ue000"


def _build(documents: Sequence[Document]) -> sqlite3.Connection:
    names = (_index_text(document.name, is_name=True) for document in documents)
    keywords = (_index_text(" ".join(document.keywords), is_name=True) for document in documents)
    rows = list(zip(names, keywords, (_index_text(document.description) for document in documents), strict=True))
    # As long as the average document, because BM25 compares lengths too.
    length = sum(text.count(" ") + 1 for row in rows for text in row if text) // max(1, len(rows))
    rows += [("", "", f"{_FILLER} " * length)] * (_LIBRARY - len(rows))
    connection = _connect()
    try:
        options = "content='', tokenize='porter unicode61 remove_diacritics 2'"
        connection.execute(f"CREATE VIRTUAL TABLE words USING fts5(name, keywords, description, {options})")
        connection.executemany("INSERT INTO words(name, keywords, description) VALUES (?, ?, ?)", rows)
        connection.execute("INSERT INTO words(words) VALUES ('optimize')")
        connection.commit()
    except BaseException as error:
        connection.close()
        if "no such module" in str(error):
            raise _unavailable("its SQLite is without full-text search (FTS5)") from error
        raise
    return connection


def _connect() -> sqlite3.Connection:
    try:
        import sqlite3
    except ImportError as error:
        raise _unavailable("it was built without SQLite") from error
    return sqlite3.connect(":memory:", check_same_thread=False)


def _unavailable(why: str) -> ProwessError:
    hint = "Use a Python whose sqlite3 has FTS5, such as one from python.org; everything but search works without."
    return ProwessError(f"This Python cannot search: {why}.", code="search-unavailable", hint=hint)


# The file: a line that says what it is, the fingerprint of its documents, the digest of the rest, an SQLite database.
_MAGIC = b"prowess search index\n"
_FORMAT = "1"  # change it when _index_text or the table changes
_FILE_LIMIT_BYTES = 1 << 28


def _read(path: str, fingerprint: bytes) -> tuple[sqlite3.Connection | None, str | None, bool]:
    """The index in the file if it is the right one; else what is wrong with the file, and whether to replace it."""
    try:
        data = read_regular(path, _FILE_LIMIT_BYTES)
    except FileNotFoundError:
        return None, None, True
    except OSError as error:
        return None, f"The search index {path} could not be read ({error})", True
    if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
        return None, f"{path} is no search index and was left alone: every search reads all skills", False
    made_from, digest, image = data[len(_MAGIC) :][:32], data[len(_MAGIC) + 32 :][:32], data[len(_MAGIC) + 64 :]
    if digest != _digest(made_from + image):
        return None, f"The search index {path} was damaged and has been built again", True
    if made_from != fingerprint:
        return None, None, True
    connection = _connect()
    try:
        connection.deserialize(image)
        connection.execute("SELECT rowid FROM words LIMIT 1")
    except (AttributeError, connection.Error) as error:  # an SQLite too old to read it
        connection.close()
        return None, f"The search index {path} could not be opened ({error})", True
    return connection, None, True


def _write(path: str, fingerprint: bytes, connection: sqlite3.Connection) -> str | None:
    """Keep the index for the next time, or say why not; it works either way."""
    try:
        image = connection.serialize()
        write_whole(path, _MAGIC + fingerprint + _digest(fingerprint + image) + image, mode=0o600)
    except (OSError, AttributeError) as error:  # AttributeError: an SQLite too old to serialize
        return f"The search index could not be kept in {path} ({error}); it is built anew each time."
    return None


def _fingerprint(documents: Sequence[Document]) -> bytes:
    fields = [field for d in documents for field in (d.id, d.name, d.description, " ".join(d.keywords))]
    # With the lengths, no two different lists of documents read alike.
    return _digest(f"{_FORMAT} {[*map(len, fields)]} {''.join(fields)}".encode("utf-8", "surrogatepass"))


def _digest(data: bytes) -> bytes:
    from hashlib import blake2b

    return blake2b(data, digest_size=32).digest()
