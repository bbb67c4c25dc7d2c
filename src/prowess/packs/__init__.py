"""Installs, verifies, updates and packs skills. A pack is one or more skills in a folder, an archive, a repository, a
site or a Python package.

- api: the public functions.
- values: a source, an obtained pack, a skill in a pack, an entry of the lock.
- lock: the files skills.toml (wanted) and skills.lock (installed). disk: changes them and folders together.
- settings: where skills are installed, and what configuration and policy say.
- plan: plans an installation, update or restore, and carries it out. remove: uninstall and rollback.
- source: what a SOURCE on the command line means.
- obtain: a source as a folder on disk. git: the same for a commit of a repository.
- contents: the skills in a pack, read whole, checked, and described for a person.
- bundle: writes skills into one reproducible zip, and reads the manifest of such a pack.
- compare: compares skills on disk with the lock and with the manifest of their pack.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in prowess/__init__: an import of typing would cost more than this module
if TYPE_CHECKING:
    from prowess.errors import FetchError, PackError
    from prowess.packs.api import install, pack, rollback, uninstall, update, verify, verify_file

__all__ = ["FetchError", "PackError", "install", "pack", "rollback", "uninstall", "update", "verify", "verify_file"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'prowess.packs' has no attribute {name!r}")
    from prowess.packs import api

    return getattr(api, name)
