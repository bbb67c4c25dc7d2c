"""Full-text search over skills: name, keywords, description and the beginning of the body.

A query is only words, never syntax. The index is a cache. Its file may be deleted at any time. It is used only when it
was made from exactly these documents and no byte changed. Otherwise the index is built again, and `note` says what was
wrong with the file.
"""

from __future__ import annotations

import os
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from prowess._internal.files import read_regular, write_whole
from prowess.errors import ProwessError
from prowess.skills.entry_reader import read_opening
from prowess.skills.scan_cache import changed_ns

if TYPE_CHECKING:
    import sqlite3

    from prowess.skills.catalog import Catalog
    from prowess.skills.skill import Entry


class SearchResults(NamedTuple):
    """Skills that a search found, and a note about the index file, if any."""

    results: list[tuple[Entry, float]]  # best first, with scores
    note: str | None = None


def search_catalog(
    catalog: Catalog,
    query: str,
    *,
    limit: int = 10,
    path: str | None = None,
    keep: Callable[[Entry], bool] | None = None,
) -> SearchResults:
    """Finds skills by words, among those the model may see (or those that `keep` keeps)."""
    if keep is not None:
        with _open_catalog(catalog, path, keep) as index:
            return _found(catalog, index, query, limit)
    # A catalog never changes, so its index is opened once and closed together with it.
    index = _opened.get(catalog)
    if index is None:
        index = _open_catalog(catalog, path, lambda entry: catalog.visibility(entry).model_visible)
        _opened[catalog] = index
        weakref.finalize(catalog, index.close)
    return _found(catalog, index, query, limit)


_opened: weakref.WeakKeyDictionary[Catalog, SearchIndex] = weakref.WeakKeyDictionary()


def _open_catalog(catalog: Catalog, path: str | None, keep: Callable[[Entry], bool]) -> SearchIndex:
    entries = {entry.id: entry for entry in catalog if keep(entry)}

    def read_body(id: str) -> str:
        entry = entries[id]
        skill = catalog.memory_skill(entry)
        if skill is not None:
            return skill.body
        return read_opening(entry, BODY_CHARS)

    documents: list[SearchDocument] = []
    for id, entry in entries.items():
        stamp = _stamp(catalog, entry)
        documents.append(SearchDocument(id, entry.name, entry.description, entry.keywords, stamp))
    return open_search(documents, path, read_body)


def _stamp(catalog: Catalog, entry: Entry) -> str:
    skill = catalog.memory_skill(entry)
    if skill is not None:
        return skill.digest
    try:
        found = os.stat(entry.location)
    except OSError:
        return ""
    return f"{changed_ns(found)} {found.st_size} {found.st_ino}"


def _found(catalog: Catalog, index: SearchIndex, query: str, limit: int) -> SearchResults:
    """Searches the index of a catalog."""
    results: list[tuple[Entry, float]] = []
    hits = index.search(query, limit)
    for hit in hits:
        entry = catalog.get(hit.id)
        results.append((entry, hit.score))
    return SearchResults(results, index.note)


class SearchDocument(NamedTuple):
    id: str
    name: str
    description: str
    keywords: tuple[str, ...] = ()
    stamp: str = ""  # changes whenever the body may have changed


class Hit(NamedTuple):
    id: str
    score: float  # higher is better; comparable within one answer only


def open_search(
    documents: Sequence[SearchDocument], path: str | None = None, read_body: Callable[[str], str] = lambda id: ""
) -> SearchIndex:
    """Returns the index of these documents, from the file at `path` or newly built and saved there. Without a path
    there is no file. Bodies are read, by id, only for a new index."""
    ordered = sorted({document.id: document for document in documents}.values())
    ids = [document.id for document in ordered]
    if path is None:
        return SearchIndex(_build(ordered, read_body), ids)
    fingerprint = _fingerprint(ordered)
    connection, note, replaceable = _read(path, fingerprint)
    if connection is None:
        connection = _build(ordered, read_body)
        if replaceable:
            note = _write(path, fingerprint, connection) or note
    return SearchIndex(connection, ids, note)


# Weights of name, keywords and description, then of the body. docs/catalog.md describes the measurement.
_SEARCH = """
    SELECT rowid, sum(score) AS score FROM (
        SELECT rowid, -bm25(words, 1.5, 1.25, 1) AS score FROM words WHERE words MATCH ?1
        UNION ALL SELECT rowid, -0.3 * bm25(bodies) AS score FROM bodies WHERE bodies MATCH ?1
    ) GROUP BY rowid ORDER BY sum(score) DESC, rowid LIMIT ?2
"""


