"""Finds the package, program or library that a failed run lacked, with the name to install it by.

Reads only the end of stderr of a failed program, and only the phrases of Python, Node.js, shells and launchers. A run
that succeeded lacks nothing; a missing file of the skill itself does not count.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from prowess.workspace.process.command import NotStarted
from prowess.workspace.scripts.pep723 import canonical_name

Kind = Literal["python", "node", "program", "library"]
_LAST_LINES = 40
# Module=package, where the two names differ.
_DIFFERENT_NAMES = """
    Bio=biopython Crypto=pycryptodome Cryptodome=pycryptodomex Levenshtein=levenshtein MySQLdb=mysqlclient
    OpenSSL=pyOpenSSL PIL=pillow _cffi_backend=cffi attr=attrs bs4=beautifulsoup4 cairo=pycairo cv2=opencv-python
    dateutil=python-dateutil distutils=setuptools docx=python-docx dotenv=python-dotenv faiss=faiss-cpu fitz=PyMuPDF
    frontmatter=python-frontmatter git=GitPython github=PyGithub google.cloud.storage=google-cloud-storage
    google.genai=google-genai google.generativeai=google-generativeai google.protobuf=protobuf
    googleapiclient=google-api-python-client jose=python-jose jwt=PyJWT magic=python-magic markdown_it=markdown-it-py
    mpl_toolkits=matplotlib mysql=mysql-connector-python nacl=PyNaCl osgeo=GDAL pkg_resources=setuptools
    pptx=python-pptx psycopg2=psycopg2-binary rest_framework=djangorestframework ruamel=ruamel.yaml serial=pyserial
    skimage=scikit-image sklearn=scikit-learn slugify=python-slugify snappy=python-snappy socks=PySocks
    telegram=python-telegram-bot usb=pyusb win32com=pywin32 wx=wxPython yaml=PyYAML zmq=pyzmq
