"""A session's own copy of a skill, for executors that cannot bind: root/skills/<name>, which is what was published.

`out work inputs .venv` in it are links to where they lead. Which tree it is of is written down beside root/, where no
script can write; a copy that somebody changed is not the one that was written down, and is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os

from prowess._files import read_regular, write_whole
from prowess.errors import WorkspaceError
from prowess.workspace.beneath import walk
from prowess.workspace.layout import LEADS
from prowess.workspace.place import Place, making
from prowess.workspace.staging import Tree, copy_tree

_UP = "../.."  # from skills/<name> to the workspace


class Copies:
    """The copies of one session, made on demand. Whoever else works in the session may make them at the same time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: dict[str, tuple[str, str]] = {}  # name -> (digest, what the copy looked like when it was made)

    def path(self, name: str) -> str:
        return os.path.join(self._place.root, "skills", name)

    def stage(self, tree: Tree, name: str) -> None:
        """From now on the copy is of that tree. When it is already, this costs a look at it."""
        if self._holds(tree, name):
            return
        try:
            with making(self._place.path):
                self._known[name] = self._written_down(name)
                if not self._holds(tree, name):
                    self._copy(tree, name)
        except OSError as error:
            raise WorkspaceError(
                f"The skill '{name}' could not be copied to its workspace: {(error.strerror or str(error)).lower()}.",
                op="stage",
                code="stage-failed",
                hint="Is there room on the disk, and may it be written to?",
            ) from error

    def venv(self, tree: Tree, name: str) -> str:
        return self._place.make_venv(name, tree.digest)

    def _holds(self, tree: Tree, name: str) -> bool:
        digest, looks = self._known.get(name, ("", ""))
        return digest == tree.digest and looks != "" and looks == self._look(name)

    def _copy(self, tree: Tree, name: str) -> None:
        links = {folder: f"{_UP}/{leads_to}" for folder, leads_to in LEADS.items()}
        links[".venv"] = f"{_UP}/../venvs/{os.path.basename(self.venv(tree, name))}"
        copy_tree(tree, self.path(name), links)
        self._known[name] = (tree.digest, self._look(name))
        write_whole(self._marker(name), json.dumps(self._known[name]).encode(), mode=0o600)

    def _look(self, name: str) -> str:
        """What changes when somebody touches the copy: a script cannot set the time of a change. Where it runs as
        another user it cannot touch anything, and one look is enough."""
        try:
            top = _signature(os.stat(self.path(name), follow_symlinks=False))
            if self._place.uid is not None:
                return top
            seen = hashlib.sha256(top.encode())
            for rel, status, _, _ in walk(self.path(name)):
                seen.update(f"{rel}\0{_signature(status)}\n".encode("utf-8", "surrogateescape"))
            return seen.hexdigest()
        except (OSError, WorkspaceError):  # not there, or nothing that we made
            return ""

    def _written_down(self, name: str) -> tuple[str, str]:
        try:
            digest, looks = json.loads(read_regular(self._marker(name), 1 << 16))
            return str(digest), str(looks)
        except (OSError, ValueError, TypeError):
            return "", ""

    def _marker(self, name: str) -> str:
        return os.path.join(self._place.path, "staged", name)


def _signature(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_mode}:{status.st_uid}:{status.st_size}:{status.st_ctime_ns}"
