"""Finds Python distributions and folders of their packages by their files. Nothing is imported."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prowess._internal.files import read_chunks
from prowess._internal.paths import inside
from prowess._internal.tar import Member
from prowess.errors import PathEscape

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_MODULE = re.compile(r"[A-Za-z_]\w{0,99}(?:\.[A-Za-z_]\w{0,99}){0,9}")


def find_distribution(name: str, environ: Mapping[str, str]) -> tuple[Distribution, list[str]] | None:
    """Returns a distribution, and the folders where its packages may be. The environment that the user has activated
    counts, too. The working folder does not: `python -m` has it in sys.path, and a clone could have a package there."""
    import importlib.metadata

    venv = environ.get("VIRTUAL_ENV") or sys.prefix
    site_packages = os.path.join(glob.escape(venv), "lib", "python*", "site-packages")
    here = os.path.realpath("")
    paths = [path for path in (*sys.path, *glob.glob(site_packages)) if os.path.realpath(path) != here]
    for found in importlib.metadata.distributions(name=name, path=paths):
        own = str(found.locate_file(""))
        return found, [own, *paths]
    return None


def find_package_folder(value: str, bases: Sequence[str]) -> str | None:
    """Returns the folder that `package.folder` or `package:folder` names. No link may lead out of the package."""
    module, _, below = value.partition(":")
    if not _MODULE.fullmatch(module):
        return None
    first, *rest = module.split(".")
    for base in bases:
        package = os.path.join(base, first)
        with contextlib.suppress(PathEscape):
            folder = inside(package, os.path.join("", *rest, below))
            if not os.path.islink(package) and os.path.isdir(folder):
                return folder
    return None


def folder_members(name: str, top: str, skipped: Collection[str]) -> Iterator[Member]:
    """Yields the files of a folder as members below `name`. A link becomes a member, too, which a writer refuses."""
    for parent, folders, files in os.walk(top):
        folders[:] = sorted(set(folders) - set(skipped))
        for each in (*folders, *sorted(files)):
            path = os.path.join(parent, each)
            shown = os.path.join(name, os.path.relpath(path, top))
            if os.path.islink(path):
                yield Member(shown, "link", False, iter(()))
            elif each not in folders:
                mode = os.lstat(path).st_mode
                yield Member(shown, "file", bool(mode & 0o111), read_chunks(path))
