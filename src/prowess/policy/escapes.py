"""The usual programs that can start others: by being told to, by being handed code, or through an option.

Names and options only; `launchers` reads commands with them. A name that is missing here is treated as a program that
starts nothing else, so this page is generous.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# What runs whatever it is told, in words that nobody else can read for certain, or from within.
OPAQUE = frozenset(
    """
    eval source . su runuser ssh slogin mosh rsh rlogin rexec script scriptlive parallel chroot nsenter setpriv pkexec
    cmd gosu su-exec capsh setarch i386 x86_64 numactl strace ltrace gdb lldb valgrind perf rr hyperfine multitime at
    batch systemd-run systemctl machinectl launchctl busctl docker podman nerdctl kubectl oc ctr crictl lxc lxc-attach
    lxc-execute firejail bwrap bubblewrap proot flatpak snap wine start-stop-daemon daemonize daemon runsv chpst envdir
    setuidgid softlimit run-parts entr watchexec nodemon tmux screen dtach abduco expect socat nc ncat netcat telnet
    rlwrap faketime torsocks torify proxychains proxychains4 npx pnpx bunx uvx nix nix-shell nix-build guix crontab
    vi vim nvim vimdiff view rvim ex ed red emacs emacsclient nano pico micro joe mcedit less more most pg man info w3m
    lynx links elinks psql mysql mariadb mongo mongosh redis-cli sqlplus mail mailx mutt ftp sftp lftp open xdg-open
    coreutils cpulimit logsave ansible ansible-playbook salt salt-call puppet vagrant vipe vidir ranger nnn mc fzf tig
    gpg-agent ssh-agent dbus-launch xterm gnome-terminal konsole qemu-system-x86_64 qemu-x86_64 binfmt_misc zrun
    coresched uclampset enosys pipesz runcon uname26 i486 i586 i686 lckdo mispipe pee envuidgid runsvdir tcpsvd udpsvd
    inetd cttyhack openvt sg newgrp fakechroot scl toolbox distrobox aa-exec tsocks
    """.split()
)
# Program -> words with which it runs a command of the caller's.
SUBCOMMANDS = {
    "npm": frozenset(("exec", "x", "explore", "edit", "init", "create")),
    "pnpm": frozenset(("exec", "dlx", "create")),
    "yarn": frozenset(("exec", "dlx", "create")),
    "bun": frozenset(("x", "exec", "-e", "--eval", "-p", "--print", "repl", "create", "-")),
    "deno": frozenset(("eval", "repl", "x", "-", "task")),
    "uv": frozenset(("run", "tool", "x")),
    "pipx": frozenset(("run", "runpip")),
    "poetry": frozenset(("run", "shell")),
    "pipenv": frozenset(("run", "shell")),
    "pdm": frozenset(("run",)),
    "hatch": frozenset(("run", "shell")),
    "rye": frozenset(("run",)),
    "conda": frozenset(("run",)),
    "mamba": frozenset(("run",)),
    "micromamba": frozenset(("run",)),
    "mise": frozenset(("exec", "x")),
    "asdf": frozenset(("exec",)),
    "direnv": frozenset(("exec",)),
    "bundle": frozenset(("exec",)),
    "composer": frozenset(("exec", "global")),
    "rbenv": frozenset(("exec",)),
    "pyenv": frozenset(("exec",)),
    "rustup": frozenset(("run",)),
    "ip": frozenset(("exec", "netns", "vrf")),
    "cmake": frozenset(("-E",)),
    "gh": frozenset(("alias", "extension")),
    "aws": frozenset(("configure",)),
    "openssl": frozenset(("engine", "-engine", "-provider-path")),
}


class Escape(NamedTuple):
    """Options with which a program that is no interpreter starts others."""

    long: tuple[str, ...] = ()  # GNU programs take any unambiguous beginning of these
    short: str = ""  # letters, also within a bundle
    words: re.Pattern[str] | None = None
    bundle_without_dash: bool = False  # tar xIf


_TAR = ("to-command", "checkpoint-action", "use-compress-program", "rsh-command", "info-script", "new-volume-script")
_MAKE = re.compile(r"(SHELL|\.SHELLFLAGS|MAKEFLAGS|GNUMAKEFLAGS)\s*[:+?!]*=|.*\$|-f-|-$|/dev")
_TEX = re.compile(r"--?(shell-(escape|restricted)|enable-write18|e$|pdflatex=|latex=|cnf-line)|.*write18")
_SQL = re.compile(r"(?is)\s*\.|.*[\n;]\s*\.|.*(load_extension|edit|fts3_tokenizer)|--?(cmd|init|A)")
ESCAPES = {
    **dict.fromkeys(("tar", "gtar", "bsdtar"), Escape(_TAR, "IF", bundle_without_dash=True)),
    "hg": Escape(("config", "ssh", "pager", "cwd"), "e", re.compile(r"bisect|alias")),
    "svn": Escape(("diff-cmd", "diff3-cmd", "editor-cmd", "config-option")),
    "rsync": Escape(("rsh", "rsync-path"), "e"),
    "scp": Escape((), "SoF"),
    "ssh-keygen": Escape((), "Dw"),
    "zip": Escape(("unzip-command",), "", re.compile(r"-T")),
    "sort": Escape(("compress-program",)),
    "split": Escape(("filter",)),
    "install": Escape(("strip-program",)),
    "wget": Escape(("use-askpass", "execute", "config"), "e"),
    "curl": Escape(("config", "proxy-user-agent"), "K"),
    "aria2c": Escape(("on-download-complete", "on-download-start", "on-download-error", "on-bt-download-complete")),
    "make": Escape(("eval",), "E", _MAKE),
    "fd": Escape(("exec", "exec-batch"), "xX"),
    "rg": Escape(("pre", "hostname-bin")),
    "ag": Escape(("pager",)),
    "bat": Escape(("pager",)),
    "tcpdump": Escape((), "z"),
    "pandoc": Escape(("filter", "lua-filter", "pdf-engine", "defaults", "data-dir"), "FLd", re.compile(r".*\.lua$")),
    **dict.fromkeys(
        ("tex", "latex", "pdftex", "pdflatex", "xelatex", "lualatex", "luatex", "xetex", "latexmk"),
        Escape((), "", _TEX),
    ),
    **dict.fromkeys(
        ("gcc", "cc", "g++", "c++", "clang", "clang++"),
        Escape((), "", re.compile(r"-(wrapper|B|fplugin|specs|Xclang|load|fuse-ld|no-canonical-prefixes)|@")),
    ),
    "go": Escape((), "", re.compile(r"--?(exec|toolexec|vettool)|generate$|tool$")),
    "cargo": Escape(("config",)),
    "java": Escape((), "", re.compile(r"-XX:On|-agent|-javaagent|@|-Djava\.security|-XX:Flags|-XX:VMOptions")),
    "mvn": Escape((), "", re.compile(r"exec:|antrun:|groovy:")),
    "sqlite3": Escape(("cmd", "init"), "", _SQL),
    "ffmpeg": Escape((), "", re.compile(r".*(frei0r|ladspa|lv2)")),
    "dpkg": Escape(("pre-invoke", "post-invoke", "admindir", "root")),
    "apt": Escape(("option", "config-file"), "oc"),
    "apt-get": Escape(("option", "config-file"), "oc"),
    "rpm": Escape(("eval", "define", "pipe"), "E"),
    "gpg": Escape(("exec-path", "photo-viewer", "agent-program", "dirmngr-program", "pinentry-program", "options")),
    "gem": Escape((), "e", re.compile(r"open$")),
    "pip": Escape(("python", "editable"), "e"),
    "dc": Escape((), "e", re.compile(r".*!")),
}  # fmt: skip
# What a shell itself does with words that it keeps for later, or that it reads as code. It runs in the shell that reads
# the command, so quotes do not hold it.
_KEEPS_CODE = Escape((), "CFW")
_READS_INDICES = Escape((), "", re.compile(r"(?s).*\w\[.*(\$\(|`)"))  # an index is arithmetic, which runs $(…)
BUILTINS = {
    "trap": Escape((), "", re.compile(r"(?s).")),
    "fc": Escape((), "", re.compile(r"(?s).")),
    "alias": Escape((), "", re.compile(r"(?s).+=")),
    **dict.fromkeys(("compgen", "complete"), _KEEPS_CODE),
    **dict.fromkeys(("mapfile", "readarray"), Escape((), "C")),
    "hash": Escape((), "p"),
    "enable": Escape((), "f"),
    "jobs": Escape((), "x"),
    "bind": Escape((), "xf"),
    **dict.fromkeys("test [ let printf read unset declare typeset local export readonly wait".split(), _READS_INDICES),
}
_ALIASES = {
    "gmake": "make",
    "bmake": "make",
    "fdfind": "fd",
    "batcat": "bat",
    "gsed": "sed",
    "gsort": "sort",
    "pip3": "pip",
}

_ADDRESS = r"(?:\d+|\$|/(?:\\.|[^/\\\n])*/I?)"
_SED_ONE = (
    rf"\s*(?:{_ADDRESS}(?:,\s*(?:{_ADDRESS}|[+~]\d+))?)?\s*!?\s*"
    r"(?:[pdPDhHgGxnNlqQ=](?:\s*\d+)?|[sy](?P<d{n}>[^\\\n])(?:\\.|(?!(?P=d{n}))[^\\])*(?P=d{n})"
    r"(?:\\.|(?!(?P=d{n}))[^\\])*(?P=d{n})[gpIim0-9]*)\s*"
)
_SED = re.compile(
    _SED_ONE.replace("{n}", "0") + "".join(rf"(?:;{_SED_ONE.replace('{n}', str(n))})?" for n in range(1, 9)) + ";?"
)


def find_escape(name: str, args: Sequence[str], anything: str) -> str | None:
    """The words with which this program would start another one; None when it would not."""
    name = _ALIASES.get(name, name)
    if name == "sed":
        return _find_sed_escape(args, anything)
    if name == "git":
        return _find_git_escape(args, anything)
    if name in BUILTINS:
        return _find_builtin_escape(BUILTINS[name], args)
    escape = ESCAPES.get(name)
    if escape is None:
        return None
    if name == "sqlite3" and len([arg for arg in args if not arg.startswith("-")]) < 2:
        return "its commands come from standard input."
    for number, arg in enumerate(args):
        if arg == anything:
            return "some of its words are only known while it runs."
        if arg.startswith("--") and len(arg) > 2:
            given = arg[2:].partition("=")[0]
            if any(long.startswith(given) for long in escape.long):
                return arg
        elif (arg.startswith("-") or (escape.bundle_without_dash and not number)) and set(arg) & set(escape.short):
            return arg
        if escape.words and escape.words.match(arg):
            return arg
    return None


def _find_builtin_escape(escape: Escape, args: Sequence[str]) -> str | None:
    """Words that are only known later are no matter: what adds them (xargs) starts a program, never a shell's own."""
    for arg in args:
        if (arg.startswith("-") and set(arg) & set(escape.short)) or (escape.words and escape.words.match(arg)):
            return arg
    return None