class SearchIndex:
    """Search index, open until closed; use it in a `with`. `note` is a message about its file, or None."""

    def __init__(self, connection: sqlite3.Connection, ids: Sequence[str], note: str | None = None) -> None:
        self.note = note
        self._connection = connection
        self._one_at_a_time = Lock()  # any thread may search, but a connection serves one at a time
        self._ids = ids  # row n of the index is ids[n - 1], so ties by row are ties by id

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """Returns hits, best first, ties by id. A hit has at least one of the words. More and rarer words rank
        higher."""
        most = max(0, min(limit, len(self._ids)))
        terms = _query_terms(query)
        name = _whole_name(query)
        for expression in _expressions(terms, name):
            with self._one_at_a_time:
                found = self._connection.execute(_SEARCH, (expression, most))
                rows: list[tuple[int, float]] = found.fetchall()
            hits: list[Hit] = []
            for row, score in rows:
                id = self._ids[row - 1]
                hits.append(Hit(id, round(score, 4)))
            if hits:
                return hits
        return []

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> SearchIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Chinese and Japanese have no spaces and Korean has endings. There, a word is a character or a pair of neighbours.
_HIRAGANA = "\u3041-\u3096"
_HAN = "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
_CJK_RUN = re.compile(f"([{_HAN}{_HIRAGANA}\u30a1-\u30fa\u30fc-\u30fe\uac00-\ud7a3]+)")
_WORD = re.compile(r"[^\W_]+")
_COMPOUND = re.compile(r"(?<![^\W_])[^\W_]++(?:[-_.][^\W_]++)+")
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Words that nearly every request contains. Hiragana alone is grammar, and so are some Chinese characters.
_STOP_WORDS = (
    " a an and any are as at be by can could do for from get have help how i in into is it its me my need of on or "
    " please should so some that the this to use user using want wants what when which with would you your "
    " am been did does had has if our their them these they those us was we were who will "
)
_STOP_PAIRS = re.compile("一个|一下|一份|一些|如何|可以|需要|想要|使用")
_GRAMMAR = re.compile(f"[{_HIRAGANA}的了吗呢吧把被我你您他她它们这那帮么]")


def _query_terms(query: str) -> list[str]:
    """Returns up to 64 distinct words in order. Stop words are used only when there are no others."""
    telling, others = _split_terms(query)
    return list(telling or others)[:64]


def find_telling_words(query: str) -> list[str]:
    """Returns the distinct words of a query that are no stop words; of Chinese words, the pairs of characters."""
    return list(_split_terms(query)[0])


def _split_terms(query: str) -> tuple[dict[str, None], dict[str, None]]:
    """Returns (useful words, stop words)."""
    text = _one_spelling(query[:10_000])
    # NUL, lone surrogates and FTS5 syntax are no part of a word, so they are dropped here.
    telling = {word.lower(): None for word in _joined(text)}
    others: dict[str, None] = {}
    for word in _WORD.findall(text):
        for piece in _CJK_RUN.split(word):
            if _CJK_RUN.match(piece):
                telling |= dict.fromkeys(_telling_characters(piece))
                others |= dict.fromkeys(_pairs(piece))
            elif piece:
                lowered = piece.lower()
                kind = others if f" {lowered} " in _STOP_WORDS else telling
                kind[lowered] = None
    return telling, others


def _pairs(run: str) -> list[str]:
    """Returns the pairs of neighbours in a run of characters; a character alone."""
    return list(map(str.__add__, run, run[1:])) or [run]


def _telling_characters(run: str) -> list[str]:
    """Returns the pairs of characters that are no grammar and no stop words."""
    words = [pair for pair in _pairs(run) if not _GRAMMAR.search(pair)]
    paired = set("".join(words))
    # A character alone between grammar, such as the stem of a Japanese verb, is a word of its own.
    words += [one for one in run if one not in paired and not _GRAMMAR.match(one)]
    return [word for word in words if not _STOP_PAIRS.fullmatch(word)]


# A name is also indexed as one word with this sign before it, so a search for the exact name finds it first.
_NAME = "\ue001"


def _whole_name(text: str) -> str:
    """Returns the word that stands for a whole name in the index."""
    spelling = _one_spelling(text[:100])
    words = _WORD.findall(spelling)
    return _NAME + "".join(words).lower()


