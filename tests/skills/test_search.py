from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import dear
from prowess.cli.main import main
from prowess.skills.search import Hit, SearchDocument, open_search

ANY = st.text(st.characters(exclude_categories=[]), max_size=40) | st.text(
    'ab"*:^-()\0 报告をANDORNEAR\ud800', max_size=40
)

# A small library as people have it: id and name, description, keywords.
LIBRARY = [
    SearchDocument(
        "csv-report",
        "csv-report",
        "Summarise CSV and TSV files as tables and charts. Use when the user uploads tabular data.",
    ),
    SearchDocument(
        "xlsx",
        "xlsx",
        "Create, edit and analyse Excel spreadsheets with formulas and formatting.",
        ("excel", "workbook"),
    ),
    SearchDocument(
        "pdf-forms", "pdf-forms", "Fill in, flatten and inspect forms in PDF documents: fields, checkboxes, signatures."
    ),
    SearchDocument(
        "pdf-extract", "pdf-extract", "Extract text, tables and images from PDF files, with OCR for scanned pages."
    ),
    SearchDocument(
        "docx", "docx", "Write and revise Word documents with tracked changes, comments and styles.", ("word", "office")
    ),
    SearchDocument(
        "PptxSlides", "PptxSlides", "Build PowerPoint presentations from an outline: slides, speaker notes, layouts."
    ),
    SearchDocument("git_commit", "git_commit", "Write commit messages in the conventional format from staged changes."),
    SearchDocument(
        "code-review", "code-review", "Review a pull request for bugs, security problems and missing tests."
    ),
    SearchDocument(
        "sql-query", "sql-query", "Write and explain SQL for PostgreSQL and SQLite; optimise slow queries and indexes."
    ),
    SearchDocument(
        "docker-deploy", "docker-deploy", "Package an application as a container image and deploy it to Kubernetes."
    ),
    SearchDocument("brand-voice", "brand-voice", "Apply the company's tone of voice and colours to marketing copy."),
    SearchDocument(
        "meeting-notes", "meeting-notes", "Turn a transcript into minutes with decisions, owners and deadlines."
    ),
    SearchDocument(
        "email-triage", "email-triage", "Sort the inbox, draft replies and flag what is urgent.", ("gmail", "outlook")
    ),
    SearchDocument("calendar", "calendar", "Find a free slot, book appointments and send invitations."),
    SearchDocument("translate", "translate", "Translate documents between languages, keeping terminology and layout."),
    SearchDocument("image-resize", "image-resize", "Crop, resize and compress pictures; convert PNG, JPEG and WebP."),
    SearchDocument(
        "video-cut", "video-cut", "Trim and join video clips with ffmpeg, add subtitles, extract the soundtrack."
    ),
    SearchDocument(
        "speech-to-text", "speech-to-text", "Transcribe recordings with Whisper, with speakers and timestamps."
    ),
    SearchDocument("web-scraper", "web-scraper", "Fetch web pages and turn their content into structured records."),
    SearchDocument("seo-audit", "seo-audit", "Check a site's titles, links and speed for search engines."),
    SearchDocument("invoice-parser", "invoice-parser", "Read invoices and receipts into accounting entries with VAT."),
    SearchDocument(
        "budget-plan", "budget-plan", "Plan a household or project budget and compare it with actual spending."
    ),
    SearchDocument(
        "tax-return", "tax-return", "Prepare an annual income tax return and collect the documents it needs."
    ),
    SearchDocument("contract-check", "contract-check", "Compare a contract with house rules and list risky clauses."),
    SearchDocument(
        "resume-writer", "resume-writer", "Write a résumé and cover letter for a job advertisement.", ("cv",)
    ),
    SearchDocument(
        "recipe-finder", "recipe-finder", "Suggest dishes from the ingredients at hand, with a shopping list."
    ),
    SearchDocument("travel-planner", "travel-planner", "Plan trips: flights, hotels, an itinerary for each day."),
    SearchDocument("unit-tests", "unit-tests", "Generate pytest tests for Python functions and raise coverage."),
    SearchDocument(
        "log-analysis", "log-analysis", "Find errors and anomalies in server logs and explain what caused them."
    ),
    SearchDocument("api-docs", "api-docs", "Write OpenAPI descriptions and reference pages for a REST interface."),
    SearchDocument(
        "react-component", "react-component", "Create accessible React components in TypeScript with Storybook stories."
    ),
    SearchDocument(
        "data-cleaning", "data-cleaning", "Deduplicate records, fix encodings and dates, fill missing values."
    ),
    SearchDocument("会议纪要", "会议纪要", "把会议录音或文字记录整理成纪要，列出决定和待办事项。"),
    SearchDocument("报表生成", "报表生成", "读取表格数据，生成 PDF 报表和图表，适合销售与财务分析。", ("excel",)),
    SearchDocument("合同审查", "合同审查", "检查合同条款，标出风险并给出修改建议。"),
    SearchDocument("小红书文案", "小红书文案", "根据产品特点撰写小红书风格的种草文案和标题。"),
    SearchDocument("請求書作成", "請求書作成", "取引内容から請求書を作成し、PDFで出力します。消費税の計算に対応。"),
    SearchDocument("議事録", "議事録", "会議の録音から議事録を作成し、決定事項と担当者をまとめます。"),
    SearchDocument("メール返信", "メール返信", "受信したメールに丁寧な日本語で返信の下書きを書きます。", ("ビジネス",)),
    SearchDocument("보고서-작성", "보고서-작성", "데이터를 분석하여 보고서를 작성하고 그래프를 추가합니다."),
]

