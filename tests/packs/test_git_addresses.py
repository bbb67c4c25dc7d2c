"""Addresses of repositories: each one that git contacts was checked by us, and git follows no redirect."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_server import SIGNED_IN, GitServer
from loopback import CERTIFICATE
from pack_samples import refused
from packs.test_git import SKILL, Repository, files_of, telling_git
from prowess.packs.obtain import obtain
from prowess.packs.source import parse_source
from prowess.packs.values import Obtained

INFO = "/repo.git/info/refs"
NEVER = "169.254.7.7"  # link-local


@pytest.fixture
def server(tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    """Has repo.git. The person's git follows redirects, as far as it is asked."""
    Repository(tmp_path).commit({"pdf/SKILL.md": SKILL})
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(CERTIFICATE)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    configure(machine, f"[http]\nsslCAInfo = {certificate}\nfollowRedirects = true\n")
    with GitServer(tmp_path, certificate) as server:
        yield server


@pytest.fixture
def other(server: GitServer) -> Iterator[GitServer]:
    """Another server, with the same repositories."""
    with GitServer(server.folder, server.certificate) as other:
        yield other


def configure(machine: Path, text: str) -> None:
    with open(machine / ".gitconfig", "a", encoding="utf-8") as file:
        file.write(text)


def get(text: str, machine: Path, environ: dict[str, str] | None = None) -> Obtained:
    source = parse_source(text, cwd=str(machine), home=str(machine))
    into = machine / "into"
    shutil.rmtree(into, ignore_errors=True)
    return obtain(source, str(into), environ=environ or {"PATH": os.environ["PATH"], "HOME": str(machine)})


def test_git_contacts_the_address_that_was_checked(server: GitServer, machine: Path) -> None:
    environ = telling_git(machine)
    assert files_of(get(server.url("/repo.git", "localhost"), machine, environ)) == {"pdf/SKILL.md": SKILL}
    pinned = [word for word in (machine / "arguments").read_text().split() if word.startswith("http.curloptResolve=")]
    for word in pinned:
        name, port, addresses = word.partition("=")[2].split(":", 2)
        assert (name, int(port)) == ("localhost", server.port) and "127.0.0.1" in addresses.split(",")
    assert pinned


@pytest.mark.parametrize("count", [1, 5])
def test_a_redirect_is_followed_by_us_and_not_by_git(
    count: int, server: GitServer, other: GitServer, machine: Path
) -> None:
    for number in range(1, count):
        server.redirects[f"/r{number}.git"] = f"/r{number + 1}.git"
    server.redirects[f"/r{count}.git"] = other.url("/repo.git")
    assert files_of(get(server.url("/r1.git"), machine)) == {"pdf/SKILL.md": SKILL}
    assert server.paths("git") == []
    assert server.paths("prowess") == [f"/r{number}.git/info/refs" for number in range(1, count + 1)]
    assert other.paths("git")[0] == INFO


def test_a_sixth_redirect_is_refused(server: GitServer, machine: Path) -> None:
    for number in range(1, 7):
        server.redirects[f"/r{number}.git"] = f"/r{number + 1}.git"
    assert refused(lambda: get(server.url("/r1.git"), machine)).code == "fetch-redirects"
    assert server.paths("git") == [] and len(server.requests) == 6


@pytest.mark.parametrize(
    ("to", "code"),
    [
        (f"https://{NEVER}/repo.git", "fetch-refused-address"),
        ("http://127.0.0.1:1/repo.git", "fetch-insecure"),
        ("ssh://127.0.0.1/repo.git", "fetch-refused-scheme"),
        ("file:///repo.git", "fetch-refused-scheme"),
    ],
)
def test_a_redirect_to_a_refused_address(to: str, code: str, server: GitServer, machine: Path) -> None:
    server.redirects["/repo.git"] = to
    assert refused(lambda: get(server.url("/repo.git"), machine)).code == code
    assert server.paths("git") == []


def test_a_redirected_address_is_not_replaced_again(server: GitServer, other: GitServer, machine: Path) -> None:
    """By insteadOf: what we checked is what git contacts."""
    other.redirects["/old.git"] = server.url("/a=b/repo.git")
    (server.folder / "a=b").mkdir()
    shutil.copytree(server.folder / "repo.git", server.folder / "a=b/repo.git")
    configure(machine, f'[url "{other.url("/")}"]\ninsteadOf = {server.url("/")}\n')
    assert files_of(get(other.url("/old.git"), machine)) == {"pdf/SKILL.md": SKILL}
    assert other.paths("git") == []


