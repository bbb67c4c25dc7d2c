"""What denies a command holds however the command is spelt; what allows one holds only where its words say all."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prowess.core.values import Located
from prowess.errors import ConfigError
from prowess.policy.decision import PolicyContext, decide
from prowess.policy.rules import PolicyQuery, Rules, find_rule, parse_rules

DENIED = '["rm", "git push", "python3 scripts/a.py", "scripts/b.sh"]'


def _rules(command: str, verdict: str, more: str = "") -> Rules:
    return parse_rules(f'[[rule]]\ncommand = {command}\nverdict = "{verdict}"\n{more}', "policy.toml")


def located(name: str) -> Located:
    """A machine that has every program where the system's are."""
    return Located(name if name.startswith("/") else f"/usr/bin/{name}")


def _fits(rules: Rules, command: str, **args: Any) -> bool:
    return find_rule(rules, PolicyQuery(tool="skill_run", args={"command": command, **args}), located) is not None


# --- what allows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cwd", [None, "", ".", "./", "./."])
def test_a_command_is_allowed_in_its_skills_own_folder(cwd: str | None) -> None:
    assert _fits(_rules('"python3 scripts/a.py"', "allow"), "python3 scripts/a.py x", cwd=cwd)


@pytest.mark.parametrize("cwd", ["evil", "./evil", "$WORK_DIR", "${OUTPUT_DIR}/x", "..", "/tmp", "a/..//b", ["x"], 7])
def test_a_command_that_is_allowed_is_not_allowed_in_another_folder(cwd: Any) -> None:
    for allowed in ("python3 scripts/a.py", "python3", "scripts/b.sh", "git status"):
        assert not _fits(_rules(f'"{allowed}"', "allow"), allowed, cwd=cwd)
    script = PolicyQuery(tool="skill_exec", args={"script": "scripts/b.sh", "cwd": cwd})
    assert not find_rule(_rules('"scripts/b.sh"', "allow"), script, located)


def test_a_rule_may_say_in_which_folder() -> None:
    rules = _rules('"git status"', "allow", 'args = {cwd = "sub/*"}')
    assert _fits(rules, "git status", cwd="sub/a")
    for cwd in (None, ".", "other", "sub/../../evil", "sub/a/../../../evil"):
        assert not _fits(rules, "git status", cwd=cwd)


@pytest.mark.parametrize(
    ("rule", "command", "fits"),
    [
        ("python3 scripts/a.py", "python3 scripts/a.py work/inputs/sales.csv", True),
        ("scripts/b.sh", "scripts/b.sh work/inputs/sales.csv", True),
        ("/usr/bin/git log", "/usr/bin/git log", True),
        ("python3", "python3 work/x.py", True),
        ("python3 work/x.py", "python3 work/x.py", False),
        ("python3 ./work/x.py", "python3 ./work/x.py", False),
        ("python3 inputs/x.py", "python3 inputs/x.py", False),
        ("python3 Work/x.py", "python3 Work/x.py", False),
        ("python3 -m work.x", "python3 -m work.x", False),
        ("make --file=work/x", "make --file=work/x", False),
        ("make -fwork/x", "make -fwork/x", False),
        ("bash ../../out/x.sh", "bash ../../out/x.sh", False),
    ],
)
def test_a_command_is_not_allowed_where_the_call_brings_the_file_that_the_rule_names(
    rule: str, command: str, fits: bool
) -> None:
    allow = _rules(f'"{rule}"', "allow")
    assert _fits(allow, command), "without inputs"
    assert _fits(allow, command, inputs=[])
    for inputs in ([{"from": "skill://w/evil.py", "to": "work/x.py"}], "skill://w/x.py"):
        assert _fits(allow, command, inputs=inputs) is fits


