"""Options that are known to start no program and to load no code, for programs that have options that do.

`sort --compress-program ./x`, `tar -I ./x`, `git grep -O./x` and `make SHELL=./x` start a file. So after the words of a
rule that allows, such a program may have only options of its row here and plain operands: an option that is missing
here, an abbreviation and a new option never fit. For every program, an option or assignment that names a file of the
skill or the workspace does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from prowess.policy.commands.words import STARTERS, program_name, show, word_key

# A row is a list of: letters without a value (`bdf`), with a value (`k:`), with a value in the same word (`F=`); words
# (`--reverse`, `-name`), with a value (`--key:`), with a value in the same word (`--to=`); `<form>` of the operands;
# `!stdin` where commands are read from stdin. A letter that is wrongly without a value is safe, the opposite is not.
_ROWS = {
    "sort": """bcdfghimnrsuzCMRV k: t: S: o: T: --output: --ignore-leading-blanks --dictionary-order --ignore-case
        --numeric-sort --reverse --general-numeric-sort --human-numeric-sort --month-sort --random-sort
        --version-sort --check --merge --stable --unique --zero-terminated --debug --key: --field-separator:
        --buffer-size: --sort: --parallel: --batch-size:""",
    "split": """dexu a: b: C: l: n: --bytes: --lines: --number: --suffix-length: --numeric-suffixes
        --elide-empty-files --numeric-suffixes= --hex-suffixes --additional-suffix= --line-bytes: --verbose""",
    "install": "bcCdDpTv g: m: o: t: --directory --mode: --owner: --group: --preserve-timestamps --verbose",
    "tar": """cxtruvzjJaZpPkmOhAdSU f: C: --create --extract --get --list --append --update --verbose --gzip --bzip2
        --xz --zstd --auto-compress --file: --directory: --strip-components= --exclude= --keep-old-files
        --no-same-owner --no-same-permissions --to-stdout --totals --sort= --mtime= --owner= --group=
        --numeric-owner --dereference""",
    "cpio": "iodtuvmapBc --extract --create --list --verbose --make-directories --quiet",
    "zip": "rqjyuvXD0123456789 --recurse-paths --quiet --junk-paths --symlinks",
    "sed": """nErsuzi l= --in-place <sed> --quiet --silent --regexp-extended --separate --unbuffered --null-data
        --posix --sandbox --line-length=""",
    "awk": "F= v= <awk> --posix --traditional --sandbox --field-separator= --assign= --csv",
    "rename": "nvf <rename> --no-act --dry-run --verbose",
    "find": """LPH0123456789kMGcwb <words> -name -iname -path -ipath -wholename -regex -iregex -regextype -type
        -xtype -size -empty -maxdepth -mindepth -depth -mtime -atime -ctime -mmin -amin -cmin -newer -newermt -perm
        -user -group -nouser -nogroup -links -inum -samefile -prune -print -print0 -printf -ls -quit -a -o -and -or
        -not -true -false -readable -writable -executable -mount -xdev -follow -lname -daystart""",
    "xargs": "0rtx <none> !stdin n= P= L= s= d= I= --null --no-run-if-empty --verbose --max-args= --max-procs=",
    "rg": """iwvnlcoFxsSuHINpaPUq0123456789 e: g: t: T: m: A: B: C: <words> --files --hidden --no-ignore --glob:
        --type: --count --files-with-matches --ignore-case --line-number --no-heading --heading --json --stats
        --max-count: --context: --after-context: --before-context: --fixed-strings --word-regexp --color: --sort:
        --max-depth:""",
    "ag": "iwvlcoQsSuaHLG0123456789 m: A: B: C: <words> --hidden --count --files-with-matches --literal --nocolor",
    "ack": """iwvlcoQhHLfs m: A: B: C: <words> --count --ignore-case --files-with-matches --literal --nocolor
        --nopager""",
    "fd": "HIsipaLglu0 d: e: t: E: <words> --hidden --no-ignore --extension: --type: --max-depth: --exclude: --glob",
    "bat": "pnA l: r: --plain --number --show-all --line-range: --language: --style: --color: --theme:",
    "gcc": """cgSEvw0123 O: o: D: U: I: L: l: -Wall -Wextra -Werror -Wpedantic -pedantic -ansi -pipe -shared -static
        -pie -fPIC -fPIE -fpic -pthread -std= -m64 -m32 -march= -mtune= -fsanitize= -fsyntax-only -dumpversion
        -dumpmachine -Wno-unused-parameter -Wno-unused -Wshadow -Wconversion -fno-omit-frame-pointer -flto -MMD -MP""",
    "ld": "o: L: l: -shared -static",
    "as": "o: g --warn --fatal-warnings",
    "ar": "rcstqxdpvuDUo",
    "nm": """aACDgnprSuv --demangle --dynamic --defined-only --undefined-only --extern-only --numeric-sort
        --print-size""",
    "objdump": "dDShtTrRxsfapCl j: M: --disassemble --demangle --source --syms --reloc --headers",
    "rsync": """avrztulpogDHAXhPicqndmbSWxRkKLEJO <words> --archive --verbose --recursive --delete --dry-run
        --exclude: --include: --progress --stats --compress --checksum --update --itemize-changes --human-readable
        --partial --times --links --perms --ignore-existing --size-only --max-size: --bwlimit: --info= --no-owner
        --no-group""",
    "ssh": "46aCNnqTtvxV p: l:",
    "scp": "rpqvCB346 P: l:",
    "sftp": "pqrvCa46 P: l: !stdin",
    "ftp": "invpdg46 !stdin",
    "make": """knsBiqwtrRSp j: l: --keep-going --dry-run --silent --always-make --jobs: --quiet --version --help
        --trace""",
    "man": "afkKw s: --all --apropos --whatis --where --path --sections:",
    "less": "NSRrFXiIMmnsEeQqGgwfac --LINE-NUMBERS --chop-long-lines --RAW-CONTROL-CHARS --no-init",
    "vim": "RMmnbdopO !stdin",
    "emacs": "qQ -nw -no-init-file",
    "nano": "lvxE --view --linenumbers",
    "ed": "s !stdin",
    "psql": """lAtxqXWw h: p: U: !stdin --list --tuples-only --no-align --expanded --quiet --no-psqlrc --host:
        --port: --username: --csv --html --no-password""",
    "mysql": "tBNsEHXqv h: P: u: D: !stdin --host: --port: --user: --table --batch --skip-column-names",
    "sqlite": """<plain> !stdin -header -noheader -csv -json -line -column -list -html -markdown -table -box
        -readonly -bail -separator""",
    "curl": """sSLfvIik46gGjlN#O012 X: H: d: A: u: o: m: e: b: c: r: w: <words> --silent --show-error --location
        --fail --verbose --head --include --insecure --compressed --request: --header: --data: --data-raw:
        --data-urlencode: --json: --user-agent: --user: --output: --max-time: --connect-timeout: --retry:
        --remote-name --http1.1 --http2 --ipv4 --ipv6 --get --progress-bar --write-out: --url: --no-progress-meter
        --create-dirs""",
    "wget": """qcNSv46rkpmbx O: P: T: t: U: l: w: <words> -nv -nc -nd -nH -np --quiet --continue --timestamping
        --spider --no-check-certificate --timeout: --tries: --output-document: --directory-prefix: --user-agent:
        --header: --no-verbose --recursive --mirror --show-progress --max-redirect:""",
    "pandoc": """sN o: f= t= r= w= --standalone --toc --number-sections --embed-resources --self-contained --from=
        --to= --read= --write= --output: --wrap= --columns= --metadata= --variable= --citeproc --mathjax
        --markdown-headings= --shift-heading-level-by= --list-input-formats --list-output-formats --highlight-style=""",
    "pdftotext": """q f: l: r: x: y: W: H: -layout -raw -nopgbrk -bbox -bbox-layout -tsv -htmlmeta -enc: -eol:""",
    "gs": """q r: !stdin -dBATCH -dNOPAUSE -dSAFER -dQUIET -sDEVICE= -sPAPERSIZE= -dPDFSETTINGS=
        -dCompatibilityLevel= -dFirstPage= -dLastPage= -dTextAlphaBits= -dGraphicsAlphaBits=""",
    "convert": """<image> -resize -quality -crop -strip -rotate -thumbnail -density -background -flatten -gravity
        -extent -auto-orient -colorspace -depth -trim -border -fill -format -verbose -ping -geometry -append -alpha
        -flip -flop -negate -normalize -sharpen -blur -units -type -colors -monochrome -scale -sample +append
        +repage""",
    "pdflatex": """<plain> -interaction= -halt-on-error -file-line-error -synctex= -jobname= -draftmode
        -no-shell-escape""",
    "openssl": """<openssl> !stdin -in -out -noout -text -subject -issuer -dates -fingerprint -serial -sha256 -sha1
        -sha512 -md5 -hex -base64 -inform -outform -connect -servername -showcerts -a -A -checkend -pubkey -pubin
        -modulus -verify""",
    "exiftool": "jasGnT -csv -json -r",
    "patch": "NRsflbtuEZ p: F: i: --dry-run --forward --reverse --silent --strip: --input: --verbose",
    "sdiff": "bBdiEsW w: --ignore-case --suppress-common-lines --width:",
    "diff3": "aeEAxXi3mT --text --merge --show-all",
    "tcpdump": "nvXAeqSlt# i: c: s: r: w:",
    "nmap": "snvAOFPTUVS46 p: --open --reason --top-ports:",
    "nc": "zvnul46 w: p:",
    "apt-get": "yqsV --yes --quiet --dry-run --simulate --no-install-recommends --only-upgrade",
    "pip": "qvU <pip> !paths --upgrade --quiet --verbose --user --no-cache-dir --no-deps --outdated --dry-run",
    "ssh-keygen": "lyqvH t: b: f: N: C: F: R:",
    "ssh-add": "lLdDqv t:",
    "gpg": "aqvekKn r: u: o: --armor --list-keys --list-secret-keys --fingerprint --verify --import --export --batch",
    "hg": """qvypgGn r: m: l: u: d: b: <words> --rev: --limit: --message: --user: --date: --branch: --template: --stat
        --patch --git --graph --quiet --verbose --noninteractive""",
    "svn": """qvNR r: c: m: l: <words> --quiet --verbose --revision: --change: --message: --limit: --depth: --xml
        --summarize --stop-on-copy --show-updates --non-interactive""",
    "git": """adflnpqrsvw0123456789 <words> --all --oneline --stat --numstat --shortstat --name-only --name-status
        --short --porcelain --porcelain= --branch --branches --remotes --graph --decorate --color --no-color
        --cached --staged --patch --no-patch --format: --pretty: --abbrev-commit --since: --until: --after:
        --before: --author: --grep: --max-count: --follow --no-merges --merges --reverse --date: --quiet --verbose
        --dry-run --tags --prune --force --force-with-lease --no-edit --amend --message: --list --delete
        --show-current --abbrev-ref --show-toplevel --verify --is-inside-work-tree --ignore-case --line-number
        --count --files-with-matches --word-regexp --ignored --untracked-files --untracked-files= --soft --hard
        --mixed --ff-only --no-ff --set-upstream --set-upstream-to: --depth: --no-tags --contains --sort:
        --first-parent --others --exclude-standard --modified --diff-filter= --word-diff --ignore-all-space
        --unified: --no-ext-diff --no-textconv --no-renames --raw --check --exit-code --source: --worktree --track
        --detach --abort --continue --keep --include-untracked --allow-empty --signoff --orphan: --merged
        --no-merged --always --long --exact-match --show-stash --heads --refs --symbolic-full-name""",
    "git add": "Au",
    "git apply": "R p:",
    "git archive": "o: --prefix=",
    "git blame": "Cewt L:",
    "git branch": "rmDMtv",
    "git cat-file": "pte",
    "git checkout": "bBt",
    "git cherry-pick": "x",
    "git clean": "dfnx",
    "git clone": "!paths",
    "git commit": "m: F:",
    "git count-objects": "H",
    "git describe": "",
    "git diff": "MCURbi U: S: G:",
    "git fetch": "kt !paths",
    "git for-each-ref": "",
    "git fsck": "",
    "git grep": "iwvnlLcEFGPhHoIz e: A: B: C: m:",
    "git init": "b:",
    "git log": "MCcibgz L: S: G: U:",
    "git ls-files": "cdmosuiz",
    "git ls-remote": "ht !paths",
    "git ls-tree": "drtlz",
    "git merge": "m:",
    "git merge-base": "",
    "git mv": "k",
    "git pull": "!paths",
    "git push": "u !paths",
    "git rebase": "",
    "git reflog": "",
    "git remote": "<none>",
    "git reset": "",
    "git restore": "SW",
    "git rev-list": "",
    "git rev-parse": "",
    "git revert": "",
    "git rm": "",
    "git shortlog": "nsec",
    "git show": "MCcbiz U:",
    "git show-ref": "",
    "git stash": "ku m:",
    "git status": "sbuzo",
    "git switch": "cCt",
    "git tag": "m: F:",
    "git version": "",
}
_SAME = {
    "awk": "gawk mawk nawk original-awk",
    "bat": "batcat",
    "convert": "magick identify mogrify composite montage",
    "fd": "fdfind",
    "find": "gfind",
    "gcc": "g++ cc c++ c89 c99 cpp clang clang++ gfortran tcc",
    "gs": "ghostscript gsc",
    "install": "ginstall",
    "ld": "ld.bfd ld.gold ld.lld lld",
    "less": "more most pager pg zless zmore bzless xzless",
    "make": "gmake bmake remake",
    "mysql": "mariadb mysqladmin mysqldump mysqlcheck mysqlshow mysqlimport mariadb-dump mariadb-admin",
    "nano": "pico rnano",
    "nc": "ncat netcat nc.openbsd nc.traditional",
    "pdflatex": "latex xelatex lualatex tex pdftex xetex luatex",
    "rename": "prename file-rename perl-rename",
    "sed": "gsed",
    "sort": "gsort",
    "split": "gsplit",
    "ssh": "slogin",
    "apt-get": "apt apt-cache aptitude",
    "gpg": "gpg2 gpgv",
    "tar": "bsdtar gtar",
    "vim": "vi nvim view ex rvim rview vimdiff gvim editor sensible-editor vim.basic vim.tiny vim.nox",
    "xargs": "gxargs",
}
_MAIN = {other: name for name, others in _SAME.items() for other in others.split()}
_FORMS = {
    "": re.compile(r"https?://\S*|(?![-+@|!%])[^=]+"),
    "words": re.compile(r"(?!-).*"),
    "plain": re.compile(r"(?!-)[\w./-]+"),
    "none": re.compile(r"(?!)"),
    "image": re.compile(r"(?![-+@|!%])[^:@=|]+"),
    "pip": re.compile(r"(?:git\+)?https?://\S*|(?!-)[\w.-]+(?:\[[\w.,-]+\])?(?:(?:[=<>!~]=|[<>])[\w.*]+,?)*"),
    "openssl": re.compile(r"(?!-|engine|provider)[^=@|]+"),
    # code, so only what is harmless for certain; it is the first operand
    "sed": re.compile(
        r"\A(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)?(?:,(?:\d+|\$|/(?:[^/\\\n]|\\.)*/))?"
        r"(?:[pdq=]|s([/|,#:])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gIip\d]*)"
    ),
    "awk": re.compile(r"\A(?!-)(?!.*(?:system|getline))[^|>@`]*"),
    "rename": re.compile(r"s/[\w .-]*/[\w .-]*/[gi]*"),
}
_BAD_VALUES = tuple("-|!@")
_CODE = ("sed", "awk", "rename")
_OLD_STYLE = ("tar", "ar")  # their first word is options, also without a `-`
_GIVES_CODE = re.compile(r"-\w*[efE]|--(?:expression|file|source|exec)(?:=.*)?")
_ALWAYS = frozenset(("-", "--", "--help", "--version"))
_OF_GIT = frozenset(("--no-pager", "--no-optional-locks", "--version", "--help"))  # before its subcommand
_ARCHIVES = tuple(".zip .whl .tar .gz .tgz .bz2 .tbz .xz .txz .lz .tlz .lzma".split())  # that pip takes for files
_WITH_SUBCOMMANDS = ("git", "pip", "apt-get", "openssl")  # the word behind is no program
_OF_TOOLCHAIN = ("gcc", "ld", "as", "ar", "nm", "objdump")  # also as x86_64-linux-gnu-gcc
_GIT_VALUES = frozenset(("-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"))
_GUARDED = frozenset(each.partition(" ")[0] for each in _ROWS) - {"make", "ssh"}
_XARGS_VALUE = re.compile(r"-[0rtxpo]*[IdEaLnPs]")  # takes the next word
_SSH_VALUE = re.compile(r"-\w*[BbcDEeFIiJLlmOoPpQRSWw]")
_INTERPRETERS = frozenset("python pypy bash sh dash zsh node bun deno perl ruby php lua rscript pwsh".split())
_SCRIPT = re.compile(r"\.(?:py|sh|bash|[mc]?[jt]s|rb|pl|php|lua|r|ps1)$", re.IGNORECASE)
_REMOTE = re.compile(r"(?:https?|ssh|git)://|git@")
_SYSTEM = re.compile(r"/dev/null|/(?:usr|etc|bin|sbin|lib|lib64)(?:/(?!\.\.?(?:/|$))[\w.+-]+)*")
OF_WORKSPACE: frozenset[str] = frozenset(
    (".", "..", "work", "out", "inputs", ".venv", "_shipped")
)  # in the folder of a skill


class _Row(NamedTuple):
    letters: frozenset[str]
    valued: frozenset[str]  # letters
    attached: frozenset[str]  # letters whose value is in the same word
    words: frozenset[str]
    valued_words: frozenset[str]
    form: str  # of operands
    reads_stdin: bool
    no_paths: bool


class CallPlace(NamedTuple):
    """Facts of a call around its words. `names` are those of the files in its folder; None: a run can write there."""

    names: Collection[str] | None = OF_WORKSPACE
    has_stdin: bool = False


def is_guarded(program: str) -> bool:
    """True when the options here keep an allowed program from starting what a call names."""
    return _key(program) in _GUARDED


def why_unfit(words: Sequence[str], rule: Sequence[str], place: CallPlace) -> str:
    """Returns why a rule that allows does not fit a command that begins with its words; "" when it fits."""
    at = _find_judged(words, rule)
    key = _key(words[at])
    free: list[int] = []
    for number in range(1, len(words)):
        if number < len(rule) and rule[number] == words[number]:
            continue
        free.append(number)
        is_flag = number > at and key in _ROWS and _is_flag(_row(key), words[number])
        if not is_flag and _names_file(words[number], place.names):
            return f"'{show(words[number])}' names a file of the skill or the workspace, and the rule does not."
    if key not in _ROWS:
        return ""
    if place.has_stdin and (_row(key).reads_stdin or _key(words[0]) == "xargs"):
        return f"'{show(words[0])}' takes commands or words from its input, and the call brings one."
    row = _row(key)
    if key == "git":
        at = _find_subcommand(words, at)
        for number in free:
            if number < at and words[number] not in _OF_GIT:
                return _unknown(words[number])
        key = " ".join(["git", *words[at : at + 1]])
        if any(number >= at for number in free) and key not in _ROWS:
            return f"'{show(key)}' is not known to start nothing, and the rule does not have all of its words."
        row = _merged(row, _row(key)) if key in _ROWS else row
    left = [number for number in free if number > at]
    if key == "ssh":
        left = [number for number in left if number < _find_remote(words)]
    if not left:
        return ""
    return _why_not_safe(words, left, at, row, place, key in _OLD_STYLE)


def _why_not_safe(
    words: Sequence[str], left: Sequence[int], at: int, row: _Row, place: CallPlace, is_old_style: bool
) -> str:
    """Returns why one of the words that the call chose may start something."""
    has_remote = False  # git clone ADDRESS FOLDER
    wants_code = row.form in _CODE and not _has_code(row, words[at + 1 : left[0]])
    for number in left:
        word = words[number]
        before = words[number - 1]
        if number - 1 > at and number - 1 not in left and _may_take(row, before):
            return f"'{show(before)}' may start the word behind it, and the rule does not have that."
        if is_old_style and number == at + 1 and not word.startswith("-"):
            is_fine = set(word) <= row.letters | row.valued
        elif word in row.words or (word.startswith("-") and word not in _ALWAYS):
            is_fine = _is_safe(row, word)
        elif wants_code:
            is_fine = word in _ALWAYS or _FORMS[row.form].fullmatch(word) is not None
            wants_code = word in _ALWAYS
        else:
            form = "" if row.form in _CODE else row.form
            is_fine = word in _ALWAYS or _FORMS[form].fullmatch(word) is not None
            is_fine = is_fine and (has_remote or not row.no_paths or not _leads_to_file(word, place.names))
            has_remote = has_remote or (row.form != "pip" and _REMOTE.match(word) is not None)
        if not is_fine:
            return _unknown(word)
    return ""


def _unknown(word: str) -> str:
    return f"'{show(word)}' is not known to start nothing, and the rule does not have it."


def _find_judged(words: Sequence[str], rule: Sequence[str]) -> int:
    """Returns the index of the program whose options are judged: behind a program that starts others, the last one of a
    row that the rule names."""
    first = _key(words[0])
    if first != "xargs" and (first in _ROWS or program_name(words[0]) not in STARTERS):
        return 0
    found = 0
    started = 0  # the program that xargs starts
    for number in range(1, len(rule)):
        word = words[number]
        if rule[number] != word:
            continue
        if first in _INTERPRETERS and _SCRIPT.search(word):  # what follows are its arguments
            break
        if _key(word) in _ROWS:
            found = number
            if _key(word) in _WITH_SUBCOMMANDS:
                break
        is_value = _XARGS_VALUE.fullmatch(words[number - 1]) is not None
        if not started and not is_value and not word.startswith("-"):
            started = number
    if first == "xargs":
        return found or started
    return found


def _find_subcommand(words: Sequence[str], at: int) -> int:
    """Returns the index of git's subcommand; the number of words when there is none."""
    at += 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GIT_VALUES else 1
    return min(at, len(words))


