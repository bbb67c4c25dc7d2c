"""What a placeholder wants, by its name: the last word says the kind, and a file extension in it which file."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain
from typing import Literal, NamedTuple

from prowess.models.offline.code_arguments import find_programs
from prowess.models.offline.template import Placeholder

Kind = Literal[
    "choice", "file", "folder", "out", "out_folder", "number", "text", "name", "column",
    "url", "email", "date", "time", "request", "arguments", "other",
]  # fmt: skip


class Wish(NamedTuple):
    kind: Kind
    words: tuple[str, ...]  # of its name
    extensions: tuple[str, ...] = ()  # any file when there is none


def find_wish(placeholder: Placeholder) -> Wish:
    name = placeholder.name.lower()
    words = tuple(word for word in re.split(r"[\W_]+", name) if word)
    if placeholder.choices:
        return Wish("choice", () if "|" in name else words)
    last = words[-1] if words else ""
    extensions = _extensions(name, words, placeholder.after)
    is_file = last in _FILES or last in _EXTENSIONS or bool(re.search(r"\.[a-z]\w{0,7}$", name))
    if last in _OUT or (set(words) & _OUT and (is_file or last in _FOLDERS or last == "name")):
        return Wish("out_folder" if last in _FOLDERS else "out", words, extensions)
    kind = _kind(last, is_file)
    if kind in ("file", "other", "name") and _WRITES.search(placeholder.before):
        return Wish("out", words, extensions)
    return Wish(kind, words, extensions)


def mark_files(command: str, own_files: Collection[str]) -> str:
    """The command with `<input.csv>` for each file that it names only as an example: `input.csv`, `path/to/x.pdf`,
    `FILE`. Programs, files of the skill, and what is in `out/` or `work/` stay as they are."""

    programs = find_programs(command)

    def mark(found: re.Match[str]) -> str:
        path, name = found[0], found[0].rstrip("/").rsplit("/", 1)[-1]
        if found.start() in programs:
            return path
        kept = not _is_example(name) or _KEPT.match(path) or path.removeprefix("./") in own_files
        if "path/to/" not in path and (kept or _RUNS.search(command, max(0, found.start() - 60), found.start())):
            return path
        return f"<{name}>" if name[:1].isalpha() else f"<file-{name}>"

    return _PATHS.sub(mark, command)


def _is_example(name: str) -> bool:
    ending = re.search(r"\.(\w+)$", name)
    if ending:
        return ending[1].lower() in _ENDINGS
    return name.isupper() and find_wish(Placeholder(name=name)).kind in ("file", "folder", "out", "out_folder")


def is_plain(kind: Kind) -> bool:
    """Whether no value of this kind can be read as a program: it is of the skill, of ours, or has only digits."""
    return kind in ("choice", "number", "date", "time", "out", "out_folder")


def _kind(last: str, is_file: bool) -> Kind:
    if is_file:
        return "file"
    for kind, words in _KINDS:
        if last in words or last.rstrip("0123456789") in words:
            return kind
    return "other"


def _extensions(name: str, words: tuple[str, ...], after: str) -> tuple[str, ...]:
    for found in (re.search(r"\.([a-z]\w{0,7})$", name), re.match(r"\.([A-Za-z]\w{0,7})$", after)):
        if found:
            return _EXTENSIONS.get(found[1].lower(), (found[1].lower(),))
    return next((_EXTENSIONS[word] for word in reversed(words) if word in _EXTENSIONS), ())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PATHS = re.compile(  # a text in quotes is one path, unless it has options
    r"(?:(?<=')[\w./~-]++(?: (?!-)[\w./~-]++)++(?=')|(?<=\")[\w./~-]++(?: (?!-)[\w./~-]++)++(?=\")"
    r"|(?<![\w./~$<{}:*-])(?<!\w@)(?:\$\{?+\w++\}?+/)?+[\w./~-]++(?![$>{}*(=]))"
)
_KEPT = re.compile(r"[/~]|\$(?!.*\binputs?/)|\.(?!\.?/)|(?:\./)?(?:out|work|scripts|references|assets)/")
_RUNS = re.compile(
    r"(?:^|[;&|(]|(?<![\w.-])(?:python[\d.]*|uv run|(?:ba|da|z)?sh|node|bun|tsx|ruby|perl|php|Rscript)"
    r"(?:\s+-[\w-]+)*)\s*$"
)
_OUT = _words("out output outfile destination dest result 输出")
_FOLDERS = _words("folder dir directory outdir 文件夹 目录")
_FILES = _words("file files path paths input inputs document documents filename infile 文件 路径")
_EXTENSIONS: dict[str, tuple[str, ...]] = {
    "csv": ("csv", "tsv"),
    "tsv": ("tsv",),
    "yaml": ("yaml", "yml"),
    "yml": ("yaml", "yml"),
    "markdown": ("md", "markdown"),
    "md": ("md", "markdown"),
    "html": ("html", "htm"),
    "jpg": ("jpg", "jpeg"),
    "jpeg": ("jpg", "jpeg"),
    "image": ("png", "jpg", "jpeg", "gif", "webp", "svg", "bmp", "tiff"),
    "excel": ("xlsx", "xls"),
    **{
        each: (each,)
        for each in (
            "json jsonl ndjson xml txt log ini toml pdf png gif svg zip tar xlsx docx pptx sql py js ts css ics srt vcf"
            " geojson parquet wav mp3 mp4 eml diff patch tex bib env conf"
        ).split()
    },
}
_ENDINGS = frozenset([*_EXTENSIONS, *chain.from_iterable(_EXTENSIONS.values())])
_KINDS: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("folder", _FOLDERS),
    (
        "number",
        _words(
            "n k x y m number numbers num count counts int integer float decimal limit max min maximum minimum size top"
            " bottom first last width height length depth level levels percent percentage rate amount price cost total"
            " year years month months week weeks day days hour hours minute minutes second seconds ms times rows lines"
            " columns items digits places precision score age port page pages step steps seed factor ratio threshold"
            " degrees weight distance value start end from to radius side base exponent quantity 数量 数字 个数 次数"
        ),
    ),
    (
        "text",
        _words(
            "text texts query message string words word phrase sentence title subject term terms pattern topic question"
            " note notes content contents body comment description prompt expression caption label keyword keywords"
            " letters slogan 文本 文字 内容 标题 消息 关键词"
        ),
    ),
    ("name", _words("name names person user username customer 姓名 名称 名字")),
    ("column", _words("column field key by group header 列 列名 字段")),
    ("url", _words("url urls link links website uri 网址 链接")),
    ("email", _words("email emails mail address 邮箱")),
    ("date", _words("date dates deadline birthday 日期")),
    ("time", _words("time 时间")),
    ("request", _words("request 请求")),
    ("arguments", _words("arguments")),
)
_WRITES = re.compile(r"(?:>>?|(?:^|\s)(?:-o|--out(?:put)?(?:-file)?))[ =]*[\"']?$")
