"""What a failed run lacked is named as one would install it; words alone are not a failure."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command, NotStarted
from prowess.workspace.scripts.missing_dependency import DISTRIBUTIONS, Around, explain_failure
from prowess.workspace.scripts.pep723 import parse_requirements

TRACEBACK = 'Traceback (most recent call last):\n  File "/w/x.py", line 1, in <module>\n    {line}\n'
NODE = """node:internal/modules/cjs/loader:1210
  throw err;
  ^

{error}
Require stack:
- /workspace/skills/pdf/scripts/x.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at Object.<anonymous> (/workspace/skills/pdf/scripts/x.js:1:1) {{
  code: 'MODULE_NOT_FOUND',
  requireStack: [ '/workspace/skills/pdf/scripts/x.js' ]
}}

Node.js v20.20.2
"""
CHAINED = (
    TRACEBACK.format(line="import foo")
    + "ModuleNotFoundError: No module named 'pypdf'\n\n"
    + "{link}\n\n"
    + TRACEBACK.format(line="main()")
    + "{last}\n"
)


def python(module: str) -> str:
    return f"{TRACEBACK.format(line=f'import {module}')}ModuleNotFoundError: No module named '{module}'\n"


REAL = [
    # Python
    (1, python("pypdf"), ("python", "pypdf")),
    (1, python("cv2"), ("python", "opencv-python")),
    (1, python("PIL"), ("python", "pillow")),
    (1, python("yaml"), ("python", "PyYAML")),
    (1, python("sklearn.linear_model"), ("python", "scikit-learn")),
    (1, python("bs4"), ("python", "beautifulsoup4")),
    (1, python("docx"), ("python", "python-docx")),
    (1, python("pptx"), ("python", "python-pptx")),
    (1, python("fitz"), ("python", "PyMuPDF")),
    (1, python("dotenv"), ("python", "python-dotenv")),
    (1, python("google.protobuf"), ("python", "protobuf")),
    (1, python("google.cloud.storage"), ("python", "google-cloud-storage")),
    (1, python("tkinter"), ("python", "tkinter")),
    (1, python("_ctypes"), ("python", "_ctypes")),
    (1, python("_cffi_backend"), ("python", "cffi")),
    (1, "ImportError: No module named requests\n", ("python", "requests")),
    (1, "/usr/bin/python3: No module named pip\n", ("python", "pip")),
    (1, "python: No module named pytest\n", ("python", "pytest")),
    (
        1,
        "/usr/bin/python3: Error while finding module specification for 'foo.bar' "
        "(ModuleNotFoundError: No module named 'foo')\n",
        ("python", "foo"),
    ),
    (2, "E   ModuleNotFoundError: No module named 'numpy'\n", ("python", "numpy")),
    (
        1,
        "ImportError: Missing optional dependency 'openpyxl'.  Use pip or conda to install openpyxl.\n",
        ("python", "openpyxl"),
    ),
    (
        1,
        CHAINED.format(
            link="During handling of the above exception, another exception occurred:", last="RuntimeError: no reader"
        ),
        ("python", "pypdf"),
    ),
    (1, "Error: pypdf is not installed. Run: pip install pypdf\n", ("python", "pypdf")),
    (1, "Missing dependency.\nInstall it with:\n  pip install 'pandas>=2'\n", ("python", "pandas")),
    (1, "This script requires reportlab (python3 -m pip install --user reportlab).\n", ("python", "reportlab")),
    (
        1,
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n",
        ("library", "libGL.so.1"),
    ),
    (
        127,
        "./tool: error while loading shared libraries: libfoo-2.so.3: cannot open shared object file: No such file\n",
        ("library", "libfoo-2.so.3"),
    ),
    (
        1,
        TRACEBACK.format(line='subprocess.run(["ffmpeg"])')
        + '  File "/usr/lib/python3.11/subprocess.py", line 1901, in _execute_child\n'
        "    raise child_exception_type(errno_num, err_msg, err_filename)\n"
        "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'\n",
        ("program", "ffmpeg"),
    ),
    (
        1,
        "pytesseract.pytesseract.TesseractNotFoundError: tesseract is not installed or it's not in your PATH. See "
        "README file for more information.\n",
        ("program", "tesseract"),
    ),
    # Node.js
    (1, NODE.format(error="Error: Cannot find module 'pptxgenjs'"), ("node", "pptxgenjs")),
    (1, NODE.format(error="Error: Cannot find module 'lodash/fp'"), ("node", "lodash")),
    (1, NODE.format(error="Error: Cannot find module '@scope/pkg/sub'"), ("node", "@scope/pkg")),
    (
        1,
        "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'chalk' imported from /w/x.mjs\n    at packageResolve\n",
        ("node", "chalk"),
    ),
    (1, "error: Cannot find package 'zod' from '/w/x.ts'\n", ("node", "zod")),
    (1, "Error: spawn pdftotext ENOENT\n    at ChildProcess._handle.onexit\n", ("program", "pdftotext")),
    # shells
    (127, "x.sh: line 3: ffmpeg: command not found\n", ("program", "ffmpeg")),
    (127, "/workspace/skills/my-skill/scripts/x.sh: line 3: jq: command not found\n", ("program", "jq")),
    (127, "bash: line 1: foo: command not found\n", ("program", "foo")),
    (127, "bash: foo: command not found\n", ("program", "foo")),
    (1, "x.sh: line 3: pdftoppm: command not found\ncat: out.txt: No such file\n", ("program", "pdftoppm")),
    (127, "x.sh: 3: ffmpeg: not found\n", ("program", "ffmpeg")),
    (127, "sh: 1: /usr/bin/convert: not found\n", ("program", "convert")),
    (1, "/bin/sh: 1: soffice: not found\n" + "E: 127\n", ("program", "soffice")),
    (127, "x.sh: line 3: curl: not found\n", ("program", "curl")),
    (127, "x.sh: line 1: exec: foo: not found\n", ("program", "foo")),
    (127, "zsh: command not found: brew\n", ("program", "brew")),
    (127, "x.zsh:3: command not found: brew\n", ("program", "brew")),
    (126, "bash: ./x: /usr/bin/zsh: bad interpreter: No such file or directory\n", ("program", "zsh")),
    # what starts programs
    (127, "env: \u2018python2\u2019: No such file or directory\n", ("program", "python2")),
    (127, "env: 'python2': No such file or directory\n", ("program", "python2")),
    (127, "/usr/bin/env: python2: No such file or directory\n", ("program", "python2")),
    (127, "env: can't execute 'python2': No such file or directory\n", ("program", "python2")),
    (127, "timeout: failed to run command \u2018foo\u2019: No such file or directory\n", ("program", "foo")),
    (127, "xargs: foo: No such file or directory\n", ("program", "foo")),
    (2, "make: foo: No such file or directory\nmake: *** [Makefile:2: all] Error 127\n", ("program", "foo")),
    (1, "bwrap: execvp foo: No such file or directory\n", ("program", "foo")),
    (127, "prlimit: failed to execute foo: No such file or directory\n", ("program", "foo")),
]


@pytest.mark.parametrize(("exit_code", "stderr", "lacked"), REAL)
def test_what_real_programs_say(exit_code, stderr, lacked):
    missing = explain_failure(exit_code, stderr)
    assert missing is not None and (missing.kind, missing.name) == lacked
    assert any(who in missing.hint for who in ("Prowess", "author", "person"))
    assert explain_failure(exit_code, stderr.replace("\n", "\r\n")) == missing, "as a terminal writes it"
    assert explain_failure(exit_code, "x" * 5000 + "\n" + stderr + "\n") == missing
    assert explain_failure(0, stderr) is None, "a run that succeeded lacked nothing"
    assert explain_failure(None, stderr) is None, "killed, or out of time"


@pytest.mark.parametrize(
    ("exit_code", "stderr"),
    [
        (1, ""),
        (1, "ValueError: No module named 'x' in the list\n"),
        (1, "we look for ModuleNotFoundError: No module named 'x'\n"),
        (1, f"{python('pypdf')}{TRACEBACK.format(line='f()')}ValueError: bad\n"),
        (1, python("pypdf") + "working\n" * 60),
        (1, python("utils")),
        (1, python("_private")),
        (1, python(".")),
        (1, NODE.format(error="Error: Cannot find module 'C:x.js'")),
        (1, python("scripts.helpers")),
        (1, "ModuleNotFoundError: No module named 'yaml.foo'; 'yaml' is not a package\n"),
        (1, "ImportError: cannot import name 'x' from 'yaml' (/w/yaml.py)\n"),
        (
            1,
            TRACEBACK.format(line='open("d.csv")')
            + "FileNotFoundError: [Errno 2] No such file or directory: 'd.csv'\n",
        ),
        (1, NODE.format(error="Error: Cannot find module './helper'")),
        (1, NODE.format(error="Error: Cannot find module '/w/nosuch.js'")),
        (1, "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/w/a.mjs' imported from /w/x.mjs\n"),
        (1, "cannot load such file -- ./helper (LoadError)\n"),
        (1, "cannot load such file -- /w/helper (LoadError)\n"),
        (127, "bash: ./foo: No such file or directory\n"),
        (127, "sh: 1: ./f.sh: not found\n"),
        (127, "sh: 1: /workspace/skills/x/run: not found\n"),
        (127, "x.sh: line 2: $'\\r': command not found\n"),
        (127, "env: \u2018python3\r\u2019: No such file or directory\n"),
        (1, "find: \u2018data\u2019: No such file or directory\n"),
        (1, "cat: data: No such file or directory\n"),
        (1, "sh: host: not found\n"),
        (22, "curl: (22) The requested URL returned error: 404 not found\n"),
        (1, "fatal: repository 'x' not found\n"),
        (1, "Package installed. Later you can pip install foo to go on.\n"),
        (1, "[notice] To update, run: pip install --upgrade pip\nsomething is missing\n"),
        (1, "pip install -r requirements.txt is needed\n"),
        (1, "numpy is not installed. Run: pip install --index-url=https://x numpy\n"),
        (1, "numpy is not installed. Run: pip install --quiet --find-links=/x numpy\n"),
        (1, "numpy is not installed. Run: pip install --quiet $NUMPY\n"),
        (1, "there is no package in the box\n"),
        (1, "Error in library(ggplot2) : there is no package called \u2018ggplot2\u2019\nExecution halted\n"),
        (1, "lua: x.lua:1: module 'cjson' not found:\n\tno field package.preload['cjson']\n"),
        (1, "sharp is missing. Run npm install sharp\n"),
        (1, "\x00\xff\n\n\n"),
    ],
)
def test_words_alone_are_no_failure(exit_code, stderr):
    assert explain_failure(exit_code, stderr) is None


@given(st.integers(1, 255), st.text(max_size=300) | st.text(alphabet="aA_.-/@'[]1", max_size=12))
def test_any_text_is_explained_or_not(exit_code, text):
    packages = ("ModuleNotFoundError: No module named '", "Error: Cannot find module '", "missing: pip install ")
    for line in ("", "x.sh: line 1: ", *packages):
        missing = explain_failure(exit_code, line + text)
        assert missing is None or (missing.name and missing.hint and not set("\n '") & set(missing.name))
        if missing is not None and "# /// script" in missing.hint:
            assert advised_lines(missing.hint) == {"NAME": [missing.name]}


def advised_lines(hint: str) -> dict[str, list[str]]:
    """The table that a hint tells a person to add to the configuration."""
    _, _, line, *_ = hint.split("\n")
    return tomllib.loads(f"[skills.dependencies]\n{line}")["skills"]["dependencies"]


def test_the_advice_for_a_package_is_a_line_that_can_be_used():
    for name in DISTRIBUTIONS:
        missing = explain_failure(1, f"ModuleNotFoundError: No module named '{name}'\n", None, Around(skill="a skill"))
        assert missing is not None and missing.name == DISTRIBUTIONS[name]
        assert advised_lines(missing.hint) == {"a skill": [missing.name]}
        assert parse_requirements([missing.name], "test")
    program = explain_failure(127, "bash: jq: command not found\n")
    assert program is not None and "requires: {bins: [jq]}" in program.hint


# --- the programs themselves ------------------------------------------------------------------------------------------

LIVE = [
    ([sys.executable, "x.py"], "x.py", "import prowess_has_no_such", ("python", "prowess_has_no_such")),
    (
        [sys.executable, "x.py"],
        "x.py",
        "import subprocess; subprocess.run(['no-such-prog'])",
        ("program", "no-such-prog"),
    ),
    (
        [sys.executable, "x.py"],
        "x.py",
        "import subprocess; subprocess.run('no-such-prog', shell=True, check=True)",
        ("program", "no-such-prog"),
    ),
    ([sys.executable, "-m", "no_such_module"], "x", "", ("python", "no_such_module")),
    (["bash", "x.sh"], "x.sh", "no-such-prog", ("program", "no-such-prog")),
    (["bash", "x.sh"], "x.sh", "no-such-prog | cat\nexit 3", ("program", "no-such-prog")),
    (["bash", "-c", "no-such-prog"], "x", "", ("program", "no-such-prog")),
    (["dash", "x.sh"], "x.sh", "no-such-prog", ("program", "no-such-prog")),
    (["busybox", "sh", "x.sh"], "x.sh", "no-such-prog", ("program", "no-such-prog")),
    (["env", "no-such-prog"], "x", "", ("program", "no-such-prog")),
    (["timeout", "5", "no-such-prog"], "x", "", ("program", "no-such-prog")),
    (["node", "x.js"], "x.js", "require('no-such-package')", ("node", "no-such-package")),
    (["node", "x.mjs"], "x.mjs", "import 'no-such-package'", ("node", "no-such-package")),
    (["node", "x.js"], "x.js", "require('child_process').spawn('no-such-prog')", ("program", "no-such-prog")),
    (["perl", "x.pl"], "x.pl", "use No::Such::Module;", None),
    (["ruby", "x.rb"], "x.rb", "require 'no_such_gem'", None),
    (["Rscript", "x.R"], "x.R", "library(nosuch)", None),
    (["lua", "x.lua"], "x.lua", "require 'nosuch'", None),
    (["bash", "x.sh"], "x.sh", "ls no-such-file", None),
    (
        [sys.executable, "x.py"],
        "x.py",
        "import sys; print(\"ModuleNotFoundError: No module named 'x'\"); sys.exit(1)",
        None,
    ),
]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize(("argv", "file", "content", "lacked"), LIVE, ids=lambda value: None)
def test_what_is_installed_here_really_says_so(tmp_path, not_run, argv, file, content, lacked, locale):
    if shutil.which(argv[0]) is None:
        not_run(f"the words of {argv[0]}", "it is not installed here")
        return
    (tmp_path / file).write_text(content, encoding="utf-8")
    environ = {"PATH": os.defpath, "LANG": locale, "LC_ALL": locale}
    answer = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, encoding="utf-8")
    missing = explain_failure(answer.returncode, answer.stderr)
    assert (missing and (missing.kind, missing.name)) == lacked, answer.stderr


@pytest.mark.parametrize(
    ("argv0", "lacked"), [("no-such-prog", "no-such-prog"), ("/usr/bin/no-such", "no-such"), ("./no-such", None)]
)
def test_a_program_that_could_not_be_started(tmp_path: Path, argv0, lacked):
    async def story() -> None:
        async with Processes() as processes:
            with pytest.raises(NotStarted) as failed:
                await processes.run(Command(argv=[argv0], cwd=str(tmp_path), env={"PATH": "/usr/bin"}))
            missing = explain_failure(None, "", failed.value)
            assert (missing and missing.name) == lacked
            (tmp_path / "there").write_text("", encoding="utf-8")
            with pytest.raises(NotStarted) as failed:
                await processes.run(Command(argv=["./there"], cwd=str(tmp_path), env={}))
            assert explain_failure(None, "", failed.value) is None, "it is there, and may not be executed"

    asyncio.run(story())