def test_a_private_address_that_the_person_wrote_is_allowed(server: GitServer, machine: Path) -> None:
    """In the configuration of git, as on the command line. A name and a password of it are for git alone."""
    server.is_private = True
    address = server.url("/").replace("https://", "https://ada:secret@")
    configure(machine, f'[url "{address}"]\ninsteadOf = https://github.com/acme/\n')
    assert files_of(get("acme/repo", machine)) == {"pdf/SKILL.md": SKILL}
    assert [credentials for agent, _, credentials in server.requests if agent == "prowess"] == [None]
    assert SIGNED_IN in [credentials for agent, _, credentials in server.requests if agent == "git"]


@pytest.mark.parametrize(
    "address", [f"https://{NEVER}/", f"https://ada:secret@{NEVER}/", f"ssh://git@{NEVER}/", f"git@{NEVER}:"]
)
def test_a_link_local_address_is_refused_whoever_wrote_it(address: str, machine: Path) -> None:
    trace = machine / "trace"
    configure(machine, f'[core]\nsshCommand = "touch {trace}; false"\n')
    configure(machine, f'[url "{address}"]\ninsteadOf = https://github.com/acme/\n')
    written = [] if "secret" in address else [f"{address}repo.git"]
    for text in ["acme/repo", *written]:
        error = refused(lambda text=text: get(text, machine))
        assert error.code == "fetch-refused-address" and NEVER in error.message and "secret" not in error.message
    assert not trace.exists()


@pytest.mark.parametrize("address", [f"https://{NEVER}/a://b.git", f"ssh://git@{NEVER}/a://b.git"])
def test_an_address_with_another_one_in_its_path_is_judged_by_its_own_host(address: str, machine: Path) -> None:
    trace = machine / "trace"
    configure(machine, f'[core]\nsshCommand = "touch {trace}; false"\n')
    assert refused(lambda: get(address, machine)).code == "fetch-refused-address"
    assert not trace.exists()


def test_a_path_with_the_sign_of_a_scheme_follows_no_redirect(
    server: GitServer, other: GitServer, machine: Path
) -> None:
    server.redirects["/a"] = other.url("/repo.git")
    refused(lambda: get(server.url("/a://b.git"), machine))
    assert server.paths("git") == []


@pytest.mark.parametrize("path", ["/repo.git", "/repo.git/git-upload-pack"])
def test_a_redirect_after_sign_in_is_an_error_that_names_the_new_address(
    path: str, server: GitServer, other: GitServer, machine: Path
) -> None:
    server.is_private = True
    server.redirects[path] = other.url(path)
    configure(machine, "[credential]\nhelper = \"!printf 'username=ada\\npassword=secret\\n' #\"\n")
    error = refused(lambda: get(server.url("/repo.git"), machine))
    assert error.code == "git-redirected"
    assert other.url("/repo.git") in error.message and "secret" not in error.message
    assert other.requests == []


def test_a_page_to_sign_in_is_no_repository(server: GitServer, other: GitServer, machine: Path) -> None:
    """A server that redirects strangers there, and knows the person by a header that git sends."""
    configure(machine, f'[http "{server.url("/")}"]\nextraHeader = "Authorization: {SIGNED_IN}"\n')
    server.strangers_to = other.url("/sign-in")
    assert files_of(get(server.url("/repo.git"), machine)) == {"pdf/SKILL.md": SKILL}
    assert other.paths("git") == []


def test_a_certificate_that_only_git_knows(server: GitServer, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """We cannot look, so git asks, and follows nothing."""
    monkeypatch.delenv("SSL_CERT_FILE")
    assert files_of(get(server.url("/repo.git"), machine)) == {"pdf/SKILL.md": SKILL}
    server.redirects["/repo.git"] = server.url("/new.git")
    error = refused(lambda: get(server.url("/repo.git"), machine))
    assert error.code == "git-redirected" and server.url("/new.git") in error.message
    assert server.paths("prowess") == []


def test_a_server_sends_git_to_no_other_one(server: GitServer, machine: Path) -> None:
    """For a part of the content, which the person's git would get there."""
    elsewhere = f"{'0' * 40} {'0' * 40} https://127.0.0.1:1/part.pack"
    repository = str(server.folder / "repo.git")
    subprocess.run(["git", "-C", repository, "config", "uploadpack.blobPackfileUri", elsewhere], check=True)
    configure(machine, "[fetch]\nuriProtocols = https\n")
    assert files_of(get(server.url("/repo.git"), machine)) == {"pdf/SKILL.md": SKILL}
    assert any(b"want " in body for body in server.bodies)
    assert not any(b"packfile-uris" in body for body in server.bodies)
