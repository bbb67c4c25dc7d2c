"""prowess artifacts: what people and programs see of it, what is refused, and where the setting says that they are."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from buckets import S3, open_s3
from command_lines import run_here
from prowess._internal.state_folder import GITIGNORE, ensure_ignored
from prowess.cli.commands.schema import FOLDER
from prowess.cli.main import main
from prowess.core.values import SessionKey
from prowess.runtime.runtime import open_runtime
from prowess.stores.artifacts import FolderArtifacts
from state_places import state_of


class Cli:
    def __init__(self, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capfdbinary
        self.err = ""

    def raw(self, *args: str, code: int = 0) -> bytes:
        ended = main(["artifacts", *args])
        out, err = self._capture.readouterr()
        self.err = err.decode()
        assert ended == code, f"exit code {ended}: {out!r} {self.err}"
        return out

    def __call__(self, *args: str, code: int = 0) -> str:
        return self.raw(*args, code=code).decode()

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        document = json.loads(self(*args, "--json", code=code))
        name = "error" if "error" in document else document["schema"].removeprefix("prowess.").removesuffix("/1")
        jsonschema.validate(document, json.loads(Path(FOLDER, f"{name}.json").read_text(encoding="utf-8")))
        return document

    def refused(self, *args: str) -> str:
        """The code of the error, which people and programs are told in their own ways."""
        ended = main(["artifacts", *args])
        out, err = self._capture.readouterr()
        error = self.json(*args, code=ended)["error"]
        assert ended in (1, 2) and out == b"" and error["hint"] and f"[{error['code']}]" in err.decode()
        return error["code"]


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, project: Path) -> Cli:
    monkeypatch.chdir(project)
    return Cli(capfdbinary)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".agent").mkdir()
    return tmp_path


# --- what is saved can be seen, read and removed


def test_a_file_goes_in_and_comes_out_again(cli: Cli, project: Path) -> None:
    data = bytes(range(256)) * 3000
    (project / "chart.png").write_bytes(data)
    assert cli("put", "chart.png") == "artifact://chart.png@0\n"
    assert cli("put", "chart.png", "--name", "charts/Ü 1.png", "--session", "s-1") == "artifact://charts/Ü 1.png@0\n"
    assert cli.raw("get", "chart.png") == data
    assert cli.raw("get", "artifact://charts/Ü 1.png@0", "-o", "-") == data
    assert cli("get", "chart.png@0", "-o", "copy.png") == "" and "copy.png" in cli.err
    assert (project / "copy.png").read_bytes() == data
    assert stat.S_IMODE((project / "copy.png").stat().st_mode) == 0o644
    assert sorted(path.name for path in project.iterdir()) == [".agent", "chart.png", "copy.png"]


def test_the_list_has_every_session_and_the_users_own_once(cli: Cli, project: Path) -> None:
    (project / "a.txt").write_text("x")
    assert cli("list") == cli() == "" and "0 artifacts" in cli.err
    for session in ("s-1", "My Session"):
        cli("put", "a.txt", "--session", session)
        cli("put", "a.txt", "--session", session, "--name", "user:b")
    cli("put", "a.txt", "--session", "s-1")
    cli("put", "a.txt", "--session", "s-1")
    cli("rm", "a.txt@1", "--session", "s-1")
    lines = [line.split() for line in cli().splitlines()]
    assert lines[0] == ["NAME", "VERSIONS", "SIZE", "TYPE", "SAVED", "SESSION"]
    assert [(line[0], line[1]) for line in lines[1:]] == [("user:b", "0–1"), ("a.txt", "0"), ("a.txt", "0,")]
    document = cli.json("list")
    assert [(row["session"], row["ref"], row["versions"]) for row in document["artifacts"]] == [
        (None, "artifact://user:b@1", [0, 1]),
        ("My Session", "artifact://a.txt@0", [0]),
        ("s-1", "artifact://a.txt@2", [0, 2]),
    ]
    assert document["store"] == str(state_of(project) / "artifacts") and cli.json() == document
    only = cli.json("list", "--session", "s-1")["artifacts"]
    assert [row["name"] for row in only] == ["user:b", "a.txt"]
    assert cli.json("list", "--user", "somebody")["artifacts"] == []


def test_text_in_a_document_and_what_is_no_text_in_a_file(cli: Cli, project: Path) -> None:
    (project / "a.txt").write_text("é\n", encoding="utf-8")
    (project / "a.bin").write_bytes(b"\xff\xfe")
    saved = cli.json("put", "a.txt", "--mime", "text/x-strange")
    assert (saved["ref"], saved["mime_type"], saved["session"]) == ("artifact://a.txt@0", "text/x-strange", "default")
    cli("put", "a.bin", "--name", "user:a.bin")
    got = cli.json("get", "a.txt")
    assert (got["text"], got["path"], got["version"], got["session"]) == ("é\n", None, 0, "default")
    assert cli.json("get", "user:a.bin", code=2)["error"]["code"] == "needs-output"
    got = cli.json("get", "user:a.bin", "-o", "copy")
    assert (got["text"], got["path"], got["session"]) == (None, str(project / "copy"), None)


def test_stdin_needs_a_name(cli: Cli, project: Path) -> None:
    command = [sys.executable, "-m", "prowess", "artifacts", "put", "-"]
    saved = subprocess.run([*command, "--name", "user:in.txt"], input=b"from a pipe", capture_output=True, check=True)
    assert saved.stdout == b"artifact://user:in.txt@0\n"
    assert cli.raw("get", "user:in.txt") == b"from a pipe"
    nameless = subprocess.run(command, input=b"x", capture_output=True)
    assert nameless.returncode == 2 and b"--name" in nameless.stderr
    closed = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m prowess artifacts put - --name x <&-"], capture_output=True
    )
    assert closed.returncode == 2 and b"[no-file]" in closed.stderr and b"Traceback" not in closed.stderr


def test_rm_says_what_it_removed_and_removes_all_or_nothing(cli: Cli, project: Path) -> None:
    (project / "a.txt").write_text("x")
    for name in ("a.txt", "a.txt", "b.txt", "user:c"):
        cli("put", "a.txt", "--name", name)
    assert cli.refused("rm", "b.txt@0", "no-such-thing@0") == "artifact-not-found"
    assert cli.refused("rm", "b.txt@0", "a.txt@7") == "artifact-not-found"
    assert cli.refused("rm", "b.txt") == cli.refused("rm", "b.txt@0", "--all-versions") == "needs-version"
    assert len(cli.json()["artifacts"]) == 3
    removed = cli("rm", "a.txt", "user:c", "a.txt", "--all-versions").splitlines()
    assert [line.split()[1] for line in removed] == ["artifact://a.txt@0", "artifact://a.txt@1", "artifact://user:c@0"]
    assert cli.json("rm", "b.txt@0") == {
        "schema": "prowess.artifacts-removed/1",
        "removed": [{"session": "default", "ref": "artifact://b.txt@0", "name": "b.txt", "version": 0}],
    }
    assert cli.json()["artifacts"] == [] and cli.refused("rm", "b.txt@0") == "artifact-not-found"
    assert cli("put", "a.txt") == "artifact://a.txt@2\n"


# --- which one is meant


def test_a_name_is_found_in_whichever_session_has_it(cli: Cli, project: Path) -> None:
    (project / "a.txt").write_text("1")
    cli("put", "a.txt", "--session", "s-1")
    assert cli("get", "a.txt") == "1"
    (project / "a.txt").write_text("2")
    cli("put", "a.txt", "--session", "s-2")
    assert cli.refused("get", "a.txt") == cli.refused("rm", "a.txt@0") == "artifact-ambiguous"
    assert "--session s-1 | s-2" in (cli("get", "a.txt", code=2), cli.err)[1]
    assert cli("get", "a.txt", "--session", "s-2") == "2"


def test_what_is_not_there_is_said_with_what_comes_near(cli: Cli, project: Path) -> None:
    (project / "a").write_text("")
    cli("put", "a", "--name", "charts/sales.png", "--session", "s-1")
    error = cli.json("get", "chart/sales.png", code=1)["error"]
    assert error["code"] == "artifact-not-found" and "charts/sales.png" in error["hint"]
    error = cli.json("get", "charts/sales.png@3", code=1)["error"]
    assert error["code"] == "artifact-not-found" and "There is 0." in error["hint"]
    assert cli.refused("get", "charts/sales.png", "--session", "s-2") == "artifact-not-found"


@pytest.mark.parametrize("ref", ["../a", "/etc/passwd", "a\x1b[31m", "workspace://a", "artifact://", "a/../b", ""])
def test_a_hostile_reference_is_refused(cli: Cli, ref: str) -> None:
    for args in (("get", ref), ("rm", ref + "@0")):
        assert cli.refused(*args) in ("artifact-name-invalid", "artifact-ref-invalid")
        assert "\x1b" not in cli.err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("put", "no-such-file"), "no-file"),
        (("put", "folder"), "no-file"),
        (("put", "fifo"), "no-file"),
        (("put", "a.txt", "--name", "../x"), "artifact-name-invalid"),
        (("put", "a.txt", "--session", "/etc"), "session-key-invalid"),
        (("get", "a.txt", "-o", "a.txt"), "file-exists"),
        (("get", "a.txt", "-o", "link"), "file-exists"),
        (("get", "a.txt", "-o", "folder", "--force"), "file-exists"),
        (("get", "a.txt", "-o", "fifo", "--force"), "file-exists"),
        (("get", "a.txt", "-o", "/dev/null", "--force"), "file-exists"),
        (("get", "a.txt", "-o", "no/such/folder"), "no-folder"),
        (("get", "a.txt", "-o", ".agent/a.txt", "--force"), "protected-name"),
        (("get", "a.txt", "--force"), "usage"),
        (("get", "a.txt", "-o", "-", "--force"), "usage"),
        (("put",), "usage"),
        (("frobnicate",), "usage"),
        (("rm",), "usage"),
    ],
)
def test_mistakes_are_refused_and_change_nothing(cli: Cli, project: Path, args: tuple[str, ...], code: str) -> None:
    (project / "a.txt").write_text("x")
    (project / "folder").mkdir()
    (project / "link").symlink_to("nowhere")
    os.mkfifo(project / "fifo")
    cli("put", "a.txt")
    before = sorted(path.name for path in project.iterdir())
    assert cli.refused(*args) == code
    assert sorted(path.name for path in project.iterdir()) == before
    assert len(cli.json()["artifacts"]) == 1 and stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_file_is_replaced_only_with_force_and_never_by_half(cli: Cli, project: Path) -> None:
    (project / "a.txt").write_text("old")
    cli("put", "a.txt")
    (project / "a.txt").write_text("newer than the artifact")
    cli("get", "a.txt", "-o", "a.txt", "--force")
    assert (project / "a.txt").read_text() == "old"
    (data,) = state_of(project).rglob("data")
    data.write_text("bad")
    assert cli.refused("get", "a.txt", "-o", "copy") == "artifact-corrupt"
    assert sorted(path.name for path in project.iterdir()) == [".agent", "a.txt"]


# --- on a terminal


def on_terminal(*args: str) -> tuple[int, bytes]:
    """What `prowess artifacts` writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "prowess", "artifacts", *args], stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # that is how the end looks on Linux
        pass
    os.close(ours)
    return process.wait(), shown