def _find_git_escape(args: Sequence[str], anything: str) -> str | None:
    """Git starts what its configuration names (aliases, pagers, helpers), so no word of a command may set any."""
    if anything in args:
        return "some of its words are only known while it runs."
    words = list(args)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("-C", "--git-dir", "--work-tree", "--namespace"):
            words = words[1:]
        elif not re.fullmatch(_GIT_GLOBAL, option):
            return option
    if not words:
        return None
    subcommand, rest = words[0], words[1:]
    if subcommand in _GIT_STARTS or subcommand.startswith(("remote-", "credential", "sh-", "upload-", "receive-")):
        return subcommand
    if subcommand == "config" and not {"--get", "--get-all", "--get-regexp", "--list", "-l"} & set(rest):
        return subcommand
    if (subcommand, *rest[:1]) in (("bisect", "run"), ("submodule", "foreach")):
        return f"{subcommand} {rest[0]}"
    short = {"rebase": "x", "clone": "uc", "grep": "O", "ls-remote": "u"}.get(subcommand, "")
    for arg in rest:
        if arg.startswith("--") and len(arg) > 2:
            if any(long.startswith(arg[2:].partition("=")[0]) for long in _GIT_LONG):
                return arg
        elif (arg.startswith("-") and set(arg) & set(short)) or "ext::" in arg:
            return arg
    return None


