"""After the words of a rule that allows, no word starts a file of the skill: options of a table, and plain operands."""

from __future__ import annotations

from typing import Any

import pytest

from prowess.core.values import Located
from prowess.policy.commands.rules import Fit
from prowess.policy.rules import PolicyQuery, allows_anything, find_rule, fit, parse_rules

FILES = ("SKILL.md", "evil", "evil.so", "auto", "scripts/a.py", "sub/plugin")


def located(name: str) -> Located:
    """A machine that has every program where the system's are."""
    return Located(name if name.startswith("/") else f"/usr/bin/{name}")


def judge(rule: str, command: str, more: str = "", **args: Any) -> Fit:
    text = f"[[rule]]\ncommand = '''{rule}'''\nverdict = 'allow'\n{more}"
    query = PolicyQuery(tool="skill_run", args={"command": command, **args}, files=FILES)
    return fit(parse_rules(text, "p").rules[0], query, located)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("git", "git status"),
        ("git", "git status --short"),
        ("git status", "git status -sb"),
        ("ls", "ls -la"),
        ("wc -l", "wc -l scripts/a.py"),
        ("sort", "sort data.csv"),
        ("sort", "sort -k 2 -t, -rn data.csv"),
        ("sort", "sort -k2,2 --reverse work/x.csv"),
        ("tar -czf out/a.tgz", "tar -czf out/a.tgz out/b"),
        ("tar", "tar -czf out/a.tgz out/b"),
        ("tar", "tar xzf work/a.tgz"),
        ("tar", "tar -C work -xf work/inputs/a.tar --strip-components=1"),
        ("sed -n", "sed -n 5p scripts/a.py"),
        ("sed", "sed -n 1,20p a"),
        ("sed", "sed s/a/b/g x"),
        ("sed 's/a/b/'", "sed 's/a/b/' x -n"),
        ("git log", "git log --oneline -5 -- scripts/a.py"),
        ("git grep", "git grep -n foo"),
        ("git", 'git commit -am "x = y"'),
        ("git", "git --no-pager diff --stat HEAD~1"),
        ("git push", "git push -u origin main"),
        ("git push", "git push origin feature/x"),
        ("git clone", "git clone --depth 1 https://example.com/a/b work/b"),
        ("sed -i", "sed -i s/a/b/ work/x"),
        ("pip install", "pip install -U numpy"),
        ("pip install", "pip install 'numpy>=1.2,<3' 'pandas[excel]==2.1'"),
        ("python3 -m pip install", "python3 -m pip install numpy"),
        ("svn", "svn log -v --limit 5 https://example.com/a"),
        ("hg", "hg log -r . --stat"),
        ("pdftotext", "pdftotext -layout work/x.pdf out/x.txt"),
        ("openssl x509", "openssl x509 -in work/c.pem -noout -dates"),
        ("sed", r"sed -E 's/(a)\s+$/\1/' x"),
        ("sed", "sed -n '/a/,/b/p' x"),
        ("python3 scripts/a.py sort", "python3 scripts/a.py sort --any"),
        ("sort", "sort -o out/x work/y"),
        ("git add", "git add -A"),
        ("find", "find . -name a.py -type f"),
        ("find", "find work -size +5k -mtime -7"),
        ("xargs wc -l", "xargs wc -l"),
        ("xargs wc", "xargs wc -l a"),
        ("timeout 60 git fetch", "timeout 60 git fetch --tags origin"),
        ("nice sort", "nice sort -n a"),
        ("awk", 'awk -F, "{print NR, NF}" x.csv'),
        ("awk -F ,", "awk -F , '{print NR}' x"),
        ("awk -f scripts/a.awk", "awk -f scripts/a.awk work/x.csv"),
        ("make", "make test"),
        ("make test", "make test -j4"),
        ("gcc", "gcc -O2 -Wall -o out/x x.c -lm"),
        ("rsync", "rsync -av work/ out/"),
        ("curl", "curl -sSL -o out/x https://x.de/a"),
        ("ssh host", "ssh host df -h"),
        ("man", "man ls"),
        ("less", "less -N x"),
        ("python3", "python3 work/x.py"),
        ("python3 scripts/report.py", "python3 scripts/report.py work/inputs/sales.csv -v --out out/x"),
        ("scripts/report.sh", "scripts/report.sh --out out/x -n5"),
        ("env", "env rm x"),
        ("ls", "ls --color=always"),
        ("pytest", "pytest -q --tb=short"),
        ("head", "head -n5 x"),
        ("date", "date +%F"),
        ("cc", "cc x.c"),
        ("vim", "vim x"),
        ("psql", "psql -l"),
        ("sqlite3", "sqlite3 work/x.db"),
        ("split", "split -b 10m work/x work/p"),
        ("install", "install -m 644 work/x out/x"),
        ("zip", "zip -r out/a.zip out/b"),
        ("pandoc", "pandoc -s a.md -o out/a.html"),
        ("pandoc", "pandoc --to=html a.md"),
        ("sort --compress-program=gzip", "sort --compress-program=gzip x"),
        ("tar -I zstd", "tar -I zstd -cf out/x out/b"),
        ("ls", "ls a=b"),
        ("git diff", "git diff HEAD~1 -- scripts/a.py"),
        ("grep -r", "grep -r foo scripts"),
        ("git commit -m", 'git commit -m "fix"'),
        ("git -C work", "git -C work"),
        ("git -C work status", "git -C work status -s"),
        ("cat", "cat scripts/a.py"),
        ("jq", "jq .a work/x.json"),
        ("find . -exec grep x", "find . -exec grep x {} +"),
        ("make", "make"),
    ],
)
def test_harmless_use_stays_allowed(rule: str, command: str) -> None:
    assert judge(rule, command) == Fit(True, argv=judge(rule, command).argv)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("sort", "sort --compress-program ./evil x"),
        ("sort", "sort --compress-program=./evil x"),
        ("sort", "sort --compress-prog=./evil x"),
        ("sort", "sort --comp evil x"),
        ("git fetch", "git fetch work/evil"),
        ("pip3", "pip3 --python ./evil list"),
        ("pip install", "pip install work/evil"),
        ("svn diff", "svn diff --diff-cmd evil"),
        ("hg", "hg --config 'alias.x=!sh ev*' x"),
        ("pip install", "pip install file:evil"),
        ("pip install", "pip install a@file:evil"),
        ("pip install", "pip install git+file:evil"),
        ("pip install", "pip install 'evil[x]'"),
        ("pip install", "pip install https://example.com/a.whl evil"),
        ("python3 -m pip install", "python3 -m pip install ./evil"),
        ("sudo apt-get install", "sudo apt-get install -oDPkg::Pre-Invoke::=x"),
        ("sed", r"sed 's/a/\/b/e' x"),
        ("sed", r"sed 's/a\/b/c/e' x"),
        ("sed", r"sed '/a\//,/b/e' x"),
        ("git clone", "git clone --depth 1 work/evil out/x"),
        ("slogin h", "slogin h -oProxyCommand=./evil"),
        ("ssh-keygen", "ssh-keygen -D ./evil.so"),
        ("ssh-add", "ssh-add -s ./evil.so"),
        ("gpg", "gpg --agent-program ./evil -d x"),
        ("apt-get update", "apt-get update -o 'APT::Update::Pre-Invoke::=sh ev*'"),
        ("mysqldump", "mysqldump --plugin-dir work --default-auth evil"),
        ("sort -n", "sort -n --compress-program ./x"),
        ("tar", "tar -I ./evil -xf a"),
        ("tar", "tar -xI ./evil -f a"),
        ("tar", "tar xIf ./evil a"),
        ("tar", "tar -xf a --to-command ./evil"),
        ("tar", "tar -cf a --checkpoint=1 --checkpoint-action=exec=./evil b"),
        ("tar", "tar -xf a -F ./evil"),
        ("tar -xf", "tar -xf a -I./evil"),
        ("tar", 'tar "-xf-oProxyCommand=sh evil:a"'),
        ("tar", "tar --use-compress=./evil -xf a"),
        ("tar -I", "tar -I ./evil -xf a"),
        ("tar", "tar -T work/list -cf x"),
        ("sed", "sed e x"),
        ("sed", 'sed "1e ./evil" x'),
        ("sed", "sed s/a/b/e x"),
        ("sed", 'sed -n "s/a/b/w out/x" y'),
        ("sed -n", 'sed -n "1e ./evil" x'),
        ("sed", "sed -f work/x y"),
        ("sed", 'sed -e 5p -e "e ./evil" y'),
        ("sed", "sed --expression=e x"),
        ("sed", 'sed -n "/a/e" x'),
        ("sed -n 5p", 'sed -n 5p -e "e ./evil" x'),
        ("sed", 'sed "s/a/b/;e" x'),
        ("sed -l 5", 'sed -l 5 "1e ./evil" x'),
        ("sed -e", 'sed -e "1e ./evil" x'),
        ("split", "split --filter ./evil x"),
        ("split", "split --filter=./evil x"),
        ("split", "split --fil=evil x"),
        ("git grep", "git grep -O./evil x"),
        ("git grep", "git grep -O x"),
        ("git grep", "git grep --open-files-in-pager=./evil x"),
        ("git grep", "git grep --open=evil x"),
        ("git grep", "git grep -nO./evil x"),
        ("git", "git -c core.pager=./x log"),
        ("git", "git grep -O./evil x"),
        ("git", "git --exec-path=./x status"),
        ("git", "git -C work status"),
        ("git", "git bisect run ./evil"),
        ("git bisect", "git bisect run ./evil"),
        ("git", "git submodule foreach ./evil"),
        ("git", "git rebase --exec ./evil main"),
        ("git rebase", "git rebase -x ./evil main"),
        ("git rebase", "git rebase -mx./evil main"),
        ("git", "git evil"),
        ("git clone", "git clone -u ./evil x"),
        ("git clone", "git clone --upload-pack=./evil x"),
        ("git clone", "git clone -c core.fsmonitor=x y"),
        ("git clone", "git clone --template=work/t y"),
        ("git push", "git push work/evil main"),
        ("git push", "git push file:///x/y main"),
        ("git push", "git push --receive-pack=./evil origin"),
        ("git fetch", "git fetch --upload-pack ./evil origin"),
        ("git config", "git config core.pager ./x"),
        ("git", "git config alias.x !./evil"),
        ("git difftool", "git difftool -x ./evil"),
        ("git -c a=b", "git -c a=b bisect run ./evil"),
        ("git -C", "git -C work status"),
        ("git remote", "git remote add x work/evil"),
        ("gcc", "gcc -B./evil x.c"),
        ("gcc", "gcc -B . x.c"),
        ("gcc", "gcc -wrapper ./evil x.c"),
        ("gcc", "gcc -fplugin=evil.so x.c"),
        ("gcc", "gcc -specs=evil x.c"),
        ("gcc", "gcc @evil"),
        ("gcc-12", "gcc-12 -wrapper ./evil x.c"),
        ("g++", "g++ -wrapper ./evil x.c"),
        ("x86_64-linux-gnu-gcc-12", "x86_64-linux-gnu-gcc-12 -wrapper ./evil x"),
        ("install", "install -s --strip-program=./evil a b"),
        ("install", "install -s --strip-program evil a b"),
        ("find", "find . -exec ./evil \\;"),
        ("find", "find . -execdir sh evil +"),
        ("find", "find . -ok ./evil \\;"),
        ("find", "find . -fprintf out/x a"),
        ("xargs", "xargs ./evil"),
        ("xargs -n 1", "xargs -n 1 ./evil"),
        ("xargs", "xargs -a work/x sh"),
        ("xargs sort", "xargs sort --compress-program ./evil"),
        ("xargs -I {}", "xargs -I {} ./evil"),
        ("xargs -0", "xargs -0 -n1 ./evil"),
        ("rsync", "rsync -e ./evil a b:"),
        ("rsync", "rsync -ave ./evil a b:"),
        ("rsync", "rsync --rsh=./evil a b:"),
        ("rsync", "rsync --rsync-path=./evil a b"),
        ("awk", 'awk "BEGIN{system(\\"./evil\\")}"'),
        ("awk", "awk 'BEGIN{print | \"./evil\"}'"),
        ("awk", "awk -f evil x"),
        ("awk", 'awk -v x=1 "BEGIN{system(x)}"'),
        ("awk -F ,", "awk -F , 'BEGIN{system(\"./evil\")}'"),
        ("gawk", "gawk -l evil x"),
        ("gawk", "gawk --load=evil x"),
        ("mawk", "mawk -W exec evil"),
        ("awk", 'awk "@load \\"x\\"" a'),
        ("make", "make SHELL=./evil"),
        ("make", "make -f work/x"),
        ("make", "make -C work"),
        ("make", "make --eval=x"),
        ("make", "make -fwork/x"),
        ("make test", "make test CC=evil"),
        ("man", "man -P ./evil ls"),
        ("man", "man -C evil ls"),
        ("man", "man -H./evil ls"),
        ("man", "man -P./evil ls"),
        ("less", "less +!./evil x"),
        ("less", "less -kevil x"),
        ("less", "less --lesskey-src=evil x"),
        ("less", 'less "+!sh evil" x'),
        ("vim", 'vim -c ":!./evil" x'),
        ("vim", "vim +!./evil x"),
        ("vim", "vim -S evil"),
        ("vim", "vim -u evil x"),
        ("view", 'view --cmd "!./evil"'),
        ("vi", "vi -s evil x"),
        ("ssh host", "ssh host -oProxyCommand=./evil"),
        ("ssh", "ssh -oProxyCommand=./evil host"),
        ("ssh", "ssh -o ProxyCommand=./evil host"),
        ("ssh", "ssh -F evil host"),
        ("ssh -p 22", "ssh -p 22 -oProxyCommand=./evil h"),
        ("scp", "scp -S ./evil a b:"),
        ("scp", "scp -o ProxyCommand=./evil a b:"),
        ("scp", "scp -D ./evil a b:"),
        ("zip", "zip out/a.zip x -T -TT ./evil"),
        ("zip", "zip -rTT ./evil a b"),
        ("zip", "zip --unzip-command=./evil a b"),
        ("curl", "curl -K evil"),
        ("curl", "curl --engine ./evil.so x"),
        ("curl", "curl --eng ./evil.so x"),
        ("wget", "wget --use-askpass=./evil x"),
        ("wget", "wget -e use_askpass=./evil x"),
        ("wget", "wget --config=evil x"),
        ("pandoc", "pandoc -F ./evil x"),
        ("pandoc", "pandoc --lua-filter=evil x"),
        ("pandoc", "pandoc --lua-filter evil x"),
        ("pandoc", "pandoc -t work/evil.lua x"),
        ("pandoc", "pandoc -tevil x"),
        ("pandoc", "pandoc --to=work/evil.lua x"),
        ("pandoc", "pandoc -d evil x"),
        ("pandoc", "pandoc --pdf-engine=./evil x"),
        ("gs", "gs -sOutputFile=%pipe%./evil x"),
        ("gs", "gs -o %pipe%./evil x"),
        ("gs", 'gs -c "x" -f y'),
        ("convert", 'convert "|./evil" out/x.png'),
        ("convert", "convert msl:evil out/x.png"),
        ("sqlite3", 'sqlite3 work/x.db ".shell ./evil"'),
        ("sqlite3", 'sqlite3 -cmd ".shell ./evil" x'),
        ("sqlite3", 'sqlite3 x "select load_extension(1)"'),
        ("psql", 'psql -c "\\\\! ./evil"'),
        ("psql", "psql -f evil"),
        ("psql", "psql --set=PAGER=evil"),
        ("mysql", 'mysql -e "system ./evil"'),
        ("rg", "rg --pre ./evil x"),
        ("rg", "rg --pre=./evil x"),
        ("fd", "fd -x ./evil"),
        ("fdfind", "fdfind -X ./evil"),
        ("openssl", "openssl req -engine ./evil.so"),
        ("openssl", "openssl engine ./evil.so"),
        ("tcpdump", "tcpdump -z ./evil -w x"),
        ("nmap", "nmap --script=evil x"),
        ("exiftool", 'exiftool -if "system(1)" x'),
        ("exiftool", "exiftool -config evil x"),
        ("rename", 'rename "system(1)" x'),
        ("rename", "rename s/a/b/e x"),
        ("nm", "nm --plugin=evil.so x"),
        ("nm", "nm --plugin ./evil.so x"),
        ("ar", "ar --plugin ./evil.so rcs a b"),
        ("ld", "ld -plugin ./evil.so x"),
        ("timeout 60 sort", "timeout 60 sort --compress-program ./evil"),
        ("env sort", "env sort --compress-program ./evil"),
        ("nice -n 5 tar", "nice -n 5 tar -I ./evil -xf a"),
        ("sudo -u x git log", "sudo -u x git log -O./evil"),
        ("foo", "foo --load=./evil"),
        ("foo", "foo --load=evil.so"),
        ("foo", "foo -levil.so"),
        ("foo", "foo -xlevil.so"),
        ("foo", "foo -I./x"),
        ("foo", "foo -Iscripts"),
        ("foo", "foo --rc=work/x"),
        ("foo", "foo x=work/y"),
        ("foo", "foo rc=evil"),
        ("foo", "foo -I."),
        ("foo", "foo -Wl,evil"),
        ("foo", "foo --a=b:evil.so"),
        ("foo", "foo --load=/tmp/x"),
        ("foo", "foo --load=/usr/../tmp/x"),
        ("foo", "foo --load=EVIL.SO"),
        ("ls", "ls --color=auto"),
        ("foo", "foo -Cwork"),
        ("foo", "foo file:///x=1"),
        ("foo", "foo --x=.."),
    ],
)
def test_a_word_that_may_start_a_file_is_not_allowed(rule: str, command: str) -> None:
    found = judge(rule, command)
    assert not found.fits
    assert found.why.endswith(".") and found.why.isprintable()