"""
DISTRIBUTIONS = {module: package for module, _, package in (pair.partition("=") for pair in _DIFFERENT_NAMES.split())}
# Names that scripts use for their own files. Unrelated packages have these names, too.
_OWN = frozenset("common config core helper helpers lib main models scripts shared src tools util utils".split())
_LINKED = ("During handling of the above exception", "The above exception was the direct cause")
_COMPLAINT = re.compile(
    r"not (?:be )?(?:installed|found|available|import)|missing|require|(?:could not|cannot) import|no module|needed|"
    r"please install|unavailable",
    re.IGNORECASE,
)
_MODULE = r"(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)"
_QUOTE = "['\"\u2018\u2019`]?"
_WORD = r"(?P<name>[^\s:'\"\u2018\u2019`]+)"
_NOT_THERE = "No such file or directory"
_RULES = (
    ("module", rf"^(?:E\s+)?(?:ModuleNotFound|Import)Error: No module named '?{_MODULE}"),
    ("module", rf"\(ModuleNotFoundError: No module named '{_MODULE}'\)$"),
    ("module", rf"^(?:\S*/)?python[\d.]*: No module named '?{_MODULE}"),
    ("module", rf"^ImportError: Missing optional dependency '{_MODULE}'"),
    ("advice", r"pip3? install (?:(?!-[cefirt]\b|--\w+=|--req)--?+[a-zA-Z][a-zA-Z-]*+ )*['\"`]?(?P<name>[\w.][\w.-]*)"),
    ("library", r"(?:^|: )(?P<name>lib[\w.+-]+\.so[\w.]*): cannot open shared object file"),
    ("node", r"^(?:\w*Error|error).*?: Cannot find (?:module|package) '(?P<name>[^']+)'"),
    ("spawned", rf"^FileNotFoundError: \[Errno 2\] {_NOT_THERE}: '(?P<name>[^']+)'"),
    ("program", r"Error: spawn(?:Sync)? (?P<name>\S+) ENOENT"),
    ("program", rf"^(?:[^:]+: )?(?:line \d+: )?{_WORD}: command not found$"),
    ("program", rf"^[^:]+: (?:line )?\d+: (?:exec: )?{_WORD}: not found$"),
    ("program", rf"^(?:[^:]+:)?(?:\d+:)? ?command not found: {_WORD}$"),
    ("program", rf": {_WORD}: bad interpreter: {_NOT_THERE}$"),
    ("program", rf"^(?:\S*/)?(?:env|nice|xargs|make): {_QUOTE}{_WORD}{_QUOTE}: {_NOT_THERE}$"),
    (
        "program",
        rf"^\S+: (?:failed to (?:run command|execute)|can't execute|execvp) {_QUOTE}{_WORD}{_QUOTE}: {_NOT_THERE}$",
    ),
    ("program", r"(?:^|: )(?P<name>[\w.-]+) is not installed or it's not in your PATH"),
)


class Missing(NamedTuple):
    kind: Kind
    name: str
    hint: str


class Around(NamedTuple):
    """Facts about the failed run that the advice depends on."""

    skill: str = "NAME"
    python: str = ""
    named: tuple[str, ...] = ()  # packages that the skill already has and no script declares
    installed: tuple[str, ...] = ()  # packages installed for the run, as `name==version`


def explain_failure(
    exit_code: int | None, stderr_tail: str, not_started: NotStarted | None = None, around: Around | None = None
) -> Missing | None:
    """Returns the missing thing, or None when the output does not name one. A killed or timed-out run returns None."""
    if not_started is not None:
        found = re.match(r"Could not start '(.+)': ", not_started.message)
        if found and not_started.missing:
            return _program(found[1])
        return None
    if not exit_code:
        return None
    lines = [line.rstrip("\r") for line in stderr_tail.split("\n")]
    first = max(0, len(lines) - _LAST_LINES)
    for at in reversed(range(first, len(lines))):
        for kind, pattern in _RULES:
            found = re.search(pattern, lines[at][:2000])
            if not found:
                continue
            missing = _explain(kind, found["name"], lines, at, around or Around())
            if missing is not None:
                return missing
    return None


def _explain(kind: str, name: str, lines: Sequence[str], at: int, around: Around) -> Missing | None:
    if kind == "module":
        if _is_over(lines, at):
            return None
        return _module(name, around)
    if kind == "advice":  # of a script that caught the error itself; it counts only next to a complaint
        nearby = " ".join(lines[max(0, at - 2) : at + 2])
        complains = _COMPLAINT.search(nearby)
        if complains and name != "pip":
            return _package(name.rstrip("."), around)
        return None
    if kind == "library":
        hint = f"Whoever runs Prowess installs the system's package that has {name}."
        return Missing("library", name, hint)
    if kind == "node":
        return _node(name)
    if kind == "spawned":
        before = lines[max(0, at - 6) : at]
        if not any("_execute_child" in line for line in before):
            return None  # a file that could not be opened
    return _program(name)


def _is_over(lines: Sequence[str], at: int) -> bool:
    """True when an unrelated exception was raised after this one, or a module was taken for a package."""
    if "is not a package" in lines[at]:
        return True
    after = lines[at + 1 :]
    if any(line.startswith(_LINKED) for line in after):
        return False
    return any(re.match(r"[A-Za-z_][\w.]*(?:Error|Exception)\b", line) for line in after)


def _module(module: str, around: Around) -> Missing | None:
    top = module.split(".")[0]
    known = _find_distribution(module)
    if known is None and top in sys.stdlib_module_names:
        hint = "It is part of Python: whoever runs Prowess installs it with the system's packages, or another Python."
        return Missing("python", module, hint)
    if top in _OWN:
        return None
    return _package(known or top, around)


def _find_distribution(module: str) -> str | None:
    """Returns the package that DISTRIBUTIONS names for a module, or for the nearest module above it."""
    while module:
        if module in DISTRIBUTIONS:
            return DISTRIBUTIONS[module]
        module = module.rpartition(".")[0]
    return None


def _package(name: str, around: Around) -> Missing | None:
    """Returns a package with install advice for a model and for a person."""
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        return None  # no package has such a name; `_x` is a module inside some package
    used = f"Interpreter: {around.python or 'unknown'}"
    installed = {canonical_name(each.partition("==")[0]) for each in around.installed}
    if canonical_name(name) in installed:
        hint = f"'{name}' is installed for this skill and on PYTHONPATH: leave that variable as it is. {used}"
        return Missing("python", name, hint)
    listed = json.dumps(sorted({*around.named, name}), ensure_ascii=False)
    key = around.skill
    if not re.fullmatch(r"[A-Za-z0-9_-]+", key):
        key = json.dumps(key, ensure_ascii=False)
    hint = (
        f"'{name}' is probably the missing package: check its name. To install it, a model calls again with "
        f'install: ["{name}"], a person runs prowess exec … --install {name}; both are asked first. Or add '
        f"to .agent/config.toml:\n[skills.dependencies]\n{key} = {listed}\n{used}"
    )
    return Missing("python", name, hint)


def _node(name: str) -> Missing | None:
    if not re.fullmatch(r"(?:@[\w.-]+/)?[A-Za-z0-9_][\w.-]*(?:/[^\s']*)?", name, re.ASCII):
        return None  # a path
    parts = name.split("/")
    package = "/".join(parts[:2]) if name.startswith("@") else parts[0]
    hint = f"The skill's author ships '{package}' in the skill's node_modules, or whoever runs Prowess installs it."
    return Missing("node", package, hint)


def _program(name: str) -> Missing | None:
    """Returns a missing program. A path counts only below a folder for programs (bin, sbin); any other path is a
    file."""
    is_installed_path = re.match(r"/(?:usr/|usr/local/|opt/\S+/)?s?bin/", name)
    name = posixpath.basename(name) if is_installed_path else name
    if not re.fullmatch(r"[A-Za-z0-9_\[][\w.+@\[-]{0,63}", name):
        return None
    hint = f"Whoever runs Prowess installs '{name}'. The skill's author names it: requires: {{bins: [{name}]}}"
    return Missing("program", name, hint)
