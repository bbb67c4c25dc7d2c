"""Programs that run another one, and how each is written up to the command behind it.

An option that is not here is not known, and a wrapper with an unknown option is not looked through: it may name a
program. Long options must be written out.
"""

from __future__ import annotations

from typing import NamedTuple


class Wrapper(NamedTuple):
    """How a program that runs another one is written, up to that one."""

    flags: str = ""  # short options without a value
    valued: str = ""  # short options with one
    long_flags: tuple[str, ...] = ()
    long_valued: tuple[str, ...] = ()
    operands: int = 0  # words of its own before the command
    assigns: bool = False  # NAME=value words before the command
    numbers: bool = False  # -5 is an option


_RESOURCES = tuple(
    "as core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack raw "
    "noheadings verbose".split()
)
WRAPPERS = {
    "env": Wrapper("i0v", "uCa", ("ignore-environment", "null", "debug"), ("unset", "chdir", "argv0"), assigns=True),
    "nice": Wrapper("", "n", (), ("adjustment",), numbers=True),
    "ionice": Wrapper("t", "cn", ("ignore",), ("class", "classdata")),
    "chrt": Wrapper("bfiorRv", "TPD", ("batch", "fifo", "idle", "other", "rr"), operands=1),
    "taskset": Wrapper("c", "", ("cpu-list",), operands=1),
    "nohup": Wrapper(),
    "setsid": Wrapper("cfw", "", ("ctty", "fork", "wait")),
    "timeout": Wrapper("v", "ks", ("foreground", "preserve-status", "verbose"), ("kill-after", "signal"), operands=1),
    "time": Wrapper("avpql", "fo", ("append", "verbose", "portability", "quiet"), ("format", "output")),
    "stdbuf": Wrapper("", "ioe", (), ("input", "output", "error")),
    "unbuffer": Wrapper("p"),
    "sudo": Wrapper("AbEHknPSB", "ugpCTh", ("preserve-env", "non-interactive"), ("user", "group"), assigns=True),
    "doas": Wrapper("n", "u"),
    "unshare": Wrapper("muinpUCTrfc", "", ("net", "pid", "user", "mount", "uts", "ipc", "fork", "map-root-user")),
    "flock": Wrapper("sxeunoFv", "wE", ("shared", "exclusive", "nonblock", "close"), ("timeout",), operands=1),
    "command": Wrapper("p"),
    "builtin": Wrapper(),
    "exec": Wrapper("cl", "a"),
    "caffeinate": Wrapper("dimsu", "tw"),
    "linux32": Wrapper(),
    "linux64": Wrapper(),
    "fakeroot": Wrapper(),
    "dbus-run-session": Wrapper(),
    "xvfb-run": Wrapper("a", "en"),
    "chronic": Wrapper("ve"),
    "prlimit": Wrapper("", "p", _RESOURCES, ("pid",)),
    "choom": Wrapper("", "np", (), ("adjust", "pid")),
    "eatmydata": Wrapper(),
    "catchsegv": Wrapper(),
    "setpgid": Wrapper("f", "", ("foreground",)),
    "ifne": Wrapper("n"),
}
XARGS = Wrapper(
    "0rtpxo",
    "aEeLlnPsd",
    ("null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty"),
    ("arg-file", "delimiter", "max-lines", "max-args", "max-procs", "max-chars", "eof"),
)
WATCH = Wrapper("bcdegptwxC", "nq")


def is_option(wrapper: Wrapper, option: str, words: list[str]) -> bool:
    """Whether the option is one of the wrapper's; its value is taken from the words when it stands there."""
    if option.startswith("--"):
        long, has_value, _ = option[2:].partition("=")
        if long in wrapper.long_valued and not has_value and words:
            words.pop(0)
        return long in wrapper.long_valued or (long in wrapper.long_flags)
    if wrapper.numbers and option[1:].lstrip("+-").isdigit():
        return True
    for at, letter in enumerate(option[1:], 1):
        if letter in wrapper.valued:
            if at == len(option) - 1 and words:
                words.pop(0)
            return True
        if letter not in wrapper.flags:
            return False
    return True