def test_a_terminal_is_shown_text_and_obeys_nothing(cli: Cli, project: Path) -> None:
    (project / "a.txt").write_bytes(b"one\ntwo \x1b]0;title\x07 \x1b[31m\n" + b"x" * 600_000 + b"\xff\n")
    (project / "a.bin").write_bytes(b"\x00\x1b[31m")
    cli("put", "a.txt", "--mime", "text/\x1b[31m")
    cli("put", "a.bin")
    code, shown = on_terminal("get", "a.txt")
    assert code == 0 and shown.startswith(b"one\r\ntwo ") and b"\x1b" not in shown and b"\\u{1b}" in shown
    assert shown.count(b"x") > 600_000 and b"\\xff" in shown
    code, shown = on_terminal("get", "a.bin")
    assert code == 2 and b"[needs-output]" in shown and b"\x00" not in shown
    code, shown = on_terminal("list")
    assert code == 0 and b"\\u{1b}[31m" in shown and b"\x1b[31m" not in shown


# --- where artifacts are


def store_of(project: Path, environ: dict[str, str] | None = None) -> Any:
    with open_runtime(cwd=str(project), environ=dict(os.environ) | (environ or {})) as runtime:
        return runtime.open_artifacts()


def configure(project: Path, artifacts: str) -> None:
    (project / ".agent" / "config.toml").write_text(f"artifacts = {json.dumps(artifacts)}\n", encoding="utf-8")


