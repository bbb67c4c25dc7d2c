"""What a skill requires is looked for where its scripts will run."""

from __future__ import annotations

import sys

import pytest

from prowess.skills.head import Controls
from prowess.skills.requirements import missing_requirements

ALL = Controls(
    requires=(
        ("bins", ("ffmpeg", "sh")),
        ("env", ("API_KEY",)),
        ("python", (">=3.12",)),
        ("platforms", ("linux",)),
        ("skills", ("pdf",)),
    )
)


def test_without_more_it_is_this_machine(tmp_path):
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    controls = Controls(requires=(("bins", ("ffmpeg", "sh")), ("env", ("API_KEY",)), ("python", ("3.11",))))
    assert missing_requirements(controls, {"PATH": str(tmp_path), "API_KEY": "x"}) == ["sh (program)"]
    here = Controls(requires=(("python", (f"=={sys.version_info[0]}.{sys.version_info[1]}",)),))
    assert missing_requirements(here, {}) == []


def test_before_a_run_it_is_the_place_of_the_run():
    def missing(**there) -> list[str]:
        return missing_requirements(ALL, {"PATH": "", "API_KEY": "ours"}, lambda name: True, **there)

    nothing = missing(has_program=lambda n: False, has_variable=lambda n: False, python=(), platform="darwin")
    assert nothing == [
        "ffmpeg (program)",
        "sh (program)",
        "API_KEY (environment)",
        ">=3.12 (Python)",
        "linux (platform)",
    ]
    assert (
        missing(has_program=lambda n: True, has_variable=lambda n: True, python=(3, 12, 1), platform="linux") == []
    ), "nothing of this machine is asked"


@pytest.mark.parametrize(
    ("wanted", "version", "fits"),
    [
        ("3.12", (3, 12, 0), True),
        ("3.12", (3, 11, 9), False),
        (">=3.11,<3.14", (3, 14, 0), False),
        (">=3.11, <3.14", (3, 13, 9), True),
        ("==3.11.*", (3, 11, 2), True),
        ("==3.11.*", (3, 12, 2), False),
        ("3.12", (), False),
        ("pandas", (), True),
    ],
)
def test_python_is_compared_with_the_one_that_will_run(wanted, version, fits):
    controls = Controls(requires=(("python", (wanted,)),))
    assert missing_requirements(controls, {}, python=version) == ([] if fits else [f"{wanted} (Python)"])
