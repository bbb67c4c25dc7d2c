"""Questions in the form of the GAIA benchmark, answered with skills and file tools, and scored.

Without arguments it answers three questions of our own with the offline planner, without a key, and prints:

    right  rows-of-a-table     4
    right  sum-of-a-column     1234.5
    right  word-in-a-text      3
    3 of 3 right

README.md beside this file says how to get the real questions, and what skills for sound and pictures need:

python examples/gaia/run.py --data examples/gaia/data/2023_level1_validation.json --model openai:gpt-5 --limit 5
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import prowess

HERE = Path(__file__).parent
NO_QUESTION_CAN_BE_ASKED = ("model-no-key", "model-auth", "model-unknown", "model-incomplete")
INSTRUCTIONS = """\
Answer the question. Use skills and tools for what they can do; look into given files with them.
End with one line, `FINAL ANSWER: …`: a number without units, a few words, or a list of these with commas.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Answer questions in the form of the GAIA benchmark.")
    parser.add_argument("--data", type=Path, default=HERE / "sample" / "questions.json", help="made by download.py")
    parser.add_argument("--model", default="offline", help="offline, openai:NAME or anthropic:NAME")
    parser.add_argument("--skills", action="append", default=[], metavar="DIR", help="more folders of skills")
    parser.add_argument("--limit", type=int, default=None, help="only the first N questions, at least 1")
    options = parser.parse_args()
    if options.limit is not None and options.limit < 1:
        parser.error("--limit is a number of questions, at least 1")
    try:
        questions = json.loads(options.data.read_text(encoding="utf-8"))["questions"][: options.limit]
        check(questions, options.data.parent)
    except (OSError, ValueError, LookupError, TypeError) as error:
        print(f"{options.data} cannot be read: {error}. download.py makes such a file.", file=sys.stderr)
        return 2
    right = unanswered = 0
    for question in questions:
        try:
            got = answer(question, options.data.parent, options.model, options.skills)
        except prowess.ProwessError as error:
            if error.code in NO_QUESTION_CAN_BE_ASKED:
                print(f"{error.message} {error.hint or ''} [{error.code}]", file=sys.stderr)
                return 2
            print(f"{question['task_id']}: {error.message} {error.hint or ''} [{error.code}]", file=sys.stderr)
            got = None
        is_right = got is not None and same(got, question["answer"])
        right, unanswered = right + is_right, unanswered + (got is None)
        told = "no answer" if got is None else got
        wanted = "" if is_right else f"  (expected: {question['answer']})"
        print(f"{'right' if is_right else 'WRONG'}  {question['task_id']:<18}  {told}{wanted}")
    print(f"{right} of {len(questions)} right")
    return 1 if unanswered else 0


def check(questions: list[dict[str, Any]], folder: Path) -> None:
    """Files are those beside the data: nothing else of this machine goes to a model because a data file names it."""
    for question in questions:
        if missing := [key for key in ("task_id", "question", "answer") if not isinstance(question.get(key), str)]:
            raise ValueError(f"question {question.get('task_id', '?')} has no text '{missing[0]}'")
        file = question.get("file")
        if file and not (folder / file).resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"question {question['task_id']} names the file '{file}', which is not below {folder}")


def answer(question: dict[str, Any], folder: Path, model: str, skills: list[str]) -> str | None:
    """The final answer; None, and a line on stderr, when there is none."""
    file = folder / question["file"] if question.get("file") else None
    if file is not None and not file.exists():
        print(f"{question['task_id']}: {file} is not there. Run download.py --with-files.", file=sys.stderr)
        return None
    result = prowess.run_sync(
        question["question"],
        files=[] if file is None else [file],
        skills=[HERE / "skills", *skills],
        model=model,
        instructions=INSTRUCTIONS,
        approve=["skill_run"],  # where nothing isolates scripts, this allows them; look at your skills first
        store="memory:",
        artifacts="memory:",
    )
    if result.code in NO_QUESTION_CAN_BE_ASKED:
        raise prowess.ProwessError(result.text, code=result.code)
    if not result.ok:
        print(f"{question['task_id']}: {result.code or result.stop_reason}: {result.text}", file=sys.stderr)
        return None
    found = re.findall(r"FINAL ANSWER: *(.*)", result.text, re.IGNORECASE)
    return (found[-1] if found else result.text).strip()


def same(given: str, expected: str) -> bool:
    """The benchmark's idea of it: numbers by value, lists item by item, texts without case, spaces and punctuation."""
    if (number := as_number(expected)) is not None:
        return as_number(given) == number
    wanted, items = (re.split(r"[,;]", text) for text in (expected, given))
    if len(wanted) > 1:
        return len(items) == len(wanted) and all(map(same, items, wanted))
    return re.sub(r"[\W_]+", "", given.lower()) == re.sub(r"[\W_]+", "", expected.lower())


def as_number(text: str) -> float | None:
    try:
        return float(re.sub(r"[$%,\s]", "", text))
    except ValueError:
        return None


if __name__ == "__main__":
    sys.exit(main())