GOLDEN = [
    ("make a chart from this csv", "csv-report"),
    ("CSV report", "csv-report"),
    ("csvreport", "csv-report"),
    ("add a formula to my Excel workbook", "xlsx"),
    ("spreadsheets", "xlsx"),
    ("fill out a PDF form for me", "pdf-forms"),
    ("get the text out of a scanned pdf", "pdf-extract"),
    ("word document with tracked changes", "docx"),
    ("I need a powerpoint presentation about our roadmap", "PptxSlides"),
    ("pptx", "PptxSlides"),
    ("what should my commit message say", "git_commit"),
    ("please review my pull request", "code-review"),
    ("why is this postgres query slow", "sql-query"),
    ("deploy to kubernetes", "docker-deploy"),
    ("rewrite this in our brand's tone", "brand-voice"),
    ("minutes of yesterday's meeting from the transcript", "meeting-notes"),
    ("draft a reply to this email", "email-triage"),
    ("book an appointment on Friday", "calendar"),
    ("compress these jpeg pictures", "image-resize"),
    ("add subtitles to a video", "video-cut"),
    ("transcribe an audio recording", "speech-to-text"),
    ("scrape a web page", "web-scraper"),
    ("read VAT receipts", "invoice-parser"),
    ("is there a risky clause in this contract", "contract-check"),
    ("resume for a job", "resume-writer"),
    ("what can I cook with these ingredients", "recipe-finder"),
    ("plan a trip to Lisbon with flights and hotels", "travel-planner"),
    ("pytest coverage", "unit-tests"),
    ("errors in the server log", "log-analysis"),
    ("OpenAPI reference", "api-docs"),
    ("typescript react", "react-component"),
    ("remove duplicate records", "data-cleaning"),
    ("帮我把会议录音整理成纪要", "会议纪要"),
    ("生成 PDF 报表", "报表生成"),
    ("这份合同有什么风险", "合同审查"),
    ("写一篇小红书种草文案", "小红书文案"),
    ("请求一下销售数据的图表", "报表生成"),
    ("請求書を作ってください", "請求書作成"),
    ("会議の議事録をまとめて", "議事録"),
    ("メールに返信したい", "メール返信"),
    ("ﾒｰﾙの下書き", "メール返信"),
    ("보고서를 써 줘", "보고서-작성"),
]


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def test_the_right_skill_is_found() -> None:
    with open_search(LIBRARY) as index:
        found = {query: ids(index.search(query, limit=3)) for query, _ in GOLDEN}
    assert {query: found[query] for query, wanted in GOLDEN if wanted not in found[query]} == {}
    assert sum(found[query][0] == wanted for query, wanted in GOLDEN) / len(GOLDEN) >= 0.9


@pytest.mark.parametrize(
    "query", ["csv", "report", "csv-report", "csv_report", "csvreport", "CsvReport", "CSV report", "ＣＳＶ"]
)
@pytest.mark.parametrize("name", ["csv-report", "csv_report", "csvReport", "CSVReport", "CsvReport"])
def test_a_name_is_found_by_its_words_and_as_one(name: str, query: str) -> None:
    with open_search(
        [SearchDocument("it", name, "Nothing to see."), SearchDocument("other", "other", "Something else.")]
    ) as index:
        assert ids(index.search(query)) == ["it"]