def _find_remote(words: Sequence[str]) -> int:
    """Returns the index of the first word that ssh runs on the other machine."""
    has_host = False
    for number in range(1, len(words)):
        if words[number].startswith("-") or _SSH_VALUE.fullmatch(words[number - 1]):
            continue
        if has_host:
            return number
        has_host = True
    return len(words)


def _has_code(row: _Row, words: Sequence[str]) -> bool:
    """True when the code of `sed`, `awk` or `rename` is among these words of the rule."""
    before = ""
    for word in words:
        if _GIVES_CODE.fullmatch(word) and "=" in word:
            return True
        takes_it = not _GIVES_CODE.fullmatch(before) and _may_take(row, before)
        if not word.startswith("-") and not takes_it:
            return True
        before = word
    return False


def _may_take(row: _Row, option: str) -> bool:
    """True when an option of the rule may take the next word, for a purpose that is not known."""
    return option.startswith("-") and "=" not in option and not _is_safe(row, option)


def _is_flag(row: _Row, word: str) -> bool:
    """True for an option of the row that has no value in its word: it names no file, whatever files there are."""
    return word in row.words or (word[:1] == "-" and row.letters.issuperset(word[1:]))


def _is_safe(row: _Row, option: str) -> bool:
    if option in _ALWAYS or option in row.words:
        return True
    name, equals, value = option.partition("=")
    if equals and name in row.valued_words:
        return value[:1] not in _BAD_VALUES
    if option.startswith("--"):
        return False
    for at, letter in enumerate(option[1:], 2):
        if letter in row.valued or letter in row.attached:
            value = option[at:]
            return value[:1] not in _BAD_VALUES if value else letter in row.valued
        if letter not in row.letters:
            return False
    return True


