#!/usr/bin/env python3
"""Count words, sentences, reading time, frequent words and characters by script of a text; write out/stats.json.

Chinese and Japanese characters count one by one, everything else by words. The same text always gives the same file.

Exit codes: 0 done, 2 wrong arguments, 3 the input cannot be read, 5 the output cannot be written.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import re
import stat
import sys
import unicodedata
from collections import Counter
from pathlib import Path

MAX_BYTES = 50_000_000
CJK = ("han", "hiragana", "katakana", "bopomofo")
ENGLISH_STOP_WORDS = frozenset(
    "a about after all also am an and any are as at be because been before being but by can could did do does "
    "doing down during each for from further had has have having he her here hers him his how i if in into is it "
    "it's its itself just me more most my no nor not now of off on once only or other our out over own same she "
    "should so some such than that the their theirs them then there these they this those through to too under "
    "until up us very was we were what when where which while who whom why will with would you your yours don't "
    "didn't doesn't i'm i've we're you're they're that's there's can't won't".split()
)
HAN_STOP_CHARACTERS = frozenset("的了是在和有与及或等也都就而但不这那之其为以于把被让我你他她它们个一")
ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st vs etc e.g i.e fig no vol dept inc ltd co approx ca cf al bzw z.b u.a".split()
)

SCRIPTS = frozenset(
    "arabic armenian bengali bopomofo cyrillic devanagari ethiopic georgian greek gujarati gurmukhi hangul hebrew "
    "hiragana kannada katakana khmer lao latin malayalam mongolian myanmar sinhala tamil telugu thai tibetan".split()
)
UNSPACED = ("khmer", "lao", "myanmar", "thai")

# One character for each class of character, so that words are found by a regular expression over classes.
_WORD = re.compile(r"[wd]+(?:['-][wd]+|[.,]d+)*")
_HAN_RUN = re.compile(r"h{2,}")
_END = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’)\]»]*(?=\s|$)|[。！？…]+[”’」』）\"]*")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+•#]|\d+[.)])\s)")


class Problem(Exception):
    """Ends the script with one line on stderr and this exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(argv: list[str]) -> int:
    args = parse_arguments(argv)
    text = unicodedata.normalize("NFC", read_input(args.text_file, args.encoding))
    found = measure(text, top=args.top, wpm=args.wpm, cpm=args.cpm, all_words=args.all_words)
    name = "standard input" if args.text_file == "-" else os.path.basename(args.text_file)
    path = Path(args.out)
    if args.text_file != "-" and path.exists() and path.samefile(args.text_file):
        raise Problem(5, f"{path}: this is the input and is not overwritten; pass another --out")
    write_output(path, json.dumps({"file": name, **found}, ensure_ascii=False, indent=2) + "\n")
    words, time = found["words"], found["reading_time"]
    print(f"words: {words['total']}, of which {words['cjk_characters']} are Chinese or Japanese characters")
    print(f"sentences: {found['sentences']}")
    print(f"reading time: {time['text']}")
    print("frequent:", ", ".join(f"{row['word']} ({row['count']})" for row in found["frequent_words"][:5]) or "none")
    for note in found["notes"]:
        print(f"note: {note}")
    print(f"wrote {path}")
    return 0


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = Parser(prog="stats.py", description=summary, epilog=rest)
    parser.add_argument("text_file", help="a text in UTF-8 or UTF-16; '-' reads standard input")
    parser.add_argument("--top", type=whole(1, 1000), default=10, help="so many frequent words (default: 10)")
    parser.add_argument("--wpm", type=whole(1, 5000), default=230, help="words a minute of a reader (default: 230)")
    parser.add_argument(
        "--cpm", type=whole(1, 5000), default=400, help="Chinese or Japanese characters a minute (default: 400)"
    )
    parser.add_argument(
        "--all-words", action="store_true", help="count words such as 'the' and 的 among the frequent ones"
    )
    parser.add_argument("--encoding", default="utf-8", help="for instance gb18030 or cp1252 (default: utf-8)")
    parser.add_argument("--out", default="out/stats.json", metavar="FILE", help="default: out/stats.json")
    return parser.parse_args(argv)


# --- counting -------------------------------------------------------------------------------------------------------


