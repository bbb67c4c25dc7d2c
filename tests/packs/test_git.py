from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from guard import GUARD_S
from loopback import CERTIFICATE, Server
from pattern_attacks import grows
from prowess._internal.archive import ArchiveLimits
from prowess.errors import PackError, PackMismatch, PackUnsafe
from prowess.packs.git import _blobs_of_skills, obtain_commit
from prowess.packs.obtain import obtain
from prowess.packs.source import parse_source
from prowess.packs.values import Obtained

SKILL = b"---\nname: pdf\ndescription: Reads.\n---\nBody.\r\n"


class Repository:
    """A working tree and the bare repository that it pushes to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.bare = folder, folder / "tree", folder / "repo.git"
        self.git("init", "-q", "--bare", "-b", "main", str(self.bare), at=folder)
        self.git("init", "-q", "-b", "main", str(self.tree), at=folder)
        self.git("remote", "add", "origin", str(self.bare))

    def git(self, *arguments: str, at: Path | None = None) -> str:
        own = {"GIT_CONFIG_GLOBAL": os.devnull, "PATH": os.environ["PATH"], "HOME": str(self.folder)}
        own |= {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        command = ["git", "-c", "protocol.file.allow=always", *arguments]
        done = subprocess.run(command, cwd=at or self.tree, env=own, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, files: Mapping[str, bytes], *, push: bool = True) -> str:
        for name, content in files.items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_bytes(content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")
        if push:
            self.git("push", "-q", "origin", "HEAD")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


Get = Callable[..., Obtained]


@pytest.fixture
def get(repository: Repository, machine: Path, tmp_path_factory: pytest.TempPathFactory) -> Get:
    def get(tail: str = "", environ: Mapping[str, str] | None = None, **options: str) -> Obtained:
        source = parse_source(f"./repo.git{tail}", cwd=str(repository.folder), home=str(machine))
        into = tmp_path_factory.mktemp("into") / "new"
        given = {"PATH": os.environ["PATH"], "HOME": str(machine), **(environ or {})}
        obtained = obtain(source, str(into), environ=given, **options)  # pyright: ignore[reportArgumentType]
        assert os.listdir(into) == [os.path.basename(obtained.folder)], "something was left beside the folder"
        return obtained

    return get


def files_of(obtained: Obtained) -> dict[str, bytes]:
    folder = Path(obtained.folder)
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_branches_tags_commits_and_the_default_branch(repository: Repository, get: Get):
    first = repository.commit({"pdf/SKILL.md": SKILL, "pdf/run.sh": b"#!/bin/sh\n"})
    repository.git("tag", "light", first)
    repository.git("tag", "-a", "-m", "v1", "v1", first)
    repository.git("push", "-q", "origin", "--tags")
    (repository.tree / "pdf/run.sh").chmod(0o755)
    second = repository.commit({"pdf/SKILL.md": SKILL + b"2"})
    repository.git("switch", "-q", "-c", "feature/x", first)
    third = repository.commit({"pdf/SKILL.md": SKILL + b"3"})
    expected = {"": second, "@main": second, "@light": first, "@v1": first, "@feature/x": third, f"@{first}": first}
    expected[f"@{third[:10]}"] = third
    for tail, commit in expected.items():
        assert get(tail).commit == commit, tail
    latest = get()
    assert latest.is_ours and os.path.basename(latest.folder) == "repo"
    assert files_of(latest) == {"pdf/SKILL.md": SKILL + b"2", "pdf/run.sh": b"#!/bin/sh\n"}
    assert os.access(Path(latest.folder) / "pdf/run.sh", os.X_OK)
    assert not os.stat(Path(latest.folder) / "pdf/SKILL.md").st_mode & 0o111


def test_a_folder_of_a_repository(repository: Repository, get: Get):
    repository.commit({"a/skills/pdf/SKILL.md": SKILL, "a/skills/pdf/x.txt": b"x", "b/SKILL.md": SKILL})
    obtained = get("#a/skills/pdf")
    assert os.path.basename(obtained.folder) == "pdf"
    assert files_of(obtained) == {"SKILL.md": SKILL, "x.txt": b"x"}
    for wrong in ("#a/nothing", "#a/skills/pdf/x.txt"):
        with pytest.raises(PackError) as caught:
            get(wrong)
        assert caught.value.code == "git-path-unknown"


def test_only_skills_and_files_at_the_top_are_read(repository: Repository, get: Get):
    others = {f"src/{number}.txt": b"%d" % number for number in range(50)}
    repository.commit({"skills/pdf/SKILL.md": SKILL, "skills/pdf/deep/er/x": b"", "README.md": b"r", **others})
    assert sorted(files_of(get())) == ["README.md", "skills/pdf/SKILL.md", "skills/pdf/deep/er/x"]


def test_links_submodules_and_pointers_are_told_and_not_written(repository: Repository, get: Get):
    other = Repository(_made(repository.folder / "other"))
    other.commit({"x/SKILL.md": SKILL})
    repository.git("submodule", "--quiet", "add", str(other.bare), "vendored")
    (repository.tree / "pdf").mkdir()
    os.symlink("/etc/passwd", repository.tree / "pdf/secret")
    os.symlink("pdf", repository.tree / "same")
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    repository.commit({"pdf/SKILL.md": SKILL, "pdf/model.bin": pointer})
    obtained = get()
    assert sorted(files_of(obtained)) == [".gitmodules", "pdf/SKILL.md", "pdf/model.bin"]
    assert obtained.left_out == ("pdf/secret", "same")
    assert [note.partition(". ")[0] for note in obtained.notes] == [
        "Links (2): pdf/secret, same",
        "Submodules (1): vendored",
        "Git LFS pointers (1): pdf/model.bin",
    ]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_no_hook_filter_template_or_attribute_has_an_effect(repository: Repository, machine: Path, get: Get):
    """Each of them would leave a trace, also when the user's own configuration names it."""
    trace = machine / "trace"
    program = machine / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {trace}\ncat\n")
    program.chmod(0o755)
    hooks = _made(machine / "hooks")
    for hook in ("reference-transaction", "post-checkout", "post-index-change", "post-merge"):
        (hooks / hook).write_bytes(program.read_bytes())
        (hooks / hook).chmod(0o755)
    (machine / ".gitconfig").write_text(
        f"[core]\nhooksPath = {hooks}\nfsmonitor = {program}\nautocrlf = true\n"
        f'[init]\ntemplateDir = {machine}\n[filter "x"]\nsmudge = {program}\nprocess = {program}\nrequired = true\n'
        f'[protocol "ext"]\nallow = always\n[protocol]\nallow = always\n'
    )
    repository.commit({".gitattributes": b"* filter=x eol=crlf ident\n", "pdf/SKILL.md": b"---\n$Id$\na\n"})
    for hook in ("post-update", "pre-receive"):
        (repository.bare / "hooks" / hook).write_bytes(program.read_bytes())
        (repository.bare / "hooks" / hook).chmod(0o755)
    assert files_of(get())["pdf/SKILL.md"] == b"---\n$Id$\na\n"
    assert not trace.exists()


