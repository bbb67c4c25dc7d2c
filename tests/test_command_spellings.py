"""What denies a command holds however the command is spelt; what allows one holds only where its words say all."""

from __future__ import annotations

from typing import Any

import pytest

from prowess.errors import ConfigError
from prowess.policy.decision import Surroundings, decide
from prowess.policy.rules import Request, Rules, find_rule, parse_rules

DENIED = '["rm", "git push", "python3 scripts/a.py", "scripts/b.sh"]'


def _rules(command: str, verdict: str, more: str = "") -> Rules:
    return parse_rules(f'[[rule]]\ncommand = {command}\nverdict = "{verdict}"\n{more}', "policy.toml")


def _fits(rules: Rules, command: str, **args: Any) -> bool:
    return find_rule(rules, Request(tool="skill_run", args={"command": command, **args})) is not None


# --- what allows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cwd", [None, "", ".", "./", "./."])
def test_a_command_is_allowed_in_its_skills_own_folder(cwd: str | None) -> None:
    assert _fits(_rules('"python3 scripts/a.py"', "allow"), "python3 scripts/a.py x", cwd=cwd)


@pytest.mark.parametrize("cwd", ["evil", "./evil", "$WORK_DIR", "${OUTPUT_DIR}/x", "..", "/tmp", "a/..//b", ["x"], 7])
def test_a_command_that_is_allowed_is_not_allowed_in_another_folder(cwd: Any) -> None:
    for allowed in ("python3 scripts/a.py", "python3", "scripts/b.sh", "git status"):
        assert not _fits(_rules(f'"{allowed}"', "allow"), allowed, cwd=cwd)
    script = Request(tool="skill_exec", args={"script": "scripts/b.sh", "cwd": cwd})
    assert not find_rule(_rules('"scripts/b.sh"', "allow"), script)


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
        ("python3 work/*", "python3 work/x.py", False),
        ("python3 */x.py", "python3 work/x.py", False),
        ("python3 inputs/x.py", "python3 inputs/x.py", False),
        ("python3 Work/x.py", "python3 Work/x.py", False),
        ("python3 -m work.x", "python3 -m work.x", False),
        ("make --file=work/x", "make --file=work/x", False),
        ("make -fwork/x", "make -fwork/x", False),
        ("bash ../../out/x.sh", "bash ../../out/x.sh", False),
        ("work/x.sh", "work/x.sh", False),
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


def test_a_folder_that_a_rule_names_may_be_where_inputs_go() -> None:
    for cwd, fits in (("sub", True), ("work", False), ("$WORK_DIR", False), ("/workspace/work", False)):
        rules = _rules('"python3 x.py"', "allow", f'args = {{cwd = "{cwd}"}}')
        assert _fits(rules, "python3 x.py", cwd=cwd)
        assert _fits(rules, "python3 x.py", cwd=cwd, inputs=["skill://w/x.py"]) is fits


@pytest.mark.parametrize(
    "command",
    [
        "env -C evil python3 scripts/a.py",
        "env -iC evil python3 scripts/a.py",
        "env --chdir=evil python3 scripts/a.py",
        "env -S '-C evil python3 scripts/a.py'",
        "env env -C evil env python3 scripts/a.py",
        r"find . -execdir python3 scripts/a.py \;",
    ],
)
def test_a_program_that_chooses_the_folder_of_another_is_not_certain(command: str) -> None:
    allow = _rules('["env", "find", "python3 scripts/a.py"]', "allow")
    assert not _fits(allow, command)
    assert _fits(allow, "env A=1 python3 scripts/a.py -C x")
    assert _fits(allow, r"find . -exec python3 scripts/a.py \;")