@pytest.mark.parametrize("rule", ["vim x", "psql", "sqlite3 x.db", "sftp host", "ed x", "xargs sort", "timeout 5 ed x"])
def test_a_program_that_takes_commands_from_its_input_is_not_allowed_with_one(rule: str) -> None:
    assert judge(rule, rule).fits
    assert not judge(rule, rule, stdin=":!./evil\n").fits


def test_names_are_those_of_the_folder_in_which_it_starts() -> None:
    sub = 'args = {cwd = "sub"}'
    assert not judge("tool", "tool --load=plugin", sub, cwd="sub").fits
    assert judge("tool", "tool --load=plugin").fits
    assert judge("tool", "tool --load=evil", sub, cwd="sub").fits


def test_in_a_folder_where_a_run_can_write_every_value_may_be_a_file() -> None:
    work = 'args = {cwd = "work"}'
    assert judge("tool", "tool -v --all x", work, cwd="work").fits
    assert judge("sort", "sort -rn x", work, cwd="work").fits  # flags of the table name no file
    assert judge("pip install", "pip install zope.interface", work, cwd="work").fits
    assert judge("git push", "git push origin v1.0", work, cwd="work").fits
    for named in (".", "a.whl", "b.zip"):
        assert not judge("pip install", f"pip install {named}", work, cwd="work").fits
    for word in ("--load=x", "-lx", "load=x"):
        assert not judge("tool", f"tool {word}", work, cwd="work").fits