def _names_file(word: str, names: Collection[str] | None) -> bool:
    """True when an option or assignment may name a file of the skill or the workspace."""
    is_long = word.startswith("--")
    if not word.startswith("-") and "=" not in word:
        return False
    parts = [re.sub(r"^-\w(?=/)", "", part) for part in re.split(r"[^\w.+~/-]", word)]
    if any("/" in part and not _SYSTEM.fullmatch(part) for part in parts):
        return True
    if is_long and "=" not in word:
        return False
    if names is None:
        return "=" in word or len(word) > 2
    return any(word_key(text).endswith(tuple(names)) for text in (word, *parts))


def _leads_to_file(word: str, names: Collection[str] | None) -> bool:
    first, slash, _ = word.partition("[")[0].partition("/")  # pip takes a.zip[x] for the file
    if names is None:
        return bool(slash) or not first.strip(".") or word_key(first).endswith(_ARCHIVES)
    return first in ("", "file:") or word_key(first) in names


def _key(program: str) -> str:
    """Returns the name of the row of a program; its own name when it has none."""
    name = program_name(program).rstrip("0123456789.-")
    tool = _MAIN.get(name.rpartition("-")[2], name.rpartition("-")[2])
    return tool if tool in _OF_TOOLCHAIN else _MAIN.get(name, name)


@lru_cache(maxsize=256)
def _row(key: str) -> _Row:
    tokens = _ROWS[key].split()
    long = [token for token in tokens if token.startswith(("-", "+"))]
    short = [token for token in tokens if token not in long and token[0] not in "<!"]
    return _Row(
        letters=frozenset("".join(token for token in short if token[-1] not in ":=")),
        valued=frozenset(token[0] for token in short if token.endswith(":")),
        attached=frozenset(token[0] for token in short if token.endswith("=")),
        words=frozenset(token.rstrip(":") for token in long if not token.endswith("=")),
        valued_words=frozenset(token[:-1] for token in long if token[-1] in ":="),
        form="".join(token[1:-1] for token in tokens if token.startswith("<")),
        reads_stdin="!stdin" in tokens,
        no_paths="!paths" in tokens,
    )


def _merged(common: _Row, own: _Row) -> _Row:
    return _Row(
        letters=(common.letters | own.letters) - own.valued,
        valued=own.valued,
        attached=own.attached,
        words=common.words | own.words,
        valued_words=common.valued_words | own.valued_words,
        form=own.form or common.form,
        reads_stdin=False,
        no_paths=own.no_paths,
    )