@pytest.mark.parametrize(
    "builtin", ["trap 'ls' EXIT", "compgen -C ls", "hash -p /bin/ls x", "mapfile -C ls", "jobs -x ls"]
)
def test_what_a_shell_keeps_for_later_cannot_be_allowed(builtin: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _rules(f'"{builtin}"', "allow")
    assert caught.value.code == "policy-never-fits"
    allow = _rules(f'["{builtin.split()[0]}", "ls"]', "allow")
    assert not _fits(allow, builtin)


# --- what denies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "python3 ./scripts/a.py",
        "python3 scripts//a.py",
        "python3 scripts/../scripts/a.py",
        "python3 scripts/./a.py x",
        "python3 Scripts/A.py",
        "python3 ../w/scripts/a.py",
        "python3 /workspace/skills/w/scripts/a.py",
        "python3 ~/w/scripts/a.py",
        "python3 scripts/?.py",
        "python3 scr*/a.py",
        "python3 scripts/[a].py",
        "python3 scripts/[[:alpha:]].py",
        "python3 -u scripts//a.py",
        "python3 -X dev scripts//a.py",
        "python3 -W ignore ./scripts/a.py",
        "python3 -m scripts.a",
        "python3 -um scripts.a",
        "python3 -mscripts.a",
        "python3.11 -m scripts.a",
        "python scripts/a.py",
        "pypy3 ./scripts/a.py",
        "./scripts/a.py",
        "python3 -c 'import scripts.a'",
        "python3 -c 'import runpy; runpy.run_path(\"scripts/a.py\")'",
        "python3 < scripts/a.py",
        "cat scripts/a.py | python3 -",
        "cd scripts && python3 a.py",
        "cd scripts; python3 ./a.py",
        "pushd scripts\npython3 a.py",
        "builtin cd scripts && python3 a.py",
        "cd scripts && python3 -m a",
        "cd scripts && ./a.py",
        "cd .. && python3 w/scripts/a.py",
        "cd scripts/x && python3 ../a.py",
        "cd scripts && python3 *",
        "cd scripts && python3 ./*",
        "env -C scripts python3 a.py",
        "env --chdir scripts python3 a.py",
        r"find scripts -execdir python3 a.py \;",
        "find scripts -name a.py -exec python3 {} +",
        "python3 /proc/self/cwd/scripts/a.py",
        "python3 -- scripts//a.py",
        "uv run ./scripts/a.py",
        "nohup ./scripts/a.py",
        "bash ./scripts/b.sh",
        "bash < scripts/b.sh",
        "cat scripts/b.sh | sh",
        "cd scripts && sh b.sh",
        ". scripts/b.sh",
    ],
)
def test_a_script_that_is_denied_is_denied_however_the_way_to_it_is_written(command: str) -> None:
    assert _fits(_rules(DENIED, "deny"), command)
    assert not _fits(_rules('["python3 scripts/a.py", "scripts/b.sh"]', "allow"), command) or command in (
        "python3 scripts/./a.py x",
    )


def test_a_script_that_is_denied_is_denied_from_its_own_folder() -> None:
    deny = _rules(DENIED, "deny")
    for command in ("python3 a.py", "./a.py", "python3 -m a", "python3 ../scripts/a.py", "bash b.sh", "sh ./b.sh"):
        assert _fits(deny, command, cwd="scripts"), command
    assert _fits(_rules('"scripts/*"', "deny"), "./x.sh", cwd="scripts")
    assert _fits(_rules('"scripts/*"', "deny"), "cd scripts && bash x.sh")
    assert _fits(_rules('"bash scripts/**"', "deny"), "bash x.sh", cwd="scripts/deep")
    assert _fits(_rules('"python3 -m scripts.a"', "deny"), "python3 scripts/a.py")
    assert _fits(_rules('"python3 scripts/__main__.py"', "deny"), "python3 scripts")