def measure(text: str, *, top: int, wpm: int, cpm: int, all_words: bool) -> dict:
    characters = Counter(text)
    scripts = {character: script_of(character) for character in characters}
    classes = text.translate({ord(character): class_of(character, scripts[character]) for character in characters})
    words = [text[found.start() : found.end()].replace("’", "'").lower() for found in _WORD.finditer(classes)]
    cjk = sum(times for character, times in characters.items() if scripts[character] in CJK)
    lengths = [len(word) for word in words]
    sentences = count_sentences(text, classes)
    total = len(words) + cjk
    seconds = -(-(60 * len(words) * cpm + 60 * cjk * wpm) // (wpm * cpm))  # rounded up
    by_script = Counter()
    for character, times in characters.items():
        by_script[scripts[character]] += times
    unspaced = [script for script in UNSPACED if by_script[script]]
    frequent = Counter(words) if all_words else Counter(word for word in words if keeps(word))
    return {
        "characters": {
            "total": len(text) - characters["\n"],
            "without_spaces": sum(times for character, times in characters.items() if not character.isspace()),
            "by_script": {
                script: by_script[script] for script in sorted(by_script) if script not in ("space", "other")
            },
        },
        "words": {
            "total": total,
            "spaced": len(words),
            "cjk_characters": cjk,
            "distinct": len(set(words)),
            "average_length": round(sum(lengths) / len(lengths), 2) if lengths else 0,
        },
        "sentences": sentences,
        "average_sentence_length": round(total / sentences, 2) if sentences else 0,
        "lines": len(text.splitlines()),
        "paragraphs": len([block for block in re.split(r"\n\s*\n", text) if block.strip()]),
        "reading_time": {
            "seconds": seconds,
            "text": spoken(seconds),
            "words_per_minute": wpm,
            "cjk_characters_per_minute": cpm,
        },
        "frequent_words": ranked(frequent, top, "word"),
        "frequent_han_pairs": ranked(han_pairs(text, classes, all_words), top, "pair"),
        "notes": [f"{script} is written without spaces; its words are counted too low" for script in unspaced],
    }


def script_of(character: str) -> str:
    """latin, han, hangul, …; 'digits', 'punctuation', 'symbols', 'marks', 'space' for what belongs to no script."""
    if character.isspace():
        return "space"
    name = unicodedata.name(character, "")
    if name.startswith(("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "IDEOGRAPHIC ITERATION", "IDEOGRAPHIC NUMBER")):
        return "han"
    if name.startswith(("KATAKANA", "HALFWIDTH KATAKANA")) and "MIDDLE DOT" not in name:
        return "katakana"
    kind = unicodedata.category(character)[0]
    if kind in "LM":  # a mark belongs to the script it is written with
        first = name.removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ").split(" ")[0].lower()
        return first if first in SCRIPTS else "other_letters" if kind == "L" else "marks"
    return {"N": "digits", "P": "punctuation", "S": "symbols"}.get(kind, "other")


def class_of(character: str, script: str) -> str:
    if script == "han":
        return "h"
    if script in CJK:
        return "k"
    if character in "'’":
        return "'"
    if character in "-‐‑":
        return "-"
    if character in ".,":
        return character
    if script == "digits":
        return "d" if character.isdecimal() else " "
    return " " if script in ("space", "punctuation", "symbols", "other") else "w"


def count_sentences(text: str, classes: str) -> int:
    """A sentence ends at its mark, at a blank line, or where a new list item or heading begins."""
    total, start = 0, 0
    for end in [*(found.start() for found in _BLOCK.finditer(text)), len(text)]:
        at = start
        for mark in _END.finditer(text, start, end):
            if ends_sentence(text, mark, end) and has_words(classes, at, mark.start()):
                total, at = total + 1, mark.end()
        total += has_words(classes, at, end)
        start = end
    return total


def ends_sentence(text: str, mark: re.Match, end: int) -> bool:
    if mark[0][0] != ".":
        return True
    before = text[max(0, mark.start() - 20) : mark.start()].split()
    word = before[-1].lstrip("(\"'“‘").lower() if before else ""
    if word in ABBREVIATIONS or (len(word) == 1 and word.isalpha()):
        return False
    after = text[mark.end() : min(end, mark.end() + 20)].lstrip()
    return not after or not after[0].islower()


def has_words(classes: str, start: int, end: int) -> bool:
    return any(letter in "wdhk" for letter in classes[start:end])


def keeps(word: str) -> bool:
    return word not in ENGLISH_STOP_WORDS and any(character.isalpha() for character in word) and len(word) > 1


def han_pairs(text: str, classes: str, all_words: bool) -> Counter:
    """Two neighbouring Chinese characters: not yet words, and near enough to see what a text is about."""
    pairs: Counter = Counter()
    for run in _HAN_RUN.finditer(classes):
        for at in range(run.start(), run.end() - 1):
            pair = text[at : at + 2]
            if all_words or HAN_STOP_CHARACTERS.isdisjoint(pair):
                pairs[pair] += 1
    return Counter({pair: times for pair, times in pairs.items() if times > 1})


def ranked(counter: Counter, top: int, key: str) -> list[dict]:
    rows = sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
    return [{key: text, "count": times} for text, times in rows]


def spoken(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    hours, minutes = divmod(-(-seconds // 60), 60)  # a started minute counts
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


# --- files and arguments --------------------------------------------------------------------------------------------


def read_input(name: str, encoding: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            facts = os.stat(name)
            if not stat.S_ISREG(facts.st_mode):
                raise Problem(3, f"{name}: this is not a regular file")
            data = Path(name).read_bytes() if facts.st_size <= MAX_BYTES else b" " * (MAX_BYTES + 1)
    except OSError as error:
        raise Problem(3, f"{name}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > MAX_BYTES:
        raise Problem(3, f"{name}: more than {MAX_BYTES // 1_000_000} MB; take a part of it")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        text = data.decode("utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding)
    except LookupError:
        raise Problem(2, f"there is no encoding '{encoding}'") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Problem(
            3, f"{name}:{line}: not {encoding} text; pass --encoding, for instance gb18030 or cp1252"
        ) from None
    if "\0" in text:
        raise Problem(3, f"{name}: this is a binary file, not a text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def write_output(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(text.encode("utf-8", "backslashreplace"))
        os.replace(part, path)
    except OSError as error:
        raise Problem(5, f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


class Parser(argparse.ArgumentParser):
    def error(self, message: str):  # type: ignore[override]
        raise Problem(2, f"{message}; see: python3 scripts/{self.prog} --help")


def whole(least: int, most: int):
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} to {most}")
        return int(text)

    return parse


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except Problem as problem:
        print(f"stats.py: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(problem.code)