_GIT_GLOBAL = (
    r"-[pPvh]|--(no-pager|paginate|version|help|bare|no-replace-objects|literal-pathspecs|no-optional-locks)"
    + (r"|--(git-dir|work-tree|namespace)=.*")
)
_GIT_STARTS = frozenset(
    "difftool mergetool filter-branch send-email daemon instaweb web--browse archimport svn p4 shell help citool gui "
    "fsmonitor--daemon cvsimport cvsserver hook for-each-repo maintenance".split()
)
_GIT_LONG = ("upload-pack", "receive-pack", "exec", "ext-diff", "extcmd", "open-files-in-pager", "template", "config")


def _find_sed_escape(args: Sequence[str], anything: str) -> str | None:
    """GNU sed runs commands with `e` and `s///e`, unless it was told --sandbox. Plain programs are read; others not."""
    if "--sandbox" in args:
        return None
    programs: list[str] = []
    words = list(args)
    operands = []
    while words:
        word = words.pop(0)
        if word == anything:
            return "some of its words are only known while it runs."
        if word in ("-e", "--expression"):
            programs += words[:1]
            words = words[1:]
        elif word.startswith("--expression="):
            programs.append(word.partition("=")[2])
        elif re.fullmatch(
            r"-[nErsuz]+|-i[^\s]*|--in-place.*|--quiet|--silent|--regexp-extended|--null-data|--posix", word
        ):
            continue
        elif word.startswith("-") and word != "-":
            return f"{word}: use --sandbox."
        else:
            operands.append(word)
    programs = programs or operands[:1]
    return next((f"{program}: use --sandbox." for program in programs if not _SED.fullmatch(program)), None)