@pytest.mark.parametrize(
    "command",
    [
        "trap 'rm x' EXIT",
        "trap 'r\"\"m x' EXIT",
        "trap -- 'rm x' 0; true",
        "compgen -C 'rm x'",
        "complete -C 'rm x' y",
        "hash -p /bin/rm foo; foo x",
        "mapfile -C 'rm x' -c 1 <f",
        "readarray -tC 'rm x' y <f",
        "enable -f x y",
        "alias x=rm; x y",
        "jobs -x rm x",
        "fc -s x",
        "bind -x '\"a\": rm x'",
        "builtin trap 'rm x' EXIT",
        "command hash -p /bin/rm ls; ls x",
        "test -v 'a[$(rm x)]'",
        "[ -v 'a[`rm x`]' ]",
        "let 'b=a[$(rm x)]'",
        "printf -v 'a[$(rm x)]' y",
        "prlimit rm x",
        "prlimit --nproc=5 rm x",
        "prlimit -n5 rm x",
        "choom -n 1 -- rm x",
        "choom --adjust 1 rm x",
        "eatmydata rm x",
        "catchsegv rm x",
        "setarch x86_64 rm x",
        "linux64 rm x",
        "linux64 -R rm x",
        "uname26 rm x",
        "chrt -f 1 rm x",
        "taskset -c 0 rm x",
        "ionice -c 3 rm x",
        "unshare -r rm x",
        "nsenter -t 1 rm x",
        "setpriv --nnp rm x",
        "runuser -u x -- rm x",
        "script -qc 'rm x' y",
        "flock y rm x",
        "watch rm x",
        "parallel rm ::: x",
        "xargs rm",
        "runcon a rm x",
        "uclampset -m 1 rm x",
        "coresched new -- rm x",
        "pipesz -- rm x",
        "setpgid rm x",
        "ifne rm x",
        "pee 'rm x'",
        "mispipe 'rm x' y",
        "lckdo y rm x",
        "sg users 'rm x'",
        "eval 'r\"\"m x'",
        "eval 'r\\m x'",
        "bash -c 'r$Zm x'",
        "bash -c 'ls; r\"\"m x'",
        "/bin/r? x",
        "/bin/[r]m x",
        "/usr/bin/en* rm x",
    ],
)
def test_a_program_that_is_denied_is_found_behind_what_starts_it(command: str) -> None:
    assert _fits(_rules('"rm"', "deny"), command)


@pytest.mark.parametrize(
    "command",
    [
        "python3 scripts/c.py",
        "python3 other/scripts/c.py scripts",
        "python3 other/scripts/a.py",
        "python3 a.py",
        "python3 -m pytest",
        "python3 -c 'print(1)'",
        "cd scripts && python3 c.py",
        "cd scripts && ls",
        "cat scripts/a.py",
        "git add *",
        "find . -exec git add {} +",
        "git status",
        "bash scripts/c.sh",
        "hash -r",
        "mapfile -t x <f",
        "alias",
        "enable -n y",
        "[ -f x ]",
        "printf '%s\\n' '`x`' a[1]",
        "prlimit --nproc=5 ls",
        "choom -n 1 -- ls",
        "eatmydata ls",
        "bash -c 'ls | wc'",
        "env -C sub ls",
    ],
)
def test_what_denies_leaves_the_rest_alone(command: str) -> None:
    assert not _fits(_rules(DENIED, "deny"), command)


def test_the_words_of_one_script_in_one_folder_say_enough() -> None:
    for args in ({"script": "scripts/a.py"}, {"script": "./scripts//a.py"}, {"script": "a.py", "cwd": "scripts"}):
        assert find_rule(_rules(DENIED, "deny"), Request(tool="skill_run", args=args))
    assert not find_rule(_rules(DENIED, "deny"), Request(tool="skill_run", args={"script": "scripts/c.py"}))


@pytest.mark.parametrize("wanted", ["python3 " + "*a" * 200, "python3 " + "a/" * 200 + "*"])
def test_long_patterns_on_both_sides_come_to_an_end(wanted: str) -> None:
    assert not _fits(_rules(f'"{wanted}"', "deny"), "ls " + "*a" * 400 + "/" + "?" * 400)
    _fits(_rules(f'"{wanted}"', "deny"), "cd x; python3 " + "*a/" * 200 + "[" * 400)


# --- why ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [{}, {"command": ""}, {"command": "   "}, {"command": None}, {"command": "ls $X"}])
def test_a_command_that_cannot_be_read_is_denied_for_that_reason(args: dict[str, Any]) -> None:
    rules = _rules('"rm"', "deny", 'why = "no rm"')
    decision = decide(Request(tool="skill_run", args=args), Surroundings(), rules=[rules])
    assert decision.verdict == "deny"
    assert "cannot be read counts as one that the rule is about: no rm" in decision.why
    plain = decide(Request(tool="skill_run", args={"command": "ls; rm x"}), Surroundings(), rules=[rules])
    assert (plain.verdict, plain.why) == ("deny", "no rm")
