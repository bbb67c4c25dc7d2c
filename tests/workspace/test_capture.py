"""What is kept of a stream is its start and its end, whatever the pieces were that it came in."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from prowess.workspace.output_capture import Capture

LIMITS = st.integers(0, 40)
MARK = re.compile("\n\\[… (\\d+) bytes left out …\\]\n")


def captured(pieces: list[bytes], limit: int, **more: object) -> Capture:
    capture = Capture(limit, **more)  # type: ignore[arg-type]
    for piece in pieces:
        capture.feed(piece)
    capture.finish()
    return capture


@given(st.lists(st.binary(max_size=30)), LIMITS)
def test_head_and_tail_are_those_of_the_stream(pieces: list[bytes], limit: int) -> None:
    whole = b"".join(pieces)
    capture = captured(pieces, limit)
    assert capture.seen_bytes == capture.total_bytes == len(whole)
    assert capture.truncated == (len(whole) > limit)
    kept = capture.data
    assert len(kept) + capture.omitted_bytes == len(whole)
    assert len(kept) <= limit
    if not capture.truncated:
        assert kept == whole and capture.text == whole.decode("utf-8", "replace")
    else:
        assert len(kept) >= limit - 6  # of each half, at most three bytes of a character
        assert any(whole.startswith(kept[:cut]) and whole.endswith(kept[cut:]) for cut in range(len(kept) + 1))


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)), LIMITS)
def test_how_it_was_cut_into_pieces_makes_no_difference(whole: bytes, cuts: list[int], limit: int) -> None:
    places = [0, *sorted(cut for cut in cuts if cut <= len(whole)), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(places)]
    assert captured(pieces, limit).text == captured([whole], limit).text


@given(st.text(max_size=80), LIMITS)
def test_a_character_is_never_split(text: str, limit: int) -> None:
    text = text.replace("�", "?").replace("…", ".")
    capture = captured([text.encode("utf-8", "replace")], limit)
    text = text.encode("utf-8", "replace").decode()
    assert "�" not in capture.text
    if capture.truncated:
        found = MARK.search(capture.text)
        assert found is not None
        head, tail = capture.text[: found.start()], capture.text[found.end() :]
        assert text.startswith(head) and text.endswith(tail)
        left_out = len(text.encode()) - len(head.encode()) - len(tail.encode())
        assert int(found[1]) == capture.omitted_bytes == left_out


@given(st.lists(st.binary(max_size=30)), LIMITS)
def test_the_spill_is_the_whole_stream(pieces: list[bytes], limit: int) -> None:
    spilled = bytearray()
    captured(pieces, limit, spill=spilled.extend)
    assert bytes(spilled) == b"".join(pieces)


class Hide:
    """Replaces a word, and holds back whatever could be the beginning of it."""

    def __init__(self, word: bytes) -> None:
        self.word, self.held = word, b""

    def feed(self, data: bytes) -> bytes:
        self.held = (self.held + data).replace(self.word, b"[hidden]")
        kept = max(0, len(self.held) - len(self.word) + 1)
        ready, self.held = self.held[:kept], self.held[kept:]
        return ready

    def flush(self) -> bytes:
        return b""

    def finish(self) -> bytes:
        return self.held


@given(st.lists(st.sampled_from([b"sec", b"ret", b"secret", b"-", b"s"])), st.integers(1, 5), LIMITS)
def test_what_the_transform_hides_is_neither_kept_nor_spilled(words: list[bytes], size: int, limit: int) -> None:
    whole = b"".join(words)
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    spilled = bytearray()
    capture = captured(pieces, limit, spill=spilled.extend, transform=Hide(b"secret"))
    assert bytes(spilled) == whole.replace(b"secret", b"[hidden]")
    assert capture.seen_bytes == len(whole) and capture.total_bytes == len(spilled)
    assert b"secret" not in capture.data[: limit - limit // 2]
    assert b"secret" not in capture.data[limit - limit // 2 :]


def test_memory_does_not_grow_with_the_stream() -> None:
    capture = Capture()
    chunk = b"0123456789abcdef" * 4096
    capture.feed(chunk)
    tracemalloc.start()
    try:
        for _ in range(1600):
            capture.feed(chunk)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert capture.total_bytes == 1601 * len(chunk)
    assert capture.text.startswith("0123456789abcdef0") and capture.text.endswith("9abcdef")
    assert len(capture.data) == 16 * 1024


def test_a_stream_of_single_bytes_is_not_slow_and_right() -> None:
    capture = Capture(10)
    for number in range(1000):
        capture.feed(b"%d" % (number % 10))
    assert capture.data == b"0123456789"
    assert capture.text == "01234\n[… 990 bytes left out …]\n56789"
