"""Words that mean more than they say: to a list of commands, and to the terminal of whoever looks. Cases 62 and 63."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prowess.cli.main import main
from prowess.core.findings import visible
from prowess.core.values import Isolation
from prowess.policy.decision import PolicyContext, PolicyQuery, decide

NotRun = Callable[[str, str], None]

# --- 62: commands -----------------------------------------------------------------------------------------------------

ALLOWED = ("git", "ls", "find", "xargs", "env", "timeout", "sed", "tar", "sort", "nice")
AROUND = r"""
rm x
/bin/rm x
./ls
../ls
/tmp/ls
LS
ls; rm x
ls && rm x
ls || rm x
ls | sh
ls & rm x
ls > /etc/x
ls < /etc/shadow
ls $(rm x)
ls `rm x`
ls ${IFS}x
X=1 ls
LD_PRELOAD=./x.so ls
env rm x
env -i rm x
env -S 'rm x'
env LD_PRELOAD=./x.so ls
env PATH=. ls
env GIT_SSH_COMMAND=rm git fetch
timeout 5 rm x
nice -n 5 timeout 5 rm x
timeout 5 sh -c ls
xargs rm
xargs -I{} {} x
xargs sh -c
find . -exec rm {} +
find . -delete -exec rm {} ;
find . -execdir sh {} +
find . -ok rm {} ;
find . -fprintf /etc/x %p -exec {} ;
git -c core.pager='rm x' log
git -c alias.x='!rm y' x
git --exec-path=. status
git clone -u 'rm x' a b
git submodule foreach 'rm x'
git grep --open-files-in-pager=rm x
sed '1e rm x' y
sed 's/a/rm x/e' y
tar -I rm -xf a.tar
tar xf a.tar --to-command=rm
tar xf a.tar --checkpoint=1 --checkpoint-action=exec=rm
sort --compress-program=rm x
bash -c ls
sh -c ls
python3 -c 'import os'
busybox rm x
eval ls
exec ls
command rm x
sudo ls
ld.so /bin/rm
/lib64/ld-linux-x86-64.so.2 /bin/rm
"""


@pytest.mark.parametrize("command", AROUND.strip().splitlines())
def test_case_62_nothing_gets_around_a_list_of_commands(command: str) -> None:
    """Even in a sandbox, and even for a trusted skill: the list is the first thing that is asked. Who allows a program
    that starts others allows what it starts, but for what is denied."""
    sandbox = Isolation(executor="sandbox", mechanism="bwrap+seccomp", network="none", kind="sandbox")
    mentioned = {"rm", "sh"} & set(re.findall(r"\w+", command))
    lists = [(("ls",), ()), *([(ALLOWED, ("rm", "sh"))] if mentioned else [])]
    for tool in ("skill_run", "skill_exec"):
        for allow, deny in lists:
            around = PolicyContext(isolation=sandbox, commands_allow=allow, commands_deny=deny)
            request = PolicyQuery(tool=tool, args={"command": command}, trusted=True)
            decision = decide(request, around)
            assert (decision.verdict, decision.rule) == ("deny", "config:workspace.commands"), decision


@pytest.mark.parametrize(
    "command", ["ls -l", "git status", "find . -name x", "timeout 5 git log", "env A=1 ls", "/bin/ls"]
)
def test_case_62_and_what_is_on_the_list_runs_as_the_words_that_were_judged(command: str) -> None:
    sandbox = Isolation(executor="sandbox", mechanism="bwrap+seccomp", network="none", kind="sandbox")
    around = PolicyContext(isolation=sandbox, commands_allow=ALLOWED)
    decision = decide(PolicyQuery(tool="skill_run", args={"command": command}, trusted=True), around)
    assert decision.verdict == "allow" and decision.limits["argv"] == command.split()


# --- 63: the terminal of whoever looks --------------------------------------------------------------------------------

ESCAPES = {
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "answer": "\x1b[6n\x1b[c",
    "link": "\x1b]8;;http://evil.invalid\x1b\\here\x1b]8;;\x1b\\",
    "one byte": "\x9b2J\x9d0;owned\x9c",
    "back": "safe\b\b\b\bevil\r",
    "bidi": "\u202egnp.exe\u2066x\u2069",
    "hidden": "a\u200bb\ufeffc\U000e0041",
}


@pytest.mark.parametrize("text", ESCAPES.values(), ids=list(ESCAPES))
def test_case_63_what_is_shown_of_a_skill_is_spelled_out(text: str) -> None:
    assert not visible("ordinary").startswith("\\") and visible(text).isprintable() and visible(text) != text


@pytest.mark.parametrize(
    "verb", [["list"], ["validate"], ["inspect", "tricky"], ["search", "tricky"], ["list", "--details"]]
)
def test_case_63_no_verb_passes_an_escape_on(
    verb: list[str], tmp_path: Path, make_skill: Callable[..., Path], monkeypatch: Any, capsys: Any
) -> None:
    hostile = "".join(ESCAPES.values())
    make_skill(
        tmp_path / ".agent" / "skills" / "tricky",
        description=f"Does a tricky thing. {hostile} Use when asked.",
        body=f"# {hostile}\n",
        files={f"scripts/{ESCAPES['title']}.py": "x", f"references/{ESCAPES['bidi']}.md": hostile},
        front=f"name: tricky\ndescription: {json.dumps('Tricky. Use when asked. ' + hostile)}\n",
    )
    monkeypatch.chdir(tmp_path)
    try:
        main(verb)
    except SystemExit:
        pass
    said = capsys.readouterr()
    for stream in (said.out, said.err):
        assert not [c for c in stream if not c.isprintable() and c not in "\n\t"], ascii(stream)


def test_case_63_what_a_script_prints_cannot_move_the_cursor_of_a_terminal(
    tmp_path: Path, make_skill: Callable[..., Path], monkeypatch: Any, not_run: NotRun
) -> None:
    """prowess exec, with a real terminal to print to; and byte for byte where there is none."""
    script = (
        "import sys\nsys.stdout.write("
        + ascii("".join(ESCAPES.values()))
        + ")\nsys.stderr.write('\\x1b]0;owned\\x07')\n"
    )
    make_skill(tmp_path / ".agent" / "skills" / "tricky", files={"scripts/p.py": script})
    command = [sys.executable, "-m", "prowess", "exec", "tricky", "--yes", "skill_run", "--", "scripts/p.py"]
    ours, theirs = pty.openpty()
    trusted = subprocess.run([sys.executable, "-m", "prowess", "trust", "--yes"], cwd=tmp_path, capture_output=True)
    assert trusted.returncode == 0, trusted.stderr
    piped = subprocess.run(command, cwd=tmp_path, capture_output=True)
    if piped.returncode != 0:
        not_run("escape 63 in prowess exec", piped.stderr.decode("utf-8", "replace")[-300:])
        return
    assert piped.stdout.decode() == "".join(ESCAPES.values()), "a pipe gets what was written"
    shown = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs, stdin=theirs, start_new_session=True)
    os.close(theirs)
    data = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the last one on the other side has gone
            break
        data += piece
    assert shown.wait() == 0, data
    os.close(ours)
    for hostile in ("\x1b[2J", "\x1b]0;", "\x1b]52;", "\x1b[6n", "\x1b]8;", "\x9b", "\x9d", "\b", "\u202e", "\u200b"):
        assert hostile not in data.decode("utf-8", "replace"), ascii(data.decode("utf-8", "replace"))
    assert b"owned" in data, "it is shown, spelled out"