def test_a_word_in_the_place_of_a_star_is_judged_like_one_behind_the_rule() -> None:
    assert judge("sort * data.csv", "sort -n data.csv").fits
    assert not judge("sort * data.csv", "sort --compress-program=./evil data.csv").fits
    assert not judge("sed * data.csv", "sed '1e ./evil' data.csv").fits
    assert not judge("g*", "git grep -O./evil x").fits


def test_only_a_rule_for_a_program_that_still_starts_others_is_pointed_out() -> None:
    for rule, pointed_out in (("find", 0), ("xargs", 0), ("awk", 0), ("make", 1), ("env", 1), ("run-parts", 1)):
        found = parse_rules(f"[[rule]]\ncommand = '{rule}'\nverdict = 'allow'\n", "p")
        assert len(allows_anything(found.rules[0])) == pointed_out, rule


# --- what asks or denies ----------------------------------------------------------------------------------------------


def denies_touch(command: str) -> bool:
    deny = parse_rules('[[rule]]\ncommand = "touch"\nverdict = "deny"\n', "p")
    return find_rule(deny, PolicyQuery(tool="skill_run", args={"command": command})) is not None


@pytest.mark.parametrize(
    "command",
    [
        "find . -exec {} \\;",
        "find . -exec env {} +",
        "find . -execdir python3 -u {} \\;",
        "ls | xargs bash",
        "ls | xargs env",
        "ls | xargs -n1 nice -n 5",
        "xargs -I{} {}",
        "xargs -I % %",
        "xargs -I% sh -c % x",
        'sed "s/x/$Y/e" f',
        "sed '1e $X y' f",
        "sed -n '$e $X' f",
        'run-parts "$X"',
        "make $X",
        "xargs sh -c",
        "timeout 5 xargs python3",
        "sed --expression='1e $X' f",
        "sed -ne'1e $X' f",
        "ls | xargs --replace=@ @",
    ],
)
def test_a_program_that_is_only_known_while_the_command_runs_may_be_the_denied_one(command: str) -> None:
    assert denies_touch(command)


@pytest.mark.parametrize(
    "command",
    [
        "find . -exec grep x {} +",
        "xargs -I {} cp {} out",
        "xargs wc -l",
        "xargs",
        "xargs -0",
        "ls | xargs -n 1",
        'sed -e "s/$A/$B/" f',
        'sed "s/$A/b/g" f',
        "sed -n 5p $F",
        'sed s/x/e/ "$F"',
        'sed -e "s/a/b/" *.txt',
        'find . -name "{}"',
        "sed -i 's/one/two/' \"$F\"",
        "find {} ",
    ],
)
def test_a_known_program_with_unknown_words_is_not(command: str) -> None:
    assert not denies_touch(command)