def test_without_a_setting_they_are_beside_the_store(project: Path, machine: Path, tmp_path: Path) -> None:
    assert store_of(project).path == str(state_of(project) / "artifacts")
    nowhere = tmp_path / "plain"
    (project / ".agent").rename(tmp_path / "gone")
    nowhere.mkdir()
    assert store_of(nowhere).path == str(machine / ".prowess" / "artifacts")


def test_neither_looking_nor_saving_writes_into_the_project(cli: Cli, project: Path) -> None:
    cli("list")
    assert not state_of(project).exists()
    (project / "a.txt").write_text("x")
    cli("put", "a.txt")
    assert list((project / ".agent").iterdir()) == [] and (state_of(project) / "artifacts").is_dir()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("*.log\n", "*.log\n"),
        ("# mine\n/runs/\n", "# mine\n/runs/\n"),
        (GITIGNORE.replace("/runs/\n", ""), GITIGNORE.replace("/runs/\n", "") + "/runs/\n"),
        (GITIGNORE, GITIGNORE),
    ],
)
def test_what_git_ignores_is_added_to_our_own_file_only(project: Path, before: str, after: str) -> None:
    file = project / ".agent" / ".gitignore"
    file.write_text(before)
    ensure_ignored(str(project / ".agent"))
    assert file.read_text() == after


