"""Names of files that other programs obey.

Some are never written outside a workspace: `git status` runs commands from `.git/config`, a shell reads `.bashrc`, an
editor `.vscode`, an agent `.agent/skills`. Others are usual results as well, and act only where they lie: `Makefile`,
`conftest.py`, `AGENTS.md`. They are not written into a folder that is in use, unless a person names them.

Names are compared like in the most tolerant file system: case, invisible characters, dots and spaces at the end, and
NTFS streams do not count. NTFS short names (`GIT~1`) are recognised.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

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
    .aws .azure .boto .docker .git-credentials .hgrc .kube .m2 .my.cnf .password-store .pgpass .s3cfg .terraformrc
    .terraform.d .ipython .jupyter .latexmkrc .lessfilter .pylintrc .vim
    .irbrc .pryrc .eslintrc.js .pnp.cjs .bazelrc .gradle
    """.casefold().split()
)
ACTING = frozenset(
    """
    skills.toml skills.lock agent.md warp.md crush.md codex.md opencode.json opencode.jsonc
    conftest.py sitecustomize.py usercustomize.py setup.py setup.cfg pyproject.toml tox.ini pytest.ini pytest.toml
    mypy.ini pylintrc pylintrc.toml noxfile.py tasks.py fabfile.py dodo.py sconstruct sconscript wscript hatch_build.py
    pipfile pipfile.lock uv.toml uv.lock poetry.toml pdm.toml pyvenv.cfg __pycache__ ipython_config.py
    makefile gnumakefile bsdmakefile justfile taskfile.yml taskfile.yaml taskfile.dist.yml taskfile.dist.yaml mise.toml
    mise.local.toml rakefile rakefile.rb gemfile gemfile.lock guardfile thorfile capfile podfile fastfile dangerfile
    brewfile vagrantfile jenkinsfile procfile tiltfile earthfile snakefile cmakelists.txt cmakepresets.json
    cmakeuserpresets.json meson.build build.ninja configure build.bazel workspace.bazel module.bazel build.zig
    dockerfile containerfile docker-compose.yml docker-compose.yaml docker-compose.override.yml
    docker-compose.override.yaml compose.yml compose.yaml compose.override.yml compose.override.yaml docker-bake.hcl
    docker-bake.json devenv.nix flake.nix shell.nix default.nix ansible.cfg azure-pipelines.yml bitbucket-pipelines.yml
    lefthook.yml lefthook.toml
    package.json package-lock.json npm-shrinkwrap.json pnpm-workspace.yaml pnpm-lock.yaml yarn.lock bunfig.toml
    deno.json deno.jsonc node_modules binding.gyp gulpfile.js gruntfile.js karma.conf.js lerna.json nx.json turbo.json
    composer.json cargo.toml cargo.lock build.rs rust-toolchain rust-toolchain.toml go.work build.gradle
    build.gradle.kts settings.gradle settings.gradle.kts gradle.properties gradlew pom.xml mvnw build.xml build.sbt
    mix.exs setup.hs cabal.project stack.yaml makefile.pl build.pl directory.build.props directory.build.targets
    directory.build.rsp nuget.config global.json
    _vimrc _gvimrc _exrc _viminfo _netrc _curlrc autorun.inf desktop.ini
    """.split()
)
_ACTING_STARTS = ("agents", "claude", "gemini", "qwen")  # with .md: `AGENTS.override.md`
_ACTING_ENDS = (
    *(".pth", "._pth", ".csproj.user", ".code-workspace", ".lnk", ".scf", ".library-ms", ".searchconnector-ms"),
    *(f".config.{form}{language}" for form in ("", "c", "m") for language in ("js", "ts")),  # `eslint.config.mjs`
)
_AS_A_FILE = "head"  # a file HEAD makes a folder a git repository; a folder of this name is harmless
_ENV = ".env."  # with any ending: `.env.production`
_SEPARATOR = re.compile(r"[/\\]")
_SHORT = re.compile(r"(?P<stem>[^~]{1,6})~\d+(?:\.[^.]{0,3})?")
_HASHED = re.compile(r"[0-9a-f]{4}")  # in the middle of a short name, when many names have the same start
_STEMS = frozenset(name[1:].split(".")[0][:6] for name in PROTECTED if name.startswith("."))
_ACTING_STEMS = frozenset(name.split(".")[0][:6] for name in (*ACTING, *_ACTING_STARTS))
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


def find_acting(rel: str, *, as_skill: bool = False) -> str | None:
    """Returns the first part of the path that acts where it lies, as it is written there, or None. `as_skill`: the
    place is searched for skills, so SKILL.md is such a name as well."""
    for part in _SEPARATOR.split(rel):
        name = _folded(part)
        if name in ACTING or name.startswith("dockerfile.") or name.endswith(_ACTING_ENDS):
            return part
        if name.startswith(_ACTING_STARTS) and name.endswith(".md"):
            return part
        if as_skill and name == "skill.md":
            return part
        if _is_short(name, _ACTING_STEMS):
            return part
    return None


def hidden_parts(path: str) -> list[str]:
    """Returns the parts of a relative path that start with a dot."""
    return [part for part in path.split("/") if _UNSEEN.sub("", part).startswith(".")]


def _is_protected(part: str) -> bool:
    name = _folded(part)
    if name in PROTECTED or name.startswith(_ENV):
        return True
    return _is_short(name, _STEMS)


def _is_short(name: str, stems: Collection[str]) -> bool:
    """True for an NTFS short name of a file whose name begins with one of the stems."""
    short = _SHORT.fullmatch(name)
    if short is None:
        return False
    stem = short["stem"]
    if stem in stems:
        return True
    if not _HASHED.fullmatch(stem[2:]):
        return False
    return any(each.startswith(stem[:2]) for each in stems)


def _folded(part: str) -> str:
    seen = _UNSEEN.sub("", unicodedata.normalize("NFKC", part))
    name = unicodedata.normalize("NFKC", seen.casefold()).split(":")[0]
    return _UNSEEN.sub("", name).rstrip(" .")