def _expressions(terms: list[str], name: str) -> Iterator[str]:
    """Yields FTS5 expressions to try until one has hits: the words; the beginning of the last word; the beginnings of
    all words."""
    if terms:
        yield " OR ".join(f'"{term}"' for term in [*terms, name])
        yield f'"{terms[-1]}" *'
    # Three letters fewer, for a half-typed word or one that the stemmer shortened; characters instead of pairs.
    starts: list[str] = []
    characters: list[str] = []
    for term in terms:
        if _CJK_RUN.match(term):
            characters += [f'"{character}"' for character in term]
        elif len(term) > 4:
            length = max(4, len(term) - 3)
            starts.append(f'"{term[:length]}" *')
    if starts or characters:
        yield " OR ".join(starts + characters)


def _index_text(text: str, *, is_name: bool = False) -> str:
    """Prepares text so that FTS5 splits it into the right words. Adds words that FTS5 would miss: CsvReport is also Csv
    Report."""
    text = _one_spelling(text)
    extra = _joined(text)
    if is_name:
        extra += [_CASE_CHANGE.sub(" ", word) for word in text.split() if _CASE_CHANGE.search(word)]
    if not text.isascii():
        text = _CJK_RUN.sub(_spaced, text)
    indexed = " ".join([text, *extra])
    return indexed.encode("utf-8", "replace").decode()  # SQLite accepts no lone surrogates


def _spaced(found: re.Match[str]) -> str:
    """Returns the characters of a run and their pairs, with spaces around each."""
    run = found[0]
    pairs = map(str.__add__, run, run[1:])
    words = " ".join([*run, *pairs])
    return f" {words} "


def _one_spelling(text: str) -> str:
    """Normalises full-width letters, half-width kana and accents (NFKC)."""
    from unicodedata import normalize

    if text.isascii():
        return text
    return normalize("NFKC", text)


def _joined(text: str) -> list[str]:
    """Joins compound words: csv-report is also csvreport."""
    joined: list[str] = []
    for compound in _COMPOUND.findall(text):
        word = re.sub("[-_.]", "", _CJK_RUN.sub("", compound))
        if word:
            joined.append(word)
    return joined


# BM25 weighs a word by its rarity. In a catalog of five that fails: a word in three of them would weigh nothing. So a
# small catalog is padded to this size with rows that no query matches.
_LIBRARY = 256
_FILLER = "\ue000"


BODY_CHARS = 1500
_BODY_WORDS = 64
_COMMON = 0.05  # a word that more bodies than this have is ignored,
_FEW = 8  # except that this many bodies may share a word in any library


def _body_texts(bodies: Iterable[str]) -> Iterator[str]:
    """Yields the rarest words of each body, each once. Every body gets the same number of words, so the index stays
    small and long bodies have no advantage. Bodies have their own table, because BM25 compares the lengths of rows."""
    same: dict[str, str] = {}  # one object per word, to save memory
    words: list[list[str]] = []
    for body in bodies:
        some = _body_words(body[:BODY_CHARS])
        words.append(list(map(same.setdefault, some, some)))
    count = Counter(chain.from_iterable(words))
    most = max(_FEW, _COMMON * len(words))
    common = {word for word, bodies_with_it in count.items() if bodies_with_it > most}
    for some in words:
        telling = [word for word in some if word not in common]
        telling.sort(key=count.__getitem__)
        rarest = telling[:_BODY_WORDS]
        fillers = [_FILLER] * (_BODY_WORDS - len(rarest))
        yield " ".join(rarest + fillers)


# Most bodies have no letters beyond ASCII, only dashes, arrows and emoji. Splitting bytes is much faster.
_OTHER_LETTER = re.compile(r"[^\W\x00-\x7f]")
_ASCII_WORDS = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else 32 for byte in range(256))


def _body_words(body: str) -> dict[str, None]:
    if not _OTHER_LETTER.search(body):
        plain = body.encode("ascii", "replace").translate(_ASCII_WORDS)
        return dict.fromkeys(plain.decode().split())
    pieces = _CJK_RUN.split(_one_spelling(body).lower())
    words = dict.fromkeys(_WORD.findall(" ".join(pieces[::2])))
    for run in pieces[1::2]:
        words.update(dict.fromkeys(_pairs(run)))
    return words