def telling_git(machine: Path) -> dict[str, str]:
    """A PATH whose git writes down what it got, and is the real git otherwise."""
    real = shutil.which("git")
    wrapper = _made(machine / "bin") / "git"
    wrapper.write_text(f'#!/bin/sh\nenv >> {machine}/environ\necho "$@" >> {machine}/arguments\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    return {"PATH": f"relative:{machine / 'bin'}:{os.environ['PATH']}", "HOME": str(machine)}


def test_no_variable_of_git_and_no_secret_is_passed_on(repository: Repository, machine: Path, get: Get):
    repository.commit({"pdf/SKILL.md": SKILL})
    given = {"GIT_DIR": "/nowhere", "GIT_SSL_NO_VERIFY": "1", "API_KEY": "hunter2", "SSH_AUTH_SOCK": "/agent"}
    get(environ=telling_git(machine) | given)
    lines = (machine / "environ").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["SSH_AUTH_SOCK"] == "/agent" and seen["PATH"].startswith("/")
    own = {name: value for name, value in seen.items() if name.startswith("GIT_")}
    assert own == {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "GIT_ALLOW_PROTOCOL": "file"}
    assert "API_KEY" not in seen


def test_a_pinned_commit_is_fetched_even_if_the_branch_moved(repository: Repository, machine: Path, get: Get):
    first = repository.commit({"pdf/SKILL.md": SKILL})
    repository.commit({"pdf/SKILL.md": SKILL + b"2"})
    assert files_of(get("@main", commit=first)) == {"pdf/SKILL.md": SKILL}
    # With the oldest protocol a server gives branches and tags only, so everything is fetched.
    (machine / ".gitconfig").write_text("[protocol]\nversion = 0\n")
    assert get("@main", commit=first).commit == first
    with pytest.raises(PackMismatch) as caught:
        get("@main", commit="0" * 40)
    assert caught.value.code == "git-commit-gone"


@pytest.mark.parametrize("ref", ["v1.2", "abcdef1234", "0" * 40])
def test_an_unknown_ref(ref: str, repository: Repository, get: Get):
    repository.commit({"pdf/SKILL.md": SKILL})
    with pytest.raises(PackError, match=f"no such branch, tag or commit: {re.escape(ref)}") as caught:
        get(f"@{ref}")
    assert caught.value.code == "git-ref-unknown"
    assert caught.value.hint and caught.value.hint.endswith(f": git ls-remote {repository.bare}")


def test_without_git_and_without_a_repository(repository: Repository, machine: Path, get: Get, tmp_path: Path):
    with pytest.raises(PackError) as caught:
        get(environ={"PATH": str(machine)})
    assert caught.value.code == "git-missing"
    with pytest.raises(PackError) as caught:
        get(environ={"PATH": ""})
    assert caught.value.code == "git-missing"
    (tmp_path / "empty.git").mkdir()
    for name, code in (("gone.git", "source-missing"), ("empty.git", "git-no-access")):
        source = parse_source(f"./{name}", cwd=str(tmp_path), home=str(machine))
        with pytest.raises(PackError) as caught:
            obtain(source, str(tmp_path / "into"), environ={"PATH": os.environ["PATH"], "HOME": str(machine)})
        assert caught.value.code == code


@pytest.mark.parametrize("source", ["https://127.0.0.1:1/x.git", "ssh://git@127.0.0.1/x.git", "git@127.0.0.1:x.git"])
def test_a_server_that_is_not_there(source: str, tmp_path: Path, machine: Path):
    """The user's own command for ssh is used; a bare machine has no ssh."""
    said = "ssh: connect to host 127.0.0.1 port 22: Connection refused"
    (machine / ".gitconfig").write_text(f'[core]\nsshCommand = "echo {said} >&2; false"\n')
    parsed = parse_source(source, cwd=str(tmp_path), home=str(machine))
    with pytest.raises(PackError) as caught:
        obtain(parsed, str(tmp_path / "into"), environ={"PATH": os.environ["PATH"], "HOME": str(machine)})
    assert caught.value.code == "git-unreachable"


OWN = "fatal: Could not read from remote repository."


@pytest.mark.parametrize(
    ("said", "code", "shown"),
    [
        ("git@example.com: Permission denied (publickey).", "git-no-access", OWN),
        ("Host key verification failed.", "git-no-access", OWN),
        ("Please pay at evil.example: connection refused, not allowed", "git-no-access", OWN),
        ("remote: fatal: not allowed, pay at evil.example", "git-no-access", OWN),
        ("remote: x\u2028fatal: not allowed, pay at evil.example", "git-no-access", OWN),
        ("remote: x\rfatal: not allowed, pay at evil.example", "git-no-access", OWN),
        (
            "ssh: Could not resolve hostname example.com.\r",
            "git-unreachable",
            "ssh: Could not resolve hostname example.com.",
        ),
    ],
)
def test_the_words_of_a_server_are_not_shown_and_choose_no_code(
    said: str, code: str, shown: str, tmp_path: Path, machine: Path
):
    (machine / "said").write_text(f"{said}\n")
    environ = {"PATH": os.environ["PATH"], "HOME": str(machine), "GIT_SSH_COMMAND": f"cat {machine}/said >&2; false"}
    source = parse_source("git@example.com:x.git", cwd=str(tmp_path), home=str(machine))
    with pytest.raises(PackError) as caught:
        obtain(source, str(tmp_path / "into"), environ=environ)
    assert caught.value.code == code
    assert caught.value.message.endswith(f": {shown}") and "evil" not in caught.value.message
    assert caught.value.message.isprintable()


def test_an_error_of_the_protocol_is_of_the_server(tmp_path: Path, machine: Path):
    """The server's error packet has several lines, and git prints all of them."""
    text = "ERR Pay at evil.example.\nfatal: not allowed, and evil\n"
    (machine / "said").write_text(f"{len(text) + 4:04x}{text}")
    environ = {"PATH": os.environ["PATH"], "HOME": str(machine), "GIT_SSH_COMMAND": f"cat {machine}/said; false"}
    source = parse_source("git@example.com:x.git", cwd=str(tmp_path), home=str(machine))
    with pytest.raises(PackError) as caught:
        obtain(source, str(tmp_path / "into"), environ=environ)
    assert caught.value.code == "git-failed"
    assert "evil" not in caught.value.message and "the server refused" in caught.value.message
    assert caught.value.hint and "git ls-remote git@example.com:x.git" in caught.value.hint


def test_ssh_has_no_terminal_and_no_display_to_ask_on(tmp_path: Path, machine: Path):
    """The command for ssh writes down what it could ask on."""
    command = machine / "ssh"
    command.write_text(f"#!/bin/sh\nenv > {machine}/environ\n(: < /dev/tty) 2> /dev/null && touch {machine}/terminal\n")
    command.chmod(0o755)
    given = {"PATH": os.environ["PATH"], "HOME": str(machine), "GIT_SSH_COMMAND": str(command)}
    source = parse_source("git@example.com:x.git", cwd=str(tmp_path), home=str(machine))
    with pytest.raises(PackError):
        obtain(source, str(tmp_path / "into"), environ=given | {"DISPLAY": ":0", "SSH_ASKPASS": str(command)})
    seen = {line.partition("=")[0] for line in (machine / "environ").read_text().splitlines()}
    assert seen.isdisjoint({"DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS"})
    assert not (machine / "terminal").exists()


@pytest.mark.parametrize(("status", "code"), [(401, "git-no-access"), (404, "git-no-access"), (500, "git-unreachable")])
def test_a_server_that_gives_no_access(status: int, code: str, tmp_path: Path, machine: Path):
    """Nobody is asked for a password."""
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(CERTIFICATE)
    (machine / ".gitconfig").write_text(f"[http]\nsslCAInfo = {certificate}\n")
    with Server(lambda it: it.answer(status, www_authenticate='Basic realm="x"'), certificate=certificate) as server:
        source = parse_source(server.url("/x.git"), cwd=str(tmp_path), home=str(machine))
        with pytest.raises(PackError) as caught:
            obtain(source, str(tmp_path / "into"), environ={"PATH": os.environ["PATH"], "HOME": str(machine)})
    assert caught.value.code == code
    assert os.listdir(tmp_path / "into") == []


def test_a_server_that_never_answers(tmp_path: Path, machine: Path):
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(CERTIFICATE)
    (machine / ".gitconfig").write_text(f"[http]\nsslCAInfo = {certificate}\n")
    environ = {"PATH": os.environ["PATH"], "HOME": str(machine)}
    with Server(lambda exchange: exchange.stall(), certificate=certificate) as server:
        source = parse_source(server.url("/x.git"), cwd=str(tmp_path), home=str(machine))
        with pytest.raises(PackError) as caught:
            obtain_commit(source, str(_made(tmp_path / "into")), environ=environ, timeout_s=1)
    assert caught.value.code == "git-timeout"


def test_a_protocol_that_the_users_configuration_brings_in_is_refused(tmp_path: Path, machine: Path):
    (machine / ".gitconfig").write_text(
        f'[url "ext::touch {machine}/trace "]\ninsteadOf = https://example.com/\n[protocol "ext"]\nallow = always\n'
    )
    source = parse_source("https://example.com/x.git", cwd=str(tmp_path), home=str(machine))
    with pytest.raises(PackError) as caught:
        obtain(source, str(tmp_path / "into"), environ={"PATH": os.environ["PATH"], "HOME": str(machine)})
    assert caught.value.code == "git-protocol-refused"
    assert not (machine / "trace").exists()


def test_limits_are_checked_before_anything_is_read(repository: Repository, machine: Path, tmp_path: Path):
    repository.commit({"pdf/SKILL.md": SKILL, "pdf/big": b"x" * 2000, "other.txt": b""})
    source = parse_source("./repo.git", cwd=str(repository.folder), home=str(machine))
    limits = {
        "pack-too-large": (ArchiveLimits(max_file_bytes=1999), ArchiveLimits(max_total_bytes=2000)),
        "pack-too-many-entries": (ArchiveLimits(max_entries=2),),
    }
    for code, tried in limits.items():
        for limit in tried:
            into = tmp_path / "into"
            into.mkdir(exist_ok=True)
            with pytest.raises(PackUnsafe) as caught:
                obtain_commit(
                    source, str(into), environ={"PATH": os.environ["PATH"], "HOME": str(machine)}, limits=limit
                )
            assert caught.value.code == code
            assert not (into / "repo").exists()


def fast_import(repository: Repository, paths: list[str]) -> None:
    """Commits empty files without a working tree, which could not hold such paths."""
    lines = ["commit refs/heads/main", "committer a <a@example.com> 0 +0000", "data 0", ""]
    files = [line for path in paths for line in (f"M 100644 inline {path}", "data 0", "")]
    command = ["git", "-C", repository.bare, "fast-import", "--quiet", "--force"]
    subprocess.run(command, input="\n".join([*lines, *files]) + "\n", text=True, check=True)


@pytest.mark.parametrize("path", ["d/" * 32 + "x", "d/" * 40 + "SKILL.md", ("d" * 200 + "/") * 6 + "x"])
def test_deep_paths_are_refused_in_a_skill_and_do_no_harm_elsewhere(path: str, repository: Repository, get: Get):
    fast_import(repository, ["pdf/SKILL.md", f"other/{path}".removesuffix("SKILL.md") + "x"])
    assert list(files_of(get())) == ["pdf/SKILL.md"]
    fast_import(repository, ["pdf/SKILL.md", f"pdf/{path}"])
    with pytest.raises(PackUnsafe) as caught:
        get()
    assert caught.value.code == "pack-unsafe-path"


def test_the_time_for_a_list_of_files_grows_with_its_size_only():
    def read(listing: str) -> None:
        assert _blobs_of_skills(listing, {}, ArchiveLimits()) == []

    assert not grows(read, ("100644 blob 0 0\t", "d/", "x\0"))


def test_a_git_that_hangs_is_ended_with_its_children(repository: Repository, machine: Path, tmp_path: Path):
    """The fake git starts a child that holds a pipe. The pipe ends only when the child is gone too."""
    fake = _made(machine / "bin") / "git"
    fifo = machine / "fifo"
    os.mkfifo(fifo)
    fake.write_text(f"#!/bin/sh\n(exec 3>{fifo}; exec sleep {GUARD_S}) &\nwait\n")
    fake.chmod(0o755)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    source = parse_source("./repo.git", cwd=str(repository.folder), home=str(machine))
    into = _made(tmp_path / "into")
    with pytest.raises(PackError) as caught:
        obtain_commit(source, str(into), environ={"PATH": f"{machine / 'bin'}:/usr/bin:/bin"}, timeout_s=1)
    assert caught.value.code == "git-timeout"
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_progress_is_told(repository: Repository, machine: Path, tmp_path: Path):
    repository.commit({"pdf/SKILL.md": SKILL, "pdf/a": b"1", "pdf/b": b"2"})
    source = parse_source("./repo.git", cwd=str(repository.folder), home=str(machine))
    told: list[tuple[str, int, int | None]] = []
    environ = {"PATH": os.environ["PATH"], "HOME": str(machine)}
    obtain(source, str(tmp_path / "into"), environ=environ, progress=lambda *each: told.append(each))
    assert told[-1] == ("Reading files", 3, 3)
    assert any(what == "Fetching ./repo.git" for what, _, _ in told)
