"""Finds the package, program or library that a failed run lacked, with the name to install it by.

Reads only the end of stderr of a failed program, and only the phrases of interpreters, shells and launchers. A run that
succeeded lacks nothing; a missing file of the skill itself does not count.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from prowess.workspace.process.command import NotStarted
from prowess.workspace.scripts.pep723 import canonical_name

Kind = Literal["python", "node", "ruby", "perl", "r", "lua", "program", "library"]
_LAST_LINES = 40
# Module -> name of its package, where the two differ.
DISTRIBUTIONS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "Cryptodome": "pycryptodomex",
    "Levenshtein": "levenshtein",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "_cffi_backend": "cffi",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cairo": "pycairo",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "frontmatter": "python-frontmatter",
    "git": "GitPython",
    "github": "PyGithub",
    "google.cloud.storage": "google-cloud-storage",
    "google.genai": "google-genai",
    "google.generativeai": "google-generativeai",
    "google.protobuf": "protobuf",
    "googleapiclient": "google-api-python-client",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "markdown_it": "markdown-it-py",
    "mpl_toolkits": "matplotlib",
    "mysql": "mysql-connector-python",
    "nacl": "PyNaCl",
    "osgeo": "GDAL",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "rest_framework": "djangorestframework",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "socks": "PySocks",
    "telegram": "python-telegram-bot",
    "usb": "pyusb",
    "win32com": "pywin32",
    "wx": "wxPython",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
# Names that scripts use for their own files. Unrelated packages have these names, too.
_OWN = frozenset("common config core helper helpers lib main models scripts shared src tools util utils".split())
_LINKED = ("During handling of the above exception", "The above exception was the direct cause")
_COMPLAINT = re.compile(
    r"not (?:be )?(?:installed|found|available|import)|missing|require|could not import|cannot import|no module|needed|"
    r"please install|unavailable|not in your path",
    re.IGNORECASE,
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


class _Seen(NamedTuple):
    """A line that matched a rule, with the lines around it."""

    found: re.Match[str]
    lines: Sequence[str]
    at: int
    exit_code: int


def explain_failure(
    exit_code: int | None, stderr_tail: str, not_started: NotStarted | None = None, around: Around | None = None
) -> Missing | None:
    """Returns the missing thing, or None when the output does not name one. A killed or timed-out run returns None."""
    if not_started is not None:
        return _of_start(not_started)
    if not exit_code:
        return None
    lines = [line.rstrip("\r") for line in stderr_tail.split("\n")]
    for at in range(len(lines) - 1, max(-1, len(lines) - 1 - _LAST_LINES), -1):
        for pattern, explain in _RULES:
            found = pattern.search(lines[at][:2000])
            missing = explain(_Seen(found, lines, at, exit_code)) if found else None
            if missing is not None:
                return (
                    missing
                    if missing.hint
                    else missing._replace(hint=_how_to_install(missing.name, around or Around()))
                )
    return None


def _of_start(not_started: NotStarted) -> Missing | None:
    found = re.match(r"Could not start '(.+)': ", not_started.message)
    return _program(found[1]) if found and not_started.missing else None


def _python(seen: _Seen) -> Missing | None:
    """Explains the exception that ended the program. Skips it if an unrelated exception was raised after it."""
    after = seen.lines[seen.at + 1 :]
    others = [line for line in after if re.match(r"[A-Za-z_][\w.]*(?:Error|Exception)\b", line)]
    if others and not any(line.startswith(_LINKED) for line in after):
        return None
    module = seen.found["module"]
    parts = module.split(".")
    if parts[0] in _OWN or (len(parts) > 1 and "is not a package" in seen.lines[seen.at]):
        return None
    prefixes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    known = next((DISTRIBUTIONS[prefix] for prefix in prefixes if prefix in DISTRIBUTIONS), None)
    if known is None and parts[0] in sys.stdlib_module_names:
        return Missing(
            "python",
            module,
            f"'{module}' is part of Python, and this interpreter comes without it: whoever runs Prowess installs it "
            "with the system's packages, or uses another interpreter.",
        )
    return _package(known or parts[0])


def _package(name: str) -> Missing | None:
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        return None  # no package has such a name; `_x` is a module inside some package
    return Missing("python", name, "")  # the advice depends on the run


def _how_to_install(name: str, around: Around) -> str:
    """Returns install advice for a model and for a person."""
    skill, python, named, installed = around
    used = f"Interpreter: {python or 'unknown'}"
    if any(canonical_name(each.partition("==")[0]) == canonical_name(name) for each in installed):
        return f"'{name}' is installed for this skill and on PYTHONPATH: leave that variable as it is. {used}"
    listed = json.dumps(sorted({*named, name}), ensure_ascii=False)
    key = skill if re.fullmatch(r"[A-Za-z0-9_-]+", skill) else json.dumps(skill, ensure_ascii=False)
    return (
        f"'{name}' is probably the missing package: check its name. To install it, a model calls again with "
        f'install: ["{name}"], a person runs prowess exec … --install {name}; both are asked first. Or add '
        f"to .agent/config.toml:\n[skills.dependencies]\n{key} = {listed}\n{used}"
    )


def _program(name: str) -> Missing | None:
    """Returns a missing program. A path counts only below a folder for programs (bin, sbin); any other path is a
    file."""
    if "/" in name:
        if not re.match(r"/(?:usr/|usr/local/|opt/\S+/)?s?bin/", name):
            return None
        name = posixpath.basename(name)
    if not re.fullmatch(r"[A-Za-z0-9_\[][\w.+@\[-]{0,63}", name):
        return None
    return Missing(
        "program",
        name,
        f"Whoever runs Prowess installs '{name}' where scripts run. The skill's author names it, so that it is known "
        f"before a run: requires: {{bins: [{name}]}}",
    )


def _spawned_by_python(seen: _Seen) -> Missing | None:
    """Finds a program that Python could not start. The same text is used for files that cannot be opened; the lines
    above tell them apart."""
    above = seen.lines[max(0, seen.at - 6) : seen.at]
    return _program(seen.found["name"]) if any("_execute_child" in line for line in above) else None


def _node(seen: _Seen) -> Missing | None:
    name = seen.found["name"]
    if name.startswith("node:"):
        return Missing("node", name, f"'{name}' is part of newer versions of Node.js: whoever runs Prowess updates it.")
    if not re.fullmatch(r"(?:@[\w.-]+/)?[A-Za-z0-9_][\w.-]*(?:/[^\s']*)?", name, re.ASCII):
        return None  # a path
    return _node_package("/".join(name.split("/")[: 2 if name.startswith("@") else 1]))


def _node_package(name: str) -> Missing:
    return Missing(
        "node",
        name,
        f"It cannot be installed from within a run. The skill's author ships '{name}' in the skill's node_modules, or "
        "bundles it into the script; or whoever runs Prowess installs it where Node.js looks for it.",
    )


def _of_language(kind: Kind, name: str, how: str) -> Missing:
    return Missing(
        kind,
        name,
        f"It cannot be installed from within a run. Whoever runs Prowess installs it where scripts run: {how}",
    )


def _ruby(seen: _Seen) -> Missing | None:
    name = seen.found["name"].split("/")[0]
    return _of_language("ruby", name, f"gem install {name}") if name not in ("", ".", "..") else None


def _perl(seen: _Seen) -> Missing:
    name = seen.found["name"].replace("/", "::")
    return _of_language("perl", name, f"cpan {name}, or the system's package of it")


def _r(seen: _Seen) -> Missing:
    return _of_language("r", seen.found["name"], f'install.packages("{seen.found["name"]}")')


def _lua(seen: _Seen) -> Missing:
    return _of_language("lua", seen.found["name"], f"luarocks install {seen.found['name']}")


def _library(seen: _Seen) -> Missing:
    name = seen.found["name"]
    without = " For OpenCV, opencv-python-headless does without it." if name.startswith("libGL.") else ""
    return Missing("library", name, f"Whoever runs Prowess installs the system's package that has {name}.{without}")


def _shell_says(seen: _Seen) -> Missing | None:
    return _program(seen.found["name"])


def _shell_says_briefly(seen: _Seen) -> Missing | None:
    return _program(seen.found["name"]) if seen.exit_code == 127 else None


def _old_node(seen: _Seen) -> Missing:
    hint = "TypeScript needs Node.js 22.6 or newer, or tsx, bun or deno: whoever runs Prowess installs it."
    return Missing("program", "node", hint)


def _advised(seen: _Seen) -> Missing | None:
    """Handles a script that caught the error itself and says what to install. The advice counts only next to a
    complaint."""
    around = " ".join(seen.lines[max(0, seen.at - 2) : seen.at + 2])
    name = seen.found["name"].rstrip(".,:;")
    if name in ("pip", "npm") or not _COMPLAINT.search(around):
        return None
    tool = seen.found["tool"]
    if "pip" in tool:
        return _package(name)
    return _node_package(name) if tool in ("npm", "yarn", "pnpm") else _program(name)


_MODULE = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"
_QUOTE = "['\"\u2018\u2019`]?"
_WORD = r"(?P<name>[^\s:'\"\u2018\u2019`]+)"
_NOT_THERE = "No such file or directory"
_RULES: list[tuple[re.Pattern[str], Callable[[_Seen], Missing | None]]] = [
    (re.compile(pattern), explain)
    for pattern, explain in (
        (rf"^(?:E\s+)?(?:ModuleNotFound|Import)Error: No module named '?(?P<module>{_MODULE})", _python),
        (rf"\(ModuleNotFoundError: No module named '(?P<module>{_MODULE})'\)$", _python),
        (rf"^(?:\S*/)?python[\d.]*: No module named '?(?P<module>{_MODULE})", _python),
        (rf"^ImportError: Missing optional dependency '(?P<module>{_MODULE})'", _python),
        (r"(?:^|: )(?P<name>lib[\w.+-]+\.so[\w.]*): cannot open shared object file", _library),
        (rf"^FileNotFoundError: \[Errno 2\] {_NOT_THERE}: '(?P<name>[^']+)'", _spawned_by_python),
        (r"^(?:\w*Error|error).*?: Cannot find (?:module|package) '(?P<name>[^']+)'", _node),
        (r"^Error \[ERR_UNKNOWN_BUILTIN_MODULE\]: No such built-in module: (?P<name>node:\S+)", _node),
        (r"^node: bad option: --experimental-strip-types", _old_node),
        (r"Error: spawn(?:Sync)? (?P<name>\S+) ENOENT", _shell_says),
        (r"cannot load such file -- (?P<name>\S+) \(LoadError\)", _ruby),
        (r"^Can't locate (?P<name>[\w/]+)\.pm in @INC", _perl),
        (r"there is no package called ['\u2018](?P<name>[\w.]+)['\u2019]", _r),
        (r": module '(?P<name>[\w.-]+)' not found:", _lua),
        (rf"^(?:[^:]+: )?(?:line \d+: )?{_WORD}: command not found$", _shell_says),
        (rf"^[^:]+: (?:line )?\d+: (?:exec: )?{_WORD}: not found$", _shell_says),
        (rf"^(?:[^:]+:)?(?:\d+:)? ?command not found: {_WORD}$", _shell_says),
        (rf"^(?:\S*/)?(?:[bd]?ash|k?sh|busybox): {_WORD}: not found$", _shell_says_briefly),
        (rf"^Command '{_WORD}' not found", _shell_says),
        (rf"^fish: Unknown command: {_QUOTE}{_WORD}", _shell_says),
        (rf": {_WORD}: bad interpreter: {_NOT_THERE}$", _shell_says),
        (rf"^(?:\S*/)?(?:env|nice|ionice|xargs|make): {_QUOTE}{_WORD}{_QUOTE}: (?:{_NOT_THERE}|Command not found)$",
         _shell_says),
        (rf"^\S+: (?:failed to (?:run command|execute)|can't execute|execvp) {_QUOTE}{_WORD}{_QUOTE}: {_NOT_THERE}$",
         _shell_says),
        (r"exec: \\?\"(?P<name>[^\"\\]+)\\?\": executable file not found in \$PATH", _shell_says),
        (rf"^Can't exec \"{_WORD}\": {_NOT_THERE}", _shell_says),
        (r"(?:^|: )(?P<name>[\w.-]+) is not installed or it's not in your PATH", _shell_says),
        (r"(?P<tool>pip3?|npm|yarn|pnpm|apt|apt-get|brew|dnf|yum|apk) (?:install|i|add) "
         r"(?:(?!-[cefirt]\b|--\w+=|--req)--?+[a-zA-Z][a-zA-Z-]*+ )*+"
         r"['\"`]?(?P<name>@?[A-Za-z0-9][\w./+-]*)", _advised),
    )
]  # fmt: skip
