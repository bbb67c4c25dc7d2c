"""Names that are never written outside a workspace, because other programs obey such files.

`git status` runs commands from `.git/config`, a shell reads `.bashrc`, an editor `.vscode`, an agent `.agent/skills`.

Names are compared like in the most tolerant file system: case, invisible characters, dots and spaces at the end, and
NTFS streams do not count. NTFS short names (`GIT~1`) are recognised.
"""

from __future__ import annotations

import re
import unicodedata

PROTECTED = frozenset(
    """
    .git .hg .svn .jj .gitconfig .gitmodules .gitattributes
    .agent .agents .claude .codex .cursor .gemini .windsurf .prowess .mcp.json .cursorrules .windsurfrules .clinerules
    .opencode .continue .roo .aider.conf.yml
    .github .gitlab .gitlab-ci.yml .gitlab-ci.yaml .circleci .husky .pre-commit-config.yaml
    .vscode .idea .devcontainer .vimrc .nvimrc .exrc .nvim.lua .dir-locals.el .emacs .lldbinit .gdbinit .pdbrc .zed
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshrc .zprofile .zshenv .zlogin .zlogout .profile
    .login .cshrc .tcshrc .kshrc .inputrc .xinitrc .xsession .xprofile .xsessionrc .pam_environment .tmux.conf .screenrc
    .ripgreprc .curlrc .wgetrc .netrc .ssh .gnupg .rhosts .forward .psqlrc .sqliterc
    .config .local .envrc .env .direnv .venv .tool-versions .mise .mise.toml .mise.local.toml
    .npmrc .yarnrc .yarnrc.yml .yarn .pnpmfile.cjs .cargo .mvn .bundle .pypirc .pydistutils.cfg .rprofile .renviron
    .irbrc .pryrc .eslintrc.js .pnp.cjs .bazelrc .gradle
    """.casefold().split()
)
_AS_A_FILE = "head"  # a file HEAD makes a folder a git repository; a folder of this name is harmless
_ENV = ".env."  # with any ending: `.env.production`
_SEPARATOR = re.compile(r"[/\\]")
_SHORT = re.compile(r"(?P<stem>[^~]{1,6})~\d+(?:\.[^.]{0,3})?")
_HASHED = re.compile(r"[0-9a-f]{4}")  # in the middle of a short name, when many names have the same start
_STEMS = frozenset(name[1:].split(".")[0][:6] for name in PROTECTED if name.startswith("."))
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def find_protected(path: str) -> str | None:
    """Returns the first protected part of the path, as it is written there, or None."""
    parts = _SEPARATOR.split(path)
    for part in parts:
        if _is_protected(part):
            return part
    last = parts[-1]
    if _folded(last) == _AS_A_FILE:
        return last
    return None


def hidden_parts(path: str) -> list[str]:
    """Returns the parts of a relative path that start with a dot."""
    return [part for part in path.split("/") if _UNSEEN.sub("", part).startswith(".")]


def _is_protected(part: str) -> bool:
    name = _folded(part)
    if name in PROTECTED or name.startswith(_ENV):
        return True
    short = _SHORT.fullmatch(name)
    if short is None:
        return False
    stem = short["stem"]
    if stem in _STEMS:
        return True
    if not _HASHED.fullmatch(stem[2:]):
        return False
    return any(each.startswith(stem[:2]) for each in _STEMS)


def _folded(part: str) -> str:
    seen = _UNSEEN.sub("", unicodedata.normalize("NFKC", part))
    name = unicodedata.normalize("NFKC", seen.casefold()).split(":")[0]
    return _UNSEEN.sub("", name).rstrip(" .")
