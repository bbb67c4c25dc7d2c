"""Downloads the questions of the GAIA benchmark for run.py, and with --with-files the files that belong to them.

HF_TOKEN=hf_... python examples/gaia/download.py [--with-files]

The dataset is gated: accept its terms at https://huggingface.co/datasets/gaia-benchmark/GAIA first, and make a token
that may read it. Its authors ask that nobody publishes the questions again; examples/gaia/data is left out of git.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

DATASET = "gaia-benchmark/GAIA"
PAGE = 100  # rows; the server gives no more at once
MOST_ROWS = 10_000  # all questions are far fewer


def main() -> int:
    parser = argparse.ArgumentParser(description="Download the questions of the GAIA benchmark.")
    parser.add_argument("--config", default="2023_level1", help="2023_level1, 2023_level2, 2023_level3 or 2023_all")
    parser.add_argument("--split", default="validation", help="only validation has the answers")
    parser.add_argument("--with-files", action="store_true", help="also the files that questions are about")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data", metavar="DIR")
    parser.add_argument("--server", default="https://datasets-server.huggingface.co", help="that has the rows")
    parser.add_argument("--hub", default=os.environ.get("HF_ENDPOINT", "https://huggingface.co"), help="with the files")
    options = parser.parse_args()
    token = os.environ.get("HF_TOKEN", "")
    if not token:
        print("HF_TOKEN is not set. Accept the terms of the dataset and make a token: see README.md.", file=sys.stderr)
        return 2
    # httpx sends the token to these two hosts only: a redirect to another one loses it.
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, follow_redirects=True, timeout=60) as client:
        try:
            questions = [as_question(row) for row in rows(client, options.server, options.config, options.split)]
            options.out.mkdir(parents=True, exist_ok=True)
            if options.with_files:
                folder = f"{options.config.split('_')[0]}/{options.split}"
                save_files(client, f"{options.hub}/datasets/{DATASET}/resolve/main/{folder}", questions, options.out)
        except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
            print(f"The download failed: {explain(error)}", file=sys.stderr)
            return 1
    path = options.out / f"{options.config}_{options.split}.json"
    data = {"dataset": DATASET, "config": options.config, "split": options.split, "questions": questions}
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(f"{path}: {len(questions)} questions, {sum(bool(each['file']) for each in questions)} with a file")
    return 0


def rows(client: httpx.Client, server: str, config: str, split: str) -> Iterator[dict[str, Any]]:
    offset, total = 0, 1
    while offset < total:
        where = {"dataset": DATASET, "config": config, "split": split, "offset": offset, "length": PAGE}
        page = client.get(f"{server}/rows", params=where).raise_for_status().json()
        if not isinstance(page, dict) or not page.get("rows"):
            raise ValueError(f"the server gave no rows from {offset} on")
        yield from (each["row"] for each in page["rows"])
        offset, total = offset + len(page["rows"]), page.get("num_rows_total", 0)
        if offset > MOST_ROWS:
            raise ValueError(f"the server has no end: {offset} rows, and it says that there are {total}")


def as_question(row: dict[str, Any]) -> dict[str, Any]:
    """Without the notes of whoever wrote it, which tell how it is solved."""
    name = row.get("file_name") or ""
    if name and not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"'{name}' is no name of a file")
    return {
        "task_id": row["task_id"],
        "level": row.get("Level"),
        "question": row["Question"],
        "answer": row.get("Final answer", ""),
        "file": f"files/{name}" if name else None,
    }


def save_files(client: httpx.Client, address: str, questions: list[dict[str, Any]], out: Path) -> None:
    (out / "files").mkdir(exist_ok=True)
    for path in [out / each["file"] for each in questions if each["file"]]:
        if path.exists():
            continue
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)  # a link that lies there is not written through
        with client.stream("GET", f"{address}/{path.name}") as response, part.open("xb") as file:
            response.raise_for_status()
            for piece in response.iter_bytes():
                file.write(piece)
        part.replace(path)  # whole, or not there


def explain(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403, 404):
        return f"{error.response.status_code}. Does HF_TOKEN belong to somebody who accepted the terms? See README.md."
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
