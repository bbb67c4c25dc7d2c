from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prowess._internal.tokens import estimate, estimate_bytes, get_counter

# Any text at all, lone surrogates and NUL included, and texts of the few characters that matter most to the estimate.
ANY = st.text(st.characters(exclude_categories=[]), max_size=60) | st.text(
    "aaaAAZ0019 \n.,-_报告をハ한ж🎯é", max_size=60
)


def test_the_label_says_how_a_number_was_made() -> None:
    guess, exact = get_counter(), get_counter(exact=True)
    assert (guess.exact, guess.method) == (False, "estimate")
    assert (exact.exact, exact.method) == (True, "o200k_base (bpe-openai)")
    assert guess("hello world") == estimate("hello world")
    assert exact("hello world") == 2
    assert get_counter(exact=False) == guess


def test_nothing_costs_nothing() -> None:
    assert estimate("") == estimate_bytes(0) == estimate_bytes(-5) == get_counter(exact=True)("") == 0


def test_a_size_alone_gives_a_number() -> None:
    assert [estimate_bytes(size) for size in (1, 4, 5, 4_000)] == [1, 1, 2, 1_000]


@given(ANY)
def test_any_text_can_be_counted(text: str) -> None:
    assert (estimate(text) == 0) == (text == "")
    assert (get_counter(exact=True)(text) == 0) == (text == "")


@settings(max_examples=500)
@given(ANY, ANY)
@example("a" * 8, "a" * 8)
@example("a", "A")
@example(" ", "ж")
def test_joining_texts_hardly_changes_their_cost(left: str, right: str) -> None:
    assert estimate(left + right) <= estimate(left) + estimate(right) + 2
    assert estimate(left + right) >= max(estimate(left), estimate(right)) - 2


@pytest.mark.parametrize(
    "paragraph",
    ["Read the file, then write a report.\n", '{"name": "csv-report", "n": 12345},', "数据分析，生成报表。"],
)
def test_a_long_text_is_counted_in_pieces_without_changing_the_count(paragraph: str) -> None:
    text = paragraph * (130_000 // len(paragraph))
    counted = get_counter(exact=True)(text)

    import bpe_openai  # here, because the counter knows how to import it without a warning

    assert counted == len(bpe_openai.get_encoding("o200k_base").encode_ordinary(text))


def test_no_text_is_too_long() -> None:
    assert get_counter(exact=True)("word " * 300_000) == pytest.approx(300_000, abs=1)
    assert get_counter(exact=True)("🏴󠁧󠁢" * 60_000) > 200_000


def test_an_estimate_needs_no_extra_and_an_exact_count_asks_for_it() -> None:
    program = """
        import sys
        sys.modules["bpe_openai"] = None
        from prowess._internal.tokens import get_counter
        from prowess.errors import MissingExtra
        assert get_counter()("hello world") > 0
        try:
            get_counter(exact=True)
        except MissingExtra as error:
            print(error)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert "Exact token counts" in ran.stdout
    assert "prowess[tokens]" in ran.stdout


SAMPLES = {
    "english": """
        A skill is a folder with instructions that an agent reads when a task calls for them. Most of the time the agent
        sees only the name and one paragraph, which is enough to decide whether the rest is worth its price. When it is,
        the whole body is read once, and the files beside it only when a step mentions them. Write the description for
        somebody in a hurry: what the skill does, and in which situations it should be picked instead of another one.
    """,
    "chinese": """
        技能是一个文件夹，里面有说明、脚本和参考资料。智能体平时只看到技能的名称和描述，当任务确实需要时才加载正文，
        这样可以节省上下文。编写描述时，请说明这个技能能做什么，以及在什么情况下应该使用它。例如：当用户上传表格文件，
        并要求生成季度销售报表时，先检查列名和日期格式，再计算合计与同比增长，最后输出图表和一段简短的总结。
    """,
    "japanese": """
        スキルは、手順書とスクリプトをまとめたフォルダーです。エージェントは最初に名前と説明だけを読み、必要になったときに
        本文を読み込みます。説明には、何ができるのか、どのような場面で使うのかを書いてください。たとえば、売上データの
        ファイルが渡されたら、列の名前と日付の形式を確認してから集計し、グラフと短い要約を出力します。
    """,
    "markdown": """
        # CSV report

        Use this when somebody hands you a table and wants to know what is in it.

        | column | meaning      | type    |
        |--------|--------------|---------|
        | `date` | day of sale  | ISO date |
        | `net`  | price w/o VAT | float   |

        ```python
        import csv, sys

        def total(path: str, column: str = "net") -> float:
            with open(path, newline="", encoding="utf-8") as file:
                return sum(float(row[column] or 0) for row in csv.DictReader(file))

        print(f"{total(sys.argv[1]):,.2f}")
        ```

        1. Run `python scripts/report.py sales.csv --out report.html`.
        2. Open the result, and **check the totals** against [the guide](references/totals.md).
    """,
    "json": """
        {"skill": "csv-report", "version": "1.4.0", "tools": ["read_file", "write_file"], "limits": {"timeout": 30,
         "maxBytes": 1048576}, "cases": [{"id": 1, "prompt": "Top 3 months", "expect": {"load": ["csv-report"],
         "matches": ["March", "2024-03"]}}, {"id": 2, "prompt": "Draw it", "expect": {"load": [], "matches": null}}]}
    """,
    "entries": """
        - csv-report: Summarise CSV and TSV files as tables and charts. Use when the user uploads tabular data.
        - pdf-forms: Fill, flatten and inspect PDF forms. Use for anything with form fields, signatures or checkboxes.
        - 会议纪要: 把会议录音或文字记录整理成纪要，列出决定和待办事项。
    """,
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_an_estimate_is_near_the_truth(kind: str) -> None:
    text = textwrap.dedent(SAMPLES[kind])
    assert estimate(text) == pytest.approx(get_counter(exact=True)(text), rel=0.2)