def test_a_link_for_what_git_ignores_is_left_alone(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(GITIGNORE.replace("/runs/\n", ""))
    (project / ".agent" / ".gitignore").symlink_to(other)
    ensure_ignored(str(project / ".agent"))
    assert "/runs/" not in other.read_text() and (project / ".agent" / ".gitignore").is_symlink()


@pytest.mark.parametrize("linked", [".agent/artifacts", ".agent"])
def test_a_project_cannot_lead_artifacts_elsewhere_by_a_link(
    cli: Cli, project: Path, tmp_path_factory: pytest.TempPathFactory, linked: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    if linked == ".agent":
        (project / ".agent").rmdir()
    (project / linked).symlink_to(outside)
    (project / "a.txt").write_text("x")
    cli("put", "a.txt")
    assert list(outside.iterdir()) == [] and cli("get", "a.txt") == "x"


def test_a_trusted_configuration_says_where(cli: Cli, project: Path, machine: Path, tmp_path: Path) -> None:
    places = {
        "kept": project / "kept",
        "./x/../kept": project / "kept",
        "~/kept": machine / "kept",
        str(tmp_path / "abs"): tmp_path / "abs",
        "file:kept": project / "kept",
        f"file:{tmp_path}/abs": tmp_path / "abs",
        f"file://{tmp_path}/a%20b": tmp_path / "a b",
        f"file://localhost{tmp_path}/abs": tmp_path / "abs",
        "./s3:x": project / "s3:x",
    }
    for text, folder in places.items():
        configure(project, text)
        assert store_of(project, {"PROWESS_TRUST": "1"}).path == str(folder), text
    configure(project, "memory:")
    assert type(store_of(project, {"PROWESS_TRUST": "1"})).__name__ == "MemoryArtifacts"


def test_in_the_users_own_file_a_relative_folder_is_in_the_home(project: Path, machine: Path) -> None:
    (machine / ".prowess").mkdir()
    (machine / ".prowess" / "config.toml").write_text('artifacts = "kept"\n')
    assert store_of(project).path == str(machine / "kept")


@pytest.mark.parametrize(
    "text",
    [
        "ftp://user:very-secret@host/x",
        "redis:x",
        "s3:bucket",
        "S3://bucket",
        "",
        "file:",
        "file://host/x",
        "foo://x",
        "nonsense:",
        "x://y",
        "my.store://x",
        f"{'long' * 9}://x",
    ],
)
def test_an_unknown_place_is_refused(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    configure(project, text)
    monkeypatch.setenv("PROWESS_TRUST", "1")
    error = cli.json("list", code=2)["error"]
    assert error["code"] == "artifacts-unknown" and "very-secret" not in json.dumps(error)


@pytest.mark.parametrize("text", ["foo://very-secret", "nonsense:", "my.store:very-secret", "postgres/db", "x://y"])
def test_an_unknown_store_is_refused(project: Path, text: str) -> None:
    (project / ".agent" / "config.toml").write_text(f'store = "{text}"\n')
    before = sorted(project.rglob("*"))
    for words in (["sessions", "list"], ["run", "hello"], ["exec", "python-math", "--", "true"]):
        ended, out, _ = run_here(["--json", *words], cwd=project, environ={"PROWESS_TRUST": "1"})
        error = json.loads(out)["error"]
        assert ended in (2, 125) and error["code"] == "store-unknown" and "very-secret" not in json.dumps(error)
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("artifacts", "None", "none"),
        ("artifacts", "NONE", "none"),
        ("artifacts", " none", "none"),
        ("artifacts", "off", "none"),
        ("artifacts", "", "none"),
        ("artifacts", "memory", "memory:"),
        ("artifacts", "Memory:", "memory:"),
        ("store", "none", "memory:"),
        ("store", "None", "memory:"),
        ("store", "", "memory:"),
        ("store", "memory", "memory:"),
        ("store", "MEMORY:", "memory:"),
    ],
)
def test_a_near_miss_of_a_setting_is_told_the_value_to_write(
    project: Path, setting: str, text: str, value: str
) -> None:
    (project / ".agent" / "config.toml").write_text(f'{setting} = "{text}"\n')
    before = sorted(project.iterdir())
    words = ["artifacts", "list"] if setting == "artifacts" else ["sessions", "list"]
    for call in (words, ["run", "hello"]):
        ended, out, _ = run_here(["--json", *call], cwd=project, environ={"PROWESS_TRUST": "1"})
        error = json.loads(out)["error"]
        assert ended == 2 and error["code"] == f"{setting}-unknown" and f'Write {setting} = "{value}"' in error["hint"]
    found = json.loads(run_here(["--json", "doctor"], cwd=project, environ={"PROWESS_TRUST": "1"}).out)["findings"]
    assert [row["code"] for row in found if row["severity"] == "error"] == [f"{setting}-unknown"]
    assert sorted(project.iterdir()) == before


def test_a_path_may_be_called_none(project: Path) -> None:
    (project / ".agent" / "config.toml").write_text('store = "./none"\nartifacts = "./None"\n')
    (project / "a.txt").write_text("x")
    (project / "a.yaml").write_text("- text: Hello.\n")
    for words in (["artifacts", "put", "a.txt"], ["run", "hello", "--model", "scripted:a.yaml"]):
        assert run_here(words, cwd=project, environ={"PROWESS_TRUST": "1"}).code == 0
    assert (project / "none").is_file() and (project / "None").is_dir()


def test_none_means_that_nothing_is_kept(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(project, "none")
    (project / "a.txt").write_text("x")
    monkeypatch.setenv("PROWESS_TRUST", "1")
    assert store_of(project, {"PROWESS_TRUST": "1"}) is None
    for words in (["list"], ["put", "a.txt"], ["get", "a.txt"], ["rm", "a.txt@0"]):
        assert cli.json(*words, code=2)["error"]["code"] == "no-artifacts"
    exec_ = ["exec", "python-math", "--session", "s", "--yes", "skill_run", "--json", "--save"]
    result = json.loads(run_here([*exec_, "--shell", "--", "echo x > out/a.txt"], cwd=project).out)
    assert result["artifact_files"] == [] and [file["name"] for file in result["output_files"]] == ["out/a.txt"]
    assert "there is no artifact store" in " ".join(result["warnings"])
    refused = run_here([*exec_, "--input", "artifact://out/a.txt", "--", "true"], cwd=project)
    assert refused.code == 125 and json.loads(refused.out)["error"]["code"] == "no-artifacts"
    assert run_here(["sessions", "delete", "s", "--files", "--yes"], cwd=project).code == 0
    assert not (project / "none").exists() and not (state_of(project) / "artifacts").exists()


def test_a_folder_that_nobody_trusts_cannot_say_where(cli: Cli, project: Path, tmp_path: Path) -> None:
    configure(project, str(tmp_path / "elsewhere"))
    (project / "a.txt").write_text("x")
    assert cli("put", "a.txt") == "artifact://a.txt@0\n" and "[config-ignored-untrusted]" in cli.err
    assert not (tmp_path / "elsewhere").exists() and (state_of(project) / "artifacts").is_dir()
    document = cli.json("list")
    assert [finding["code"] for finding in document["findings"]] == ["config-ignored-untrusted"]
    assert document["store"] == str(state_of(project) / "artifacts")


# --- in a bucket


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with open_s3(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


def test_the_same_in_a_bucket(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, s3: S3) -> None:
    bucket = s3.make_bucket()
    configure(project, f"s3://{bucket}/team")
    monkeypatch.setenv("PROWESS_TRUST", "1")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    (project / "a.txt").write_text("x" * 10)
    assert cli("put", "a.txt", "--session", "My Session") == "artifact://a.txt@0\n"
    assert cli("put", "a.txt", "--name", "user:b") == "artifact://user:b@0\n"
    assert cli("get", "a.txt") == "x" * 10
    document = cli.json("list")
    assert document["store"] == f"s3://{bucket}/team" and not (state_of(project) / "artifacts").exists()
    assert [(row["session"], row["name"]) for row in document["artifacts"]] == [
        (None, "user:b"),
        ("My Session", "a.txt"),
    ]
    assert cli.refused("get", "b.txt") == "artifact-not-found"
    cli("rm", "a.txt", "--all-versions")
    assert [row["name"] for row in cli.json("list")["artifacts"]] == ["user:b"]
    configure(project, "s3://no-such-bucket")
    assert cli.refused("list") == cli.refused("put", "a.txt") == "bucket-missing"


def test_artifacts_of_the_library_are_those_of_the_command_line(cli: Cli, project: Path) -> None:
    async def save() -> None:
        await FolderArtifacts(state_of(project) / "artifacts").save(SessionKey(session="s-9"), "a.txt", b"from a run")

    asyncio.run(save())
    assert cli("get", "a.txt") == "from a run"