@pytest.mark.parametrize("program", ["work/x.sh", "./out/x", "inputs/x", ".venv/bin/git", "Work/x", "../x"])
def test_a_program_where_a_run_can_write_is_never_allowed(program: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _rules(f'"{program}"', "allow")
    assert caught.value.code == "rule-unreachable"
    assert not _fits(_rules('"**"', "allow"), program)


def test_a_folder_that_a_rule_names_may_be_where_inputs_go() -> None:
    for cwd, fits in (("sub", True), ("work", False), ("$WORK_DIR", False), ("/workspace/work", False)):
        rules = _rules('"python3 x.py"', "allow", f'args = {{cwd = "{cwd}"}}')
        assert _fits(rules, "python3 x.py", cwd=cwd)
        assert _fits(rules, "python3 x.py", cwd=cwd, inputs=["skill://w/x.py"]) is fits


@pytest.mark.parametrize(
    "command",
    [
        "git add *",
        "git add ?.py",
        "git add [ab]",
        "git add ~/x",
        "git add $X",
        "git add x; ls",
        "git add x > y",
        "git add {a,b}",
        "A=1 git add x",
        "git add `x`",
        "./git add x",
        "env git add x",
        "Git add x",
        "/tmp/../usr/bin/git add x",
    ],
)
def test_what_a_shell_would_change_and_another_program_are_not_allowed(command: str) -> None:
    allow = _rules('"git add"', "allow")
    assert not _fits(allow, command)
    assert _fits(allow, "git add x '*' \"~\" \\$X")


@pytest.mark.parametrize(
    "env", [{"GIT_SSH": "x"}, {"PSQLRC": "x"}, {"A": "1"}, {"LANG": "C", "X": ""}, "LANG=C", ["x"]]
)
def test_a_command_is_allowed_with_variables_that_are_known_to_start_nothing(env: Any) -> None:
    allow = _rules('"git"', "allow")
    assert not _fits(allow, "git status", env=env)
    assert _fits(allow, "git status", env={"LANG": "de_DE.UTF-8", "NO_COLOR": "1"})
    assert _fits(_rules('"git"', "deny"), "git status", env=env)


def test_who_allows_a_program_that_starts_others_allows_what_it_starts() -> None:
    assert _fits(_rules('"env"', "allow"), "env rm x")
    assert not _fits(_rules('"env ls"', "allow"), "env rm ls")


def test_a_script_is_never_the_program_of_that_name() -> None:
    for rule, script in (("git", "git"), ("git", "./git"), ("a.py", "a.py")):
        assert not find_rule(
            _rules(f'"{rule}"', "allow"), PolicyQuery(tool="skill_run", args={"script": script}), located
        )
    root = PolicyQuery(tool="skill_run", args={"script": "a.py"})
    assert find_rule(_rules('"./a.py"', "allow"), root, located)


# --- what denies ----------------------------------------------------------------------------------------------------

RM = [
    "rm x",
    "rm",
    "/bin/rm x",
    "./rm x",
    "../../bin/rm x",
    "/bin/../bin/rm x",
    "/bin/rm/. x",
    "$WORK_DIR/rm x",
    "~/bin/rm x",
    "RM x",
    "Rm x",
    "rm.exe x",
    "rm-9 x",
    "rm2.1 x",
    "ｒｍ x",
    "𝐫𝐦 x",
    "r\u200bm x",
    "r\u00adm x",
    "r\\m x",
    "\\rm x",
    "'r'm x",
    'r""m x',
    "'rm' x",
    "r'm' x",
    "r\\\nm x",
    "$'rm' x",
    "$'\\x72m' x",
    "$(printf r)m x",
    "`printf rm` x",
    "$(echo rm) x",
    "r${X}m x",
    "$X x",
    "${X:-rm} x",
    '"$X" x',
    "{rm,x}",
    "/bin/r? x",
    "/bin/[r]m x",
    "/bin/r* x",
    "A=1 rm x",
    "A=1 $X x",
    ">y rm x",
    ">y $X x",
    "2>&1 $X",
    "! rm x",
    "! $X",
    "time rm x",
    "time ! rm x",
    "time -p $X",
    "time ! $X x",
    "ls; rm x",
    "ls;rm x",
    "ls && rm x",
    "ls || $X",
    "ls | rm x",
    "ls |& rm x",
    "ls & rm x",
    "ls\nrm x",
    "ls\n$X",
    "(rm x)",
    "(ls; $X)",
    "((rm x); ls)",
    "(($X y); ls)",
    "{ rm x; }",
    "{ $X x; }",
    "if true; then rm x; fi",
    "if $X; then y; fi",
    "while $X; do y; done",
    "for x in rm; do $x y; done",
    "case x in *) rm x;; esac",
    "case x in *) $X;; esac",
    "f() { rm x; }; f",
    "f(){ $X; }; f",
    "function f { rm x; }; f",
    "alias x=rm; x y",
    "alias x='r'm\nx y",
    "echo $(rm x)",
    'echo "$(rm x)"',
    'echo "`$X`"',
    "echo $(echo $($X))",
    "echo ${X:-$(rm x)}",
    "echo $((1 + $(rm x)))",
    "echo $(($X y); z)",
    "diff <(rm x) <($X)",
    "cat <<E\n$(rm x)\nE",
    "cat <<E\n$($X)\nE",
    "sh <<E\nrm x\nE",
    "sh <<'E'\n$X\nE",
    "cat <<'E' | sh\n$X\nE",
    "bash <<-E\n\trm x\n\tE",
    "bash <<< 'rm x'",
    "bash <<< '$X'",
    "printf 'ls\\nrm x' | sh",
    "echo rm x | sh",
    "bash -c 'rm x'",
    "bash -c'rm x'",
    'bash -c "r\\m x"',
    "bash -c 'ls; $X'",
    'bash -c "ls $X"',
    'bash -c "bash -c \'r\\"\\"m x\'"',
    "bash -c 'bash -c \"ls; \\$X\"'",
    "sh -c 'case x in *) $X;; esac'",
    "eval 'rm x'",
    "eval 'r\"\"m x'",
    "eval ls '; $X'",
    "eval $X",
    "eval 'echo a\\\\\nrm x'",
    "trap 'rm x' EXIT",
    "trap '$X' EXIT",
    "hash -p /bin/rm foo; foo x",
    "mapfile -C 'rm x' -c 1 <f",
    "compgen -C 'rm x'",
    "test -v 'a[$(rm x)]'",
    "jobs -x rm x",
    "exec rm x",
    "command -p rm x",
    "builtin eval rm x",
    ". <(echo rm)",
    "env rm x",
    "env A=1 rm x",
    "env -S 'rm x'",
    "env -S'rm x'",
    "env --split-string='rm x'",
    "env $X",
    "env {r,}m x",
    "nice -n 5 timeout 5 setsid stdbuf -oL rm x",
    "tini -- rm x",
    "ccache rm x",
    "nobody-knows-this rm x",
    "xargs rm",
    "xargs -I{} rm {}",
    "echo x | xargs $X",
    "find . -exec rm {} +",
    r"find . -exec sh -c 'rm {}' \;",
    "find . -exec $X {} +",
    "parallel rm ::: x",
    "busybox rm x",
    "sudo -u root rm x",
    "ssh host rm x",
    "ssh host '$X'",
    "git -c core.pager='rm x' log",
    "git -c alias.x='!rm y' x",
    "git rebase --exec='rm x' HEAD~1",
    "tar xf a.tar --to-command=rm",
    "awk 'BEGIN{system(\"rm x\")}'",
    "python3 -c 'import os; os.system(\"rm x\")'",
    'python3 -c \'subprocess.run(["rm", "x"])\'',
    "perl -e 'exec q(rm)'",
    "python3 *.py",
    "git commit -m 'rm x'",
    "echo rm",
    "rm\0x",
    "ls \x1b[1m",
    "ls \u202egnp",
    "rm 'x",
    'ls "',
    "ls `x",
    "ls $(x",
    "ls ${x",
    "(ls",
    "/bin/@(r)m x",
    "OUTPUT_DIR=$Y; $OUTPUT_DIR x",
    "read OUTPUT_DIR; $OUTPUT_DIR x",
    "r$'m' x",
    "r$''m x",
    'r$"m" x',
    "bash -c \"r\\$'m' x\"",
    "function g { $X y; }; g",
    "function g() { $X y; }; g",
    "function g if $X; then y; fi; g",
    "for i do $X y; done",
    "for i { $X y; }",
    "for ((i=0;i<1;i++)) do $X y; done",
    "for ((i=0;i<1;i++)) { $X y; }",
    "case x in (x) $X y;; esac",
    "case x in y) :;; (x) $X y;; esac",
    "case x in x) ($X y);; esac",
    "echo $(case x in x) $X y;; esac)",
    "echo $(case x in (esac) :;; x) $X y;; esac)",
    "echo $(time case x in x) $X y;; esac)",
    "echo $(case x in esac; $X y)",
    ": $(>f case; $X); >f esac; case a in b) >f esac;; a) ls;; esac",
    "select i do $X y; done",
    "<<<x $X y",
    "<<< 'x' $X y",
    "0<<<x A=1 $X y",
    "<<E $X y\nE",
    '((y=1<<"E"))\n$X y\nE',
    '((y=1+ (1<<"E")))\n$X y\nE',
    'z[1<<"E"]=1\n$X y\nE',
    "coproc N { $X y; }",
    "coproc N while $X; do y; done",
    "r${WORK_DIR}m x",
    "rm$WORK_DIR/x",
    'rm"$WORK_DIR" x',
    "unset WORK''_DIR; r${WORK_DIR}m x",
    "printf -v WORK''_DIR rm; $WORK_DIR/. x",
    "unset ${!W*}; ${WORK_DIR}rm x",
    "read ${!W*}; $WORK_DIR x",
    "env -i bash -c 'r${WORK_DIR}m x'",
    "env -Srm\\ x",
    "env -vSrm\\ x",
    "script -qcrm\\ x /dev/null",
    "su -crm\\ x",
    "git grep -Orm x",
    "git grep -O/bin/rm x",
    "hash -p /bin/r[m] z; z x",
    "BASH_CMDS[z]=/bin/r${e}m; z x",
    "BASH_CMDS=([z]=/bin/r${e}m); z x",
    "declare PS4='$($X y)'; set -x; :",
    'mapfile -c1 -C "$X y" <f',
    'compgen -C "$X y"',
    "alias z=$X\nz y",
    "setarch x86_64 /bin/r[m] x",
    "/usr/bin/linux64 /bin/r[m] x",
    "i386 /bin/r[m] x",
    "prlimit --nproc=9 /bin/r[m] x",
    "choom -n 0 -- /bin/r[m] x",
    "/lib64/ld-linux-x86-64.so.2 /bin/r[m] x",
    "logsave - /bin/r[m] x",
    'sg root -c "r${e}m x"',
    "fakeroot /bin/r[m] x",
    "ssh-agent /bin/r[m] x",
    "dbus-run-session /bin/r[m] x",
    'split --filter="r${e}m x" y',
    "ls " + "x" * 140_000,
    "ls " + "x " * 50_000 + "; rm y",
    "bash -c " * 40 + "rm",
]


@pytest.mark.parametrize("command", RM, ids=lambda command: ascii(command)[:60])
def test_a_program_that_is_denied_is_denied_however_it_is_spelt(command: str) -> None:
    assert _fits(_rules('"rm"', "deny"), command)
    assert _fits(_rules('"rm"', "ask"), command)
    assert _fits(_rules('"rm"', "allow"), command) is (command in PLAIN)


PLAIN = ("rm x", "rm", "/bin/rm x", "r\\m x", "\\rm x", "'r'm x", 'r""m x', "'rm' x", "r'm' x")  # and certainly that


def test_there_are_enough_spellings() -> None:
    assert len(set(RM)) == len(RM) >= 150


@pytest.mark.parametrize(
    "command",
    [
        "python3 scripts/a.py",
        "python3 ./scripts/a.py",
        "python3 scripts//a.py",
        "python3 scripts/../scripts/a.py",
        "python3 Scripts/A.py x",
        "python3 /workspace/skills/w/scripts/a.py",
        "python3 $SKILL_DIR/scripts/a.py",
        "python3 scripts/?.py",
        "python3 scr*/a.py",
        "python3 -X dev scripts/a.py",
        "python3.11 scripts/a.py",
        "python scripts/a.py",
        "python3 < scripts/a.py",
        "cd scripts && python3 a.py",
        "env -C scripts python3 a.py",
        "bash ./scripts/b.sh",
        "bash < scripts/b.sh",
        "cat scripts/b.sh | sh",
        "cd scripts && sh b.sh",
        ". scripts/b.sh",
        "./scripts/b.sh",
        "git -C x push",
        "git --no-pager push -f",
        "git stash && git commit && git push",
        "git pu$'sh'",
        "git pu${e}sh x",
        "g=push; git $g",
        'git -C x --no-pager "pu$e"sh',
        "git p*",
        "git $(echo pu)sh",
        "ls; { git ${x:-push}; }",
    ],
)
def test_a_rule_of_several_words_fits_them_in_this_order(command: str) -> None:
    assert _fits(_rules(DENIED, "deny"), command)


def test_a_script_that_is_denied_is_denied_from_its_own_folder() -> None:
    deny = _rules(DENIED, "deny")
    for command in ("python3 a.py", "python3 ../scripts/a.py", "bash b.sh", "sh ./b.sh"):
        assert _fits(deny, command, cwd="scripts"), command
    for command in ("./x.sh", "bash x.sh"):
        assert _fits(_rules('"scripts/*"', "deny"), command, cwd="scripts")
    assert _fits(_rules('"scripts/*"', "deny"), "cd scripts && bash x.sh")
    assert _fits(_rules('"bash scripts/**"', "deny"), "bash scripts/deep/x.sh")


@pytest.mark.parametrize(
    "command",
    [
        "python3 scripts/c.py",
        "python3 -m pytest",
        "python3 -c 'print(a[0] * 2)'",
        "cat scripts/a.py",
        "push git",
        "git status",
        "git add *",
        'git -C x commit -m "$X"',
        "find . -perm 644",
        "echo git; ls $X",
        "cat x <<< $X",
        "echo $(case $x in a) ls;; (b) pwd;; esac) $Y",
        "python3 x.py $WORK_DIR \"$WORK_DIR\" --out=$OUTPUT_DIR '$RUN_DIR/x'",
        "find $WORK_DIR -name x",
        "find . -exec git add {} +",
        "docker run --rm x",
        "rmdir x; form y",
        "echo \"$HOME is $X\" 'and $Y'",
        "cp $A $B",
        "ls $(pwd)",
        "x=$(date); echo $x",
        "echo $((n * 2)) ${X:-y} ${#X}",
        "python3 x.py > $OUTPUT_DIR/y",
        "${SKILL_DIR}/run.sh $WORK_DIR",
        'for f in *.csv; do wc -l "$f"; done',
        'while read l; do echo "$l"; done < x',
        'if [ -n "$X" ] && [[ -f x ]]; then echo; fi',
        "case $x in a) ls;; *) pwd;; esac",
        "f() { ls; }; f",
        "{ ls; pwd; } 2>&1 | head > x",
        "files=(*.csv); ls",
        "A=1 ls",
        "# isn't read\nls",
        "cat > x.py <<'EOF'\nprint(\"don't\", a[0], '$X', `x`)\nEOF\npython3 x.py",
        "python3 - <<EOF\nprint(a[0] * 2)\nEOF",
        "bash -c 'ls *.csv; echo $X'",
        "awk '{print $1}' x | sed -n '1,5p'",
        "grep -E '(a|b)' x",
    ],
)
def test_what_denies_leaves_the_rest_alone(command: str) -> None:
    assert not _fits(_rules(DENIED, "deny"), command)


def test_what_a_script_is_and_what_an_interpreter_reads_are_words_as_well() -> None:
    def denied(rule: str, **args: Any) -> bool:
        return find_rule(_rules(f'"{rule}"', "deny"), PolicyQuery(tool="skill_exec", args=args)) is not None

    for args in ({"script": "scripts/a.py"}, {"script": "./scripts//a.py"}, {"script": "a.py", "cwd": "scripts"}):
        assert denied("python3 scripts/a.py", **args) and denied("scripts/a.py", **args) and denied("python", **args)
        assert not denied("bash", **args)
    assert denied("scripts/a.py upload", script="scripts/a.py", args=["upload"])
    assert denied("rm", script="scripts/a.py", args=["-x", "rm y"])
    for command in (
        *("python3 -", "python3", "bash -s", "sh /dev/stdin", "bash -s x", "bash 2>&1", "cat | bash", "python3 - x"),
        *("bash; true", "bash > log.txt", "bash -o pipefail", "bash --rcfile a.b", "timeout 1.5 bash", "bash x=1"),
    ):
        assert denied("rm", command=command, stdin="import os; os.system('rm x')")
    assert denied("rm", command="bash", stdin="$X y") and not denied("rm", command="bash", stdin="ls $X")
    assert not denied("rm", command="python3 scripts/a.py", stdin="a text that says rm")
    for args in ({}, {"command": ["rm"]}, {"command": "ls", "script": "x"}, {"script": 5}, {"script": "x", "args": 5}):
        assert denied("rm", **args)


# --- a real shell is asked ------------------------------------------------------------------------------------------

_PARTS = st.sampled_from(
    [
        *("victim", "vic", "tim", "echo ", "ls ", "X=vic", "$X", "${X}", "$(echo vic)", "`echo vic`", "A=1 ", "./bin/"),
        *(" ", " ", ";", "&&", "|", "&", "\n", "'", '"', "\\", "(", ")", "{ ", "; }", "{vic,x}", "# ", "! ", "$", "*"),
        *("eval ", "bash -c ", "env ", "exec ", "command ", "time ", "cat <<E\n", "\nE\n", "if true; then ", "; fi"),
        *("vict?m", "vict[i]m", "$'vic'", "<(", ">f ", "2>&1 ", "x() { ", "case x in x) ", ";; esac", "[ ", " ]"),
    ]
)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to start in, with the only programs that there are: a few harmless ones, and one that leaves a mark."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "bin").mkdir()
    for name in ("bash", "env", "echo", "ls", "cat"):
        (folder / "bin" / name).symlink_to(f"/bin/{name}")
    (folder / "bin/victim").write_text(f"#!/bin/sh\n: > {folder}/mark\n", encoding="utf-8")
    (folder / "bin/victim").chmod(0o755)
    return folder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(parts=st.lists(_PARTS, min_size=1, max_size=9))
def test_no_line_by_which_a_real_shell_runs_a_program_gets_past_a_rule_that_denies_it(
    shell: Path, parts: list[str]
) -> None:
    line = "".join(parts)
    subprocess.run(
        ["/bin/bash", "--norc", "-c", line],
        cwd=shell,
        env={"PATH": f"{shell}/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if (mark := shell / "mark").exists():
        mark.unlink()
        assert _fits(_rules('"victim"', "deny"), line)


def _spelt(word: str, how: list[int]) -> str:
    """The word in one of the ways in which a shell takes it for the same."""
    spelt = "".join([each, f"'{each}'", f'"{each}"', f"\\{each}"][n % 4] for each, n in zip(word, how, strict=False))
    return ["", "/bin/", "./", "a/../"][how[-1] % 4] + spelt


@given(
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.lists(
        st.sampled_from(["ls; {}", "env {}", "unknown -x {}", "( {} )", "x=$({})", "A=1 {}", "{{ {}; }}"]), max_size=4
    ),
    st.integers(0, 2),
)
def test_a_denied_program_is_found_at_any_depth(how: list[int], around: list[str], shells: int) -> None:
    line = f"{_spelt('victim', how)} x"
    for each in around:
        line = each.format(line)
    for _ in range(shells):
        line = f"bash -c {shlex.quote(line)}"
    assert _fits(_rules('"victim"', "deny"), line), line


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        *("a", "a ", "a1.", "'", '"', "\\", "$(", "${", "`", "<<E\n", "<<'", "((", "$((", "{", "[", "a=", "$'"),
        *("{ ", "! ", "case ", "case;", "esac ", "( ", "( <<E ", "<<<", "for ", "function ", "coproc ", "-c", "-c "),
        *("#", "\n", "\\\n", "bash -c '", "é", "/", "../", "$OUTPUT_DIR "),
    ],
)  # fmt: skip
def test_a_line_is_read_in_time_that_grows_with_its_length(part: str) -> None:
    deny = _rules('"rm"', "deny")

    def seconds(length: int) -> float:
        took = []
        for n in range(3):
            line = f"ls{n} " + part * (length // len(part))
            started = time.process_time()
            _fits(deny, line)
            took.append(time.process_time() - started)
        return min(took)

    seconds(1_000)
    assert seconds(64_000) < 40 * seconds(8_000) + 0.05, "eight times as long; it would be 64 times if it were squared"


@pytest.mark.parametrize("line", ["bash <<'E{}'\n", "bash <<'E{}' | bash\n"])
def test_documents_within_documents_are_read_in_time_that_does_not_double_with_each(line: str) -> None:
    def seconds(depth: int) -> float:
        begin = "".join(line.format(n) for n in range(depth))
        text = begin + "x 'a' " * 200 + "\n" + "".join(f"E{n}\n" for n in reversed(range(depth)))
        started = time.process_time()
        _fits(_rules('"rm"', "deny"), text)
        return time.process_time() - started

    seconds(1)
    assert seconds(8) < 20 * seconds(2) + 0.1, "four times as deep; it would be 64 times if each doubled it"


@pytest.mark.parametrize("wanted", ["python3 " + "*a" * 200, "python3 " + "a/" * 200 + "*"])
def test_long_patterns_on_both_sides_come_to_an_end(wanted: str) -> None:
    assert not _fits(_rules(f'"{wanted}"', "deny"), "ls " + "*a" * 400 + "/" + "?" * 400)
    _fits(_rules(f'"{wanted}"', "deny"), "cd x; python3 " + "*a/" * 200 + "[" * 400)


# --- why ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({}, "The call does not say either command, or script and args."),
        ({"command": "   "}, "The call does not say either command, or script and args."),
        ({"command": "$X y"}, "'$X' is only known while the command runs; write it out."),
        ({"command": "ls 'x"}, "A single quote is never closed."),
    ],
)
def test_a_command_that_cannot_be_read_is_denied_for_that_reason(args: dict[str, Any], why: str) -> None:
    rules = _rules('"rm"', "deny", 'why = "no rm."')
    decision = decide(PolicyQuery(tool="skill_run", args=args), PolicyContext(), rules=[rules])
    assert decision.verdict == "deny"
    assert decision.why == f"no rm. {why} So it counts as what the rule is about."


def test_the_reason_names_the_words_that_were_found() -> None:
    for rule, command, words in (("rm", "ls; /bin/RM x", "'/bin/RM'"), ("git push", "git -C x push", "'git', 'push'")):
        rules = _rules(f'"{rule}"', "ask", 'why = "Think."')
        decision = decide(PolicyQuery(tool="skill_run", args={"command": command}), PolicyContext(), rules=[rules])
        assert decision.why == f"Think. Found in the command: {words}."