@pytest.mark.parametrize("query", ["图", "图表", "我想要一个图表", "图像", "spread", "spreadsheat", "presentat"])
def test_half_a_word_and_one_character_find_something(query: str) -> None:
    documents = [
        SearchDocument("it", "it", "图表 spreadsheets presentations"),
        SearchDocument("other", "other", "音乐 music"),
    ]
    with open_search(documents) as index:
        assert ids(index.search(query)) == ["it"]


def test_a_beginning_is_tried_only_when_no_word_matches() -> None:
    with open_search([SearchDocument("a", "form", ""), SearchDocument("b", "formula", "")]) as index:
        assert ids(index.search("form")) == ["a"]
        assert ids(index.search("formul")) == ["b"]
        assert ids(index.search("not-formul")) == ["b"]


def test_small_words_are_left_out_unless_there_are_no_others() -> None:
    with open_search([SearchDocument("a", "a", "how to use the thing"), SearchDocument("b", "b", "weather")]) as index:
        assert ids(index.search("how is the weather")) == ["b"]
        assert ids(index.search("how to")) == ["a"]
    with open_search(
        [SearchDocument("a", "a", "we were who they will be"), SearchDocument("b", "b", "weather")]
    ) as index:
        assert ids(index.search("who will tell us if our weather was bad")) == ["b"]
    with open_search([SearchDocument("a", "a", "我的-这个"), SearchDocument("b", "b", "天气")]) as index:
        assert ids(index.search("我的-这个")) == ["a"]


@pytest.mark.parametrize("name", ["skill-security-review", "SkillSecurityReview", "review", "résumé", "会议-纪要"])
def test_whoever_types_a_name_finds_it_first(name: str) -> None:
    words = " ".join(["skill security review résumé 会议纪要"] * 4)
    others = [SearchDocument(f"{n}", f"security-review-skill-{n}", words, tuple(words.split())) for n in range(20)]
    with open_search([*others, SearchDocument("it", name, "Looks at " + "many other things and " * 20)]) as index:
        for query in (name, name.replace("-", " "), name.replace("-", "_").upper()):
            assert ids(index.search(query))[0] == "it"


def test_the_name_weighs_most_then_the_keywords_and_ties_are_by_id() -> None:
    documents = [
        SearchDocument("d", "one", "budget two three"),
        SearchDocument("c", "one", "two three four", ("budget",)),
        SearchDocument("b", "budget", "one two three"),
        SearchDocument("a", "one", "budget two three"),
    ]
    with open_search(documents) as index:
        hits = index.search("budget")
    assert ids(hits) == ["b", "c", "a", "d"]
    assert hits[2].score == hits[3].score > 0
    assert all(hit.score == round(hit.score, 4) for hit in hits)


def test_a_word_that_most_of_a_small_catalog_has_still_ranks() -> None:
    documents = [
        SearchDocument("a", "a", "csv files"),
        SearchDocument("b", "b", "csv files, csv charts"),
        SearchDocument("c", "csv", "files"),
    ]
    with open_search(documents) as index:
        assert ids(index.search("csv"))[0] == "c"
        assert index.search("csv")[0].score > 1


@pytest.mark.parametrize("query", ["", "  ", "?!…", "\0", "\ud800", "。、", '""', "* ^ : -"])
def test_a_query_without_words_finds_nothing(query: str) -> None:
    with open_search(LIBRARY) as index:
        assert index.search(query) == []


@pytest.mark.parametrize(
    "query",
    ['"report', "report*", "NEAR(report)", "report AND", "OR report", "name:report", "^report", "-report", "report\0"],
)
def test_syntax_means_nothing(query: str) -> None:
    with open_search(
        [SearchDocument("a", "report", ""), SearchDocument("b", "reportage", ""), SearchDocument("c", "c", "near name")]
    ) as index:
        assert ids(index.search(query))[0] == "a"
        assert "b" not in ids(index.search(query))


