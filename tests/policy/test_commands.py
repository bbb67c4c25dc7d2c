"""One plain command, read as a shell reads it; and lists of commands, which hold without a shell."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.core.values import Isolation
from prowess.policy.commands.check import is_program
from prowess.policy.commands.parse import NotSimple, ShellCommand, split_command
from prowess.policy.decision import PolicyContext, PolicyQuery, decide

SANDBOX = Isolation(executor="sandbox", mechanism="bwrap+seccomp", network="none", kind="sandbox")


# --- one simple command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("ls", ["ls"]),
        ("  ls \t -la  ", ["ls", "-la"]),
        ("python3 scripts/run.py --name 'a b'", ["python3", "scripts/run.py", "--name", "a b"]),
        ('git commit -m "it works; really & truly"', ["git", "commit", "-m", "it works; really & truly"]),
        ("echo 'a | b > c $(d) `e` {f,g} # h'", ["echo", "a | b > c $(d) `e` {f,g} # h"]),
        (r"echo a\ b \; \| \$HOME \"x\"", ["echo", "a b", ";", "|", "$HOME", '"x"']),
        (r'echo "a\"b\\c\$d\`e\n"', ["echo", 'a"b\\c$d`e\\n']),
        ("echo a'b'\"c\"d", ["echo", "abcd"]),
        ("echo '' \"\"", ["echo", "", ""]),
        ("echo a#b", ["echo", "a#b"]),
        ("find . ! -name x", ["find", ".", "!", "-name", "x"]),
        (r"find . -exec ls {} \;", ["find", ".", "-exec", "ls", "{}", ";"]),
        ("echo 数据 é 🎉", ["echo", "数据", "é", "🎉"]),
        ("grep -e 'foo$' x", ["grep", "-e", "foo$", "x"]),
        ("tool a=b --x=y", ["tool", "a=b", "--x=y"]),
        ("[ -f x ]", ["[", "-f", "x", "]"]),
    ],
)
def test_words_quotes_and_backslashes_are_read_as_a_shell_reads_them(text: str, argv: list[str]) -> None:
    command = split_command(text)
    assert isinstance(command, ShellCommand), command
    assert list(command.argv) == argv


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "''",
        "'' x",
        "ls; rm x",
        "ls;rm x",
        "ls & rm x",
        "ls && rm x",
        "ls || rm x",
        "ls | sh",
        "ls |& sh",
        "ls\nrm x",
        "ls\rrm x",
        "ls \\\nrm",
        "echo 'a\nb'",
        "echo a > b",
        "echo a>b",
        "echo a 2>&1",
        "cat < x",
        "cat <<EOF",
        "cat <<< x",
        "echo `id`",
        'echo "`id`"',
        "echo $(id)",
        'echo "$(id)"',
        "echo $HOME",
        "echo ${HOME}",
        'echo "$HOME"',
        "echo $'a'",
        'echo $"a"',
        "echo $((1+1))",
        "(ls)",
        "{ ls; }",
        "echo {a,b}",
        "echo {1..9}",
        "echo a}",
        "ls # comment",
        "#ls",
        "A=1 ls",
        "A+=1 ls",
        "A[0]=1 ls",
        "'A=1' ls",
        "! ls",
        "if true",
        "while true",
        "for x in y",
        "[[ -f x ]]",
        "function x",
        "echo 'a",
        'echo "a',
        "echo a\\",
        "echo \0",
        "echo \x1b[31m",
        "echo \x7f",
        "echo a\u2028b",
        "echo \u202egnp.exe",
        "echo \ud800",
        "diff <(a) <(b)",
        "echo " + "a" * 20_000,
    ],
)
def test_what_a_shell_would_do_more_with_is_refused(text: str) -> None:
    problem = split_command(text)
    assert isinstance(problem, NotSimple), problem
    assert problem.why.endswith(".") and problem.why.isprintable()


def test_patterns_and_tildes_stay_as_they_are_and_a_note_says_so() -> None:
    command = split_command("ls *.csv ~/x ?y [ab]")
    assert isinstance(command, ShellCommand)
    assert command.argv == ("ls", "*.csv", "~/x", "?y", "[ab]")
    assert len(command.notes) == 4
    quoted = split_command("ls '*.csv' a~b")
    assert isinstance(quoted, ShellCommand)
    assert quoted.notes == ()


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cf"]), max_size=12)))
def test_what_was_quoted_by_shlex_comes_back(words: list[str]) -> None:
    text = shlex.join(["tool", *words])
    command = split_command(text)
    assert isinstance(command, ShellCommand), command
    assert list(command.argv) == ["tool", *words]


@given(st.text(alphabet=" ab'\"\\;|&<>$`(){}#*=~!\n", max_size=30))
def test_whatever_is_accepted_is_read_like_posix_reads_it(text: str) -> None:
    command = split_command(text)
    if isinstance(command, ShellCommand):
        assert list(command.argv) == shlex.split(text)


# --- the lists ------------------------------------------------------------------------------------------------------


def _judge(command: str, *, allow: str = "", deny: str = "", **args: object) -> tuple[str, str]:
    around = PolicyContext(isolation=SANDBOX, commands_allow=tuple(allow.split()), commands_deny=tuple(deny.split()))
    decision = decide(PolicyQuery(tool="skill_run", args={"command": command, **args}), around)
    assert decision.why.endswith(".") and decision.why.isprintable() and len(decision.why) < 400
    return decision.verdict, decision.why


@pytest.mark.parametrize(
    ("word", "name", "is_that"),
    [
        ("python3", "python3", True),
        ("/usr/bin/python3", "python3", True),
        ("/bin/python3", "python3", True),
        ("./python3", "python3", False),
        ("bin/python3", "python3", False),
        ("/tmp/python3", "python3", False),
        ("/usr/bin/../../tmp/python3", "python3", False),
        ("/usr/bin/x/../python3", "python3", False),
        ("//usr/bin/python3", "python3", False),
        ("/proc/self/root/usr/bin/python3", "python3", False),
        ("Python3", "python3", False),
        ("python3.11", "python3", False),
        ("python", "python3", False),
        ("scripts/run.sh", "scripts/run.sh", True),
        ("./scripts/run.sh", "scripts/run.sh", True),
        ("scripts/run.sh", "./scripts/run.sh", True),
        ("scripts/x/../run.sh", "scripts/run.sh", False),
        ("../scripts/run.sh", "scripts/run.sh", False),
        ("run.sh", "scripts/run.sh", False),
        ("/opt/x/tool", "/opt/x/tool", True),
        ("tool", "/opt/x/tool", False),
    ],
)
def test_allow_is_strict(word: str, name: str, is_that: bool) -> None:
    assert is_program(word, name) is is_that


ALLOW = "git python3 timeout env find sed"


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "/usr/bin/git status",
        "git commit -m 'rm -rf is only a text'",
        "python3 scripts/run.py --exec x",
        "python3 -c 'print(1)'",
        "timeout 5 rm x",  # who allows timeout allows what it starts
        "env rm x",
        "find . -exec rm {} +",
        "git -c core.pager=x log",
        "sed --expression 'e ls' x",
    ],
)
def test_an_allow_list_lets_its_programs_through_with_any_words(command: str) -> None:
    assert _judge(command, allow=ALLOW)[0] == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf x",
        "/bin/rm x",
        "./git status",
        "/tmp/git status",
        "bin/git status",
        "../git status",
        "Git status",
        "python3.11 x.py",
        "git status; rm x",
        "git status && rm x",
        "git status & rm x",
        "git status | sh",
        "git $(rm x)",
        "git `rm x`",
        "git status\nrm x",
        "git log > x",
        "X=1 git status",
        "bash -c 'git status'",
        "eval git status",
        "! git status",
        "if true; then git status; fi",
    ],
)
def test_an_allow_list_refuses_the_rest(command: str) -> None:
    assert _judge(command, allow=ALLOW)[0] == "deny"


@pytest.mark.parametrize("name", ["RIPGREP_CONFIG_PATH", "PYTEST_ADDOPTS", "PSQLRC", "GCC_EXEC_PREFIX", "MODE", "x"])
def test_with_an_allow_list_a_call_sets_only_variables_that_are_known_to_start_nothing(name: str) -> None:
    verdict, why = _judge("git status", allow="git", env={name: "x"})
    assert verdict == "deny" and name in why
    assert _judge("git status", allow="git", env={"LANG": "C.UTF-8", "TZ": "Europe/Berlin", "LC_ALL": ""})[0] == "allow"
    for value in ("../../x", "/x", "a\nb", "a b"):
        assert _judge("git status", allow="git", env={"LANG": value})[0] == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "/bin/rm x",
        "./rm x",
        "RM x",
        "env nice nohup rm x",
        "bash -c 'ls; rm x'",
        "bash -c '$X y'",
        "python3 -c 'os.system(\"rm x\")'",
        "git rm x",
        "echo rm",
        "find . -exec rm {} +",
        "ls; pwd",
        "ls $X",
    ],
)
def test_a_deny_list_refuses_what_mentions_a_name_and_what_is_not_one_plain_command(command: str) -> None:
    assert _judge(command, deny="rm curl")[0] == "deny"


@pytest.mark.parametrize(
    "command", ["ls -la", "python3 x.py", "bash x.sh", "docker run --rm x", "rmdir x", "form x", "env A=1 ls", "ls *"]
)
def test_a_deny_list_lets_everything_else_through(command: str) -> None:
    assert _judge(command, deny="rm curl")[0] == "allow"


def test_deny_wins_and_says_which_name() -> None:
    assert _judge("rm x", allow="rm", deny="rm") == ("deny", "'rm' is on the list of denied commands (rm).")
    assert "only the bare name" in _judge("./git x", allow="git")[1]
    assert "(git, ls)" in _judge("rm", allow="git ls")[1]
    assert _judge("", allow="git")[0] == _judge("", deny="git")[0] == "deny"
