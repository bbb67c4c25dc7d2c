"""A program of the system is a file that only root can have put there, and can change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prowess.workspace.system_programs import check_system_file, find_system_file, list_system_files

PATH = "/usr/local/bin:/usr/bin:/bin"


def make_program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_program_of_the_system_is_found_by_its_name_and_by_its_path() -> None:
    path, reason = find_system_file("sh", PATH)
    assert os.path.isabs(path) and os.path.samefile(path, "/bin/sh") and not reason
    assert find_system_file(path, "") == (path, "")
    assert list_system_files(PATH)["sh"] == (path, "")


@pytest.mark.parametrize("name", ["no-such-program", "", "sh/", "/no/such", "../sh", "s\0h"])
def test_what_is_not_there_is_none(name: str) -> None:
    assert find_system_file(name, PATH)[0] == ""


def test_a_file_that_comes_first_and_is_somebodys_is_what_would_run(tmp_path: Path) -> None:
    own = make_program(tmp_path / "bin/sh")
    path, reason = find_system_file("sh", f"{tmp_path}/bin:{PATH}")
    assert path == "" and own in reason and "others than root can change" in reason
    assert find_system_file("sh", f"bin::.:{PATH}")[0], "a relative folder of a PATH is no folder of the system"


def test_a_link_is_only_as_good_as_its_folder_and_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    assert check_system_file(f"{tmp_path}/sh")[0] == ""
    (tmp_path / "loop").symlink_to("loop")
    assert find_system_file("loop", str(tmp_path))[0] == ""
    (tmp_path / "folder").symlink_to("/usr/bin")
    path, _ = find_system_file("env", f"{tmp_path}/folder")
    assert path == os.path.realpath("/usr/bin") + "/env", "the folder by its own name, which nobody can lead elsewhere"