def test_a_hundred_kilobytes_are_a_query_too() -> None:
    with open_search(LIBRARY) as index:
        assert ids(index.search("pytest " + "lorem " * 20_000)) == ["unit-tests"]
        assert ids(index.search("合同审查" * 25_000))[0] == "合同审查"
        assert index.search(" ".join(f"w{number}" for number in range(20_000))) == []


def test_limits_and_empty_catalogs() -> None:
    with open_search(LIBRARY) as index:
        assert len(index.search("pdf", limit=1)) == 1
        assert index.search("pdf", limit=0) == index.search("pdf", limit=-1) == []
        assert len(index.search("pdf", limit=10**30)) >= 3
    with open_search([]) as index:
        assert index.search("pdf") == []


@given(st.lists(st.builds(SearchDocument, ANY, ANY, ANY, st.tuples(ANY)), max_size=4), ANY)
@example([SearchDocument("\ue000", "\ue000", "\ue000")], "\ue000")
def test_nothing_in_a_query_or_a_document_breaks_it(documents: list[SearchDocument], query: str) -> None:
    with open_search(documents) as index:
        found = ids(index.search(query))
        assert set(found) <= {document.id for document in documents}
        assert len(found) == len(set(found))
        assert index.search(query) == index.search(query)


@given(
    st.lists(st.from_regex(r"[a-z]{3,9}[0-9]", fullmatch=True), min_size=2, max_size=6, unique=True),
    st.sampled_from("-_ "),
)
@dear
def test_each_word_of_its_own_name_finds_a_document(words: list[str], joiner: str) -> None:
    with open_search([*LIBRARY, SearchDocument("it", joiner.join(words), "")]) as index:
        for query in (*words, joiner.join(words), words[0].upper()):
            assert index.search(query)[0].id == "it"


def test_the_file_is_used_again_and_follows_the_documents(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "index"
    with open_search(LIBRARY, str(path)) as index:
        first = index.search("pdf report")
        assert index.note is None
    stamp = path.stat().st_mtime_ns, path.stat().st_ino
    with open_search(LIBRARY[::-1], str(path)) as index:
        assert index.search("pdf report") == first
        assert index.note is None
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == stamp
    with open_search([*LIBRARY, SearchDocument("new", "pdf-report", "")], str(path)) as index:
        assert ids(index.search("pdf report"))[0] == "new"
        assert index.note is None
    assert path.stat().st_ino != stamp[1]
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_file_is_noticed_wherever_the_damage_is(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with open_search(LIBRARY, str(path)) as index:
        wanted = index.search("pdf report")
    whole = path.read_bytes()
    chance = random.Random(7)
    damages = [whole[: chance.randrange(len(whole))] for _ in range(15)] + [whole + b"x"]
    for _ in range(40):
        place = chance.randrange(21, len(whole))
        damages.append(whole[:place] + bytes([whole[place] ^ chance.randrange(1, 256)]) + whole[place + 1 :])
    for damaged in damages:
        path.write_bytes(damaged)
        with open_search(LIBRARY, str(path)) as index:
            assert index.search("pdf report") == wanted
            assert "damaged" in str(index.note)
        assert path.read_bytes() == whole


def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    with open_search(LIBRARY, str(path)) as index:
        assert ids(index.search("pytest")) == ["unit-tests"]
        assert "is no search index" in str(index.note)
    assert path.read_text() == "my notes"


def test_where_nothing_can_be_kept_it_works_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder" / "full").mkdir(parents=True)
    for path in (
        tmp_path / "file" / "index",
        tmp_path / "folder",
        Path("/proc/none/index") if sys.platform == "linux" else tmp_path / "file" / "index",
    ):
        with open_search(LIBRARY, str(path)) as index:
            assert ids(index.search("pytest")) == ["unit-tests"]
            assert "could not be kept" in str(index.note)
            assert str(path) in str(index.note)


def test_many_may_build_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "index")

    def build(number: int) -> tuple[list[str], str | None]:
        with open_search(LIBRARY[: 30 + number % 3], path) as index:
            return ids(index.search("pytest")), index.note

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(build, range(24))) == [(["unit-tests"], None)] * 24


def test_an_index_may_be_asked_from_any_thread() -> None:
    with open_search(LIBRARY) as index, ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: index.search("pytest")[0].id, range(2_000))) == {"unit-tests"}


