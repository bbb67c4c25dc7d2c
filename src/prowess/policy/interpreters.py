"""Programs that run code, and whether a command hands them any: a script in a file is a file, all else is code.

Code on the command line or on the standard input was written by whoever wrote the call. It can start anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Program -> its short options that are no code and take no value. A file after them is a script.
SHELLS: dict[str, str] = dict.fromkeys(
    "sh bash rbash zsh rzsh dash ash hush ksh rksh mksh pdksh fish csh tcsh yash posh elvish xonsh nu nushell pwsh "
    "powershell".split(),
    "eux",
)
INTERPRETERS: dict[str, str] = {
    **dict.fromkeys(["python", "pypy", "ipython", "jython", "micropython", "bpython", "pythonw"], "bBdEIOPqRsSuvx"),
    **dict.fromkeys(["perl", "raku", "ruby", "jruby", "irb"], "wWtTv"),
    **dict.fromkeys(["php", "php-cgi"], "fnq"),
    **dict.fromkeys(
        "node nodejs lua luajit tclsh wish rscript r julia elixir iex erl escript groovy scala kotlin osascript "
        "guile racket sbcl clisp ecl gforth ocaml swift dart crystal janet jshell ghci runghc stap bpftrace "
        "gnuplot octave maxima sage newlisp picolisp pike rexx".split(),
        "",
    ),
}
CODE_MODULES = frozenset(
    "timeit code pdb trace profile cProfile pty runpy idlelib asyncio webbrowser IPython pudb ptpython".split()
)
AWKS = frozenset(("awk", "gawk", "mawk", "nawk", "original-awk", "goawk"))


def find_code(harmless: str, argv: Sequence[str], anything: str) -> str | None:
    """What the command line or the standard input gives an interpreter to run; None when it runs a file.

    A file comes first, or after options that are known to be harmless; every other option may be code.
    """
    at = 1
    while at < len(argv) and argv[at].startswith(("-", "+")) and argv[at] != "-":
        option = argv[at]
        if option in ("--version", "--help", "-V", "-h") and len(argv) == 2:
            return None
        if option == "--":
            at += 1
            break
        if option == "-m" and "B" in harmless and at + 1 < len(argv):  # python: a module is a file, but for some
            module = argv[at + 1].partition(".")[0]
            return " ".join(argv[at:]) if module in CODE_MODULES or module == anything else None
        if option.startswith("+") or not option[1:] or option[1:].strip(harmless):
            return " ".join(argv[at:])
        at += 1
    if at == len(argv) or argv[at] in ("-", anything) or argv[at].startswith(("/dev/", "/proc/")):
        return ""
    return None


def find_awk_code(args: Sequence[str], anything: str) -> str | None:
    """The awk program when it may start others (`system`, pipes, indirect calls); None when it cannot, or is a file."""
    words = list(args)
    while words and words[0].startswith("-") and words[0] != "-":
        option = words.pop(0)
        if option == "--":
            break
        if option[:2] in ("-F", "-v"):
            if len(option) == 2:
                words = words[1:]
        elif option[:2] == "-f":
            file = option[2:] or (words[0] if words else "")
            return "" if file in ("", "-", anything) or file.startswith(("/dev/", "/proc/")) else None
        elif option not in ("--version", "--posix", "--csv", "-k"):
            return " ".join(args)
    if not words:
        return None
    program = words[0]
    if program == anything or re.search(r"system|@|\|", program.replace("||", "")):
        return program
    return None