def _build(documents: Sequence[SearchDocument], read_body: Callable[[str], str]) -> sqlite3.Connection:
    rows = [_index_row(document) for document in documents]
    bodies = list(_body_texts(read_body(document.id) for document in documents))
    # As long as the average document, because BM25 also compares lengths.
    words = sum(text.count(" ") + 1 for row in rows for text in row if text)
    length = words // max(1, len(rows))
    rows += [("", "", f"{_FILLER} " * length)] * (_LIBRARY - len(rows))
    bodies += [f"{_FILLER} " * _BODY_WORDS] * (_LIBRARY - len(bodies))
    connection = _connect()
    try:
        options = "content='', tokenize='porter unicode61 remove_diacritics 2'"
        connection.execute(f"CREATE VIRTUAL TABLE words USING fts5(name, keywords, description, {options})")
        connection.executemany("INSERT INTO words(name, keywords, description) VALUES (?, ?, ?)", rows)
        connection.execute("INSERT INTO words(words) VALUES ('optimize')")
        connection.execute(f"CREATE VIRTUAL TABLE bodies USING fts5(body, {options})")
        connection.executemany("INSERT INTO bodies(body) VALUES (?)", zip(bodies))
        connection.execute("INSERT INTO bodies(bodies) VALUES ('optimize')")
        connection.commit()
    except BaseException as error:
        connection.close()
        if "no such module" in str(error):
            raise _unavailable("its SQLite is without full-text search (FTS5)") from error
        raise
    return connection


def _index_row(document: SearchDocument) -> tuple[str, str, str]:
    """Returns the texts of name, keywords and description."""
    name = _index_text(document.name, is_name=True)
    keywords = _index_text(" ".join(document.keywords), is_name=True)
    description = _index_text(document.description)
    return f"{name} {_whole_name(document.name)}", keywords, description


def _connect() -> sqlite3.Connection:
    try:
        import sqlite3
    except ImportError as error:
        raise _unavailable("it was built without SQLite") from error
    return sqlite3.connect(":memory:", check_same_thread=False)


def _unavailable(why: str) -> ProwessError:
    hint = "Use a Python whose sqlite3 has FTS5, such as one from python.org; everything but search works without."
    return ProwessError(f"This Python cannot search: {why}.", code="search-unavailable", hint=hint)


# The file: a magic line, the fingerprint of its documents, the digest of the rest, an SQLite database.
_MAGIC = b"prowess search index\n"
_FORMAT = "3"  # change it when _index_text, _body_texts or the table changes
_FILE_LIMIT_BYTES = 1 << 28


def _read(path: str, fingerprint: bytes) -> tuple[sqlite3.Connection | None, str | None, bool]:
    """Reads the index from the file if it fits. Otherwise returns a note about the problem, and whether to replace the
    file."""
    try:
        data = read_regular(path, _FILE_LIMIT_BYTES)
    except FileNotFoundError:
        return None, None, True
    except OSError as error:
        return None, f"The search index {path} could not be read ({error})", True
    start = len(_MAGIC)
    if data[:start] != _MAGIC[: len(data)]:
        return None, f"{path} is no search index and was left alone: every search reads all skills", False
    made_from = data[start : start + 32]
    digest = data[start + 32 : start + 64]
    image = data[start + 64 :]
    if digest != _digest(made_from + image):
        return None, f"The search index {path} was damaged and has been built again", True
    if made_from != fingerprint:
        return None, None, True
    connection = _connect()
    try:
        connection.deserialize(image)
        connection.execute("SELECT rowid FROM words LIMIT 1")
    except (AttributeError, connection.Error) as error:  # this SQLite is too old to read it
        connection.close()
        return None, f"The search index {path} could not be opened ({error})", True
    return connection, None, True


def _write(path: str, fingerprint: bytes, connection: sqlite3.Connection) -> str | None:
    """Saves the index for next time. Returns a note when that fails; the index works anyway."""
    try:
        image = connection.serialize()
        digest = _digest(fingerprint + image)
        write_whole(path, _MAGIC + fingerprint + digest + image, mode=0o600)
    except (OSError, AttributeError) as error:  # AttributeError: this SQLite is too old to serialize
        return f"The search index could not be kept in {path} ({error}); it is built anew each time."
    return None


def _fingerprint(documents: Sequence[SearchDocument]) -> bytes:
    """Returns a digest of everything that the index is made from."""
    fields: list[str] = []
    for document in documents:
        keywords = " ".join(document.keywords)
        fields += [document.id, document.name, document.description, keywords, document.stamp]
    # The lengths make sure that different lists of documents never give the same text.
    lengths = list(map(len, fields))
    whole = "".join(fields)
    text = f"{_FORMAT} {lengths} {whole}"
    return _digest(text.encode("utf-8", "surrogatepass"))


def _digest(data: bytes) -> bytes:
    from hashlib import blake2b

    return blake2b(data, digest_size=32).digest()