def test_a_python_without_sqlite_says_what_to_do() -> None:
    program = """
        import sys
        sys.modules["sqlite3"] = None
        from prowess.skills.search import open_search
        from prowess.errors import ProwessError
        try:
            open_search([])
        except ProwessError as error:
            print(error.code, error.hint)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("search-unavailable Use a Python")


# --- bodies ---------------------------------------------------------------------------------------------------------


def test_a_word_of_the_body_finds_a_skill_and_weighs_least() -> None:
    documents = [
        SearchDocument("a", "a", "tables"),
        SearchDocument("b", "b", "pivot tables"),
        SearchDocument("c", "c", "charts"),
    ]
    bodies = {"a": "Use pivot for that. Mojibake is repaired.", "b": "", "c": "把会议录音整理成纪要。 Skew"}
    with open_search(documents, None, bodies.__getitem__) as index:
        assert ids(index.search("mojibake")) == ["a"]
        assert ids(index.search("会议录音")) == ["c"]
        assert ids(index.search("ＳＫＥＷ")) == ["c"]
        assert ids(index.search("pivot")) == ["b", "a"]


@pytest.mark.parametrize("around", ["— {} →", "✅{}…", "é {} ü", "在{}中", "\ud800{}\0"])
@pytest.mark.parametrize("word", ["mojibake", "MT940", "Größe", "会议"])
def test_a_word_of_the_body_is_found_between_any_signs(word: str, around: str) -> None:
    bodies = {"a": around.format(word), "b": "nothing"}
    with open_search([SearchDocument("a", "a", ""), SearchDocument("b", "b", "")], None, bodies.__getitem__) as index:
        assert ids(index.search(word)) == ["a"]


def test_only_a_new_index_reads_bodies(tmp_path: Path) -> None:
    def refuse(id: str) -> str:
        raise AssertionError(id)

    path = str(tmp_path / "index")
    first = [SearchDocument("a", "a", "tables", stamp="1")]
    with open_search(first, path, lambda id: "mojibake") as index:
        assert ids(index.search("mojibake")) == ["a"]
    with open_search(first, path, refuse) as index:
        assert ids(index.search("mojibake")) == ["a"]
    with open_search([first[0]._replace(stamp="2")], path, lambda id: "skew") as index:
        assert ids(index.search("mojibake")) == [] != ids(index.search("skew"))


def test_bodies_leave_the_index_small(tmp_path: Path) -> None:
    """Words that many bodies share are left out, as are all but the first 1,500 characters and the rarest words."""
    chance = random.Random(4)
    words = ["".join(chance.choices("abcdefghij", k=6)) for _ in range(3_000)]
    documents = [SearchDocument(f"{n:04}", f"s{n}", " ".join(chance.choices(words, k=25))) for n in range(500)]
    bodies = {d.id: " ".join(["always", *chance.choices(words, k=3_000), f"last{d.id}"]) for d in documents}
    open_search(documents, str(tmp_path / "without")).close()
    with open_search(documents, str(tmp_path / "with"), bodies.__getitem__) as index:
        assert index.search("always last0001") == []
        assert index.search(bodies["0007"].split()[1])
    sizes = [(tmp_path / name).stat().st_size for name in ("without", "with")]
    assert sizes[1] < 3 * sizes[0] < sum(map(len, bodies.values())) / 3


def test_an_edited_body_is_found_by_its_new_words(tmp_path: Path, make_skill, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    def found(word: str) -> list[str]:
        assert main(["search", word, "--json", "--root", "library"]) == 0
        return [row["name"] for row in json.loads(capsys.readouterr().out)["results"]]

    make_skill(tmp_path / "library" / "a", body="Repairs mojibake.\n")
    assert found("mojibake") == ["a"] and found("encoding") == []
    make_skill(tmp_path / "library" / "a", body="Repairs encoding.\n")  # as long as before
    assert found("mojibake") == [] and found("encoding") == ["a"]


def test_what_people_ask_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    module = importlib.import_module("bench_search")
    requests = [wanted.request for wanted in module.WANTED]
    plain, fts5 = module.missed(requests), module.missed(requests, plain_fts5=True)
    assert plain[0] < fts5[0] and plain[1] <= fts5[1]
    of_body = module.missed([wanted.request_of_body for wanted in module.WANTED])
    assert of_body[0] <= 0.3 and of_body[1] <= 0.15
    assert module.missed([wanted.name.replace("-", " ") for wanted in module.WANTED]) == (0, 0)
