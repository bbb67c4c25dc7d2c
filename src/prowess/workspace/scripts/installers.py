"""Command lines and environment variables for uv and pip: wheels only, so installing executes no code of a package.

An installer gets only those of our environment variables that say where packages come from and how to reach them. The
interpreter of an environment is never started once it has packages, because a package can run code at that start.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from prowess.errors import WorkspaceError
from prowess.workspace.isolation.bwrap import find_trusted

Name = Literal["uv", "pip"]
_PASSED = frozenset(
    """
    HOME XDG_CONFIG_HOME XDG_CONFIG_DIRS XDG_CACHE_HOME TMPDIR NETRC SSL_CERT_FILE SSL_CERT_DIR SSL_CLIENT_CERT
    REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_NO_INDEX PIP_FIND_LINKS PIP_TRUSTED_HOST PIP_CERT PIP_CLIENT_CERT PIP_PROXY
    PIP_TIMEOUT PIP_DEFAULT_TIMEOUT PIP_RETRIES PIP_CONFIG_FILE PIP_CACHE_DIR PIP_NO_CACHE_DIR PIP_CONSTRAINT
    PIP_KEYRING_PROVIDER PIP_USE_FEATURE PIP_USE_DEPRECATED PIP_UPLOADED_PRIOR_TO
    UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_NO_INDEX UV_OFFLINE UV_CONFIG_FILE UV_NO_CONFIG UV_CACHE_DIR
    UV_NO_CACHE UV_INSECURE_HOST UV_NATIVE_TLS UV_SYSTEM_CERTS UV_HTTP_TIMEOUT UV_HTTP_RETRIES UV_CONSTRAINT
    UV_EXCLUDE_NEWER UV_KEYRING_PROVIDER
    """.split()
)
_PASSED_BEGINNINGS = ("UV_INDEX",)  # UV_INDEX, UV_INDEX_URL, UV_INDEX_STRATEGY, UV_INDEX_<NAME>_PASSWORD
_UV_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_CONFIG_FILE")
_PIP_INDEX = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX")
_PIP_CONFIG = re.compile(r"^[ \t]*+(?:(?:extra-)?index-url|find-links|no-index)[ \t]*+[=:]", re.MULTILINE)
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_PIP_OPTIONS = (
    "install --only-binary :all: --no-input --disable-pip-version-check --no-color --progress-bar off "
    "--no-warn-script-location"
).split()
_UV_OPTIONS = "--no-python-downloads --no-progress --color never".split()
_UV_INSTALL = ["pip", "install", "--only-binary", ":all:", "--link-mode", "copy", *_UV_OPTIONS]


class PythonTarget(NamedTuple):
    """A Python that is not on this machine, such as a container's."""

    version: tuple[int, ...]
    machine: str
    libc: str  # glibc-2.36, musl-1.2

    @property
    def tag(self) -> str:
        return f"cp{self.version[0]}{self.version[1]}-{self.machine}-{self.libc}"


def find_uv(environ: Mapping[str, str], beside: str) -> str | None:
    """Finds uv beside our interpreter, on our PATH or in the system. The file must belong to us or root."""
    path = environ.get("PATH", "").split(os.pathsep)
    on_path = [folder for folder in path if os.path.isabs(folder)]
    for folder in (os.path.dirname(beside), *on_path):
        uv = shutil.which("uv", path=folder)
        if uv is not None and _is_ours(uv) and _is_ours(folder):
            return uv
    return find_trusted("uv")


def pip_knows_better(environ: Mapping[str, str]) -> bool:
    """True when pip, but not uv, is configured with an index. uv would then get a package of that name from the public
    index, where it may belong to somebody else."""
    home = environ.get("HOME", "/nowhere")
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    uv_files = (os.path.join(config, "uv", "uv.toml"), "/etc/uv/uv.toml")
    if any(environ.get(name) for name in _UV_INDEX) or any(map(os.path.exists, uv_files)):
        return False
    if any(environ.get(name) for name in _PIP_INDEX):
        return True
    named = environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:  # tells pip to read no configuration
        return False
    system = environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    folders = ["/etc", os.path.join(home, ".pip")]
    folders += [os.path.join(folder, "pip") for folder in (*system, config)]
    files = [os.path.join(folder, "pip.conf") for folder in folders]
    return any(_names_an_index(path) for path in (named, *files))


def installer_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables for an installer. Resets a person's own pip settings that would interfere here."""
    passed = {}
    for name, value in environ.items():
        if name in _PASSED or name.startswith(_PASSED_BEGINNINGS):
            passed[name] = value
    ours = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_ROOT_USER_ACTION": "ignore"}
    return {**passed, **ours, "PATH": os.defpath, "LANG": "C.UTF-8"}


def uv_environment(uv: str, python: str, folder: str, dependencies: Sequence[str]) -> list[list[str]]:
    make = [uv, "venv", "--no-project", "--allow-existing", *_UV_OPTIONS, "--python", python, folder]
    install = [uv, *_UV_INSTALL, "--python", environment_python(folder), "--", *dependencies]
    return [make, install]


def pip_environment(pip: Sequence[str], python: str, folder: str, dependencies: Sequence[str]) -> list[list[str]]:
    """Returns the commands for an environment. With `pip` from another Python the environment needs none; otherwise it
    gets its own."""
    inside = environment_python(folder)
    make = [python, "-I", "-m", "venv"]
    if pip:
        make += ["--without-pip", folder]
        use = [*pip, "--python", inside]
    else:
        make.append(folder)
        use = [inside, "-I", "-m", "pip"]
    return [make, [*use, *_PIP_OPTIONS, "--", *dependencies]]


def uv_target(uv: str, python: str, folder: str, target: PythonTarget, dependencies: Sequence[str]) -> list[str]:
    libc, _, number = target.libc.partition("-")
    machine = _MACHINES.get(target.machine, target.machine)
    system = "unknown-linux-musl"
    if libc != "musl":
        system = f"manylinux_{number.replace('.', '_')}"
    version = ".".join(map(str, target.version))
    where = ["--python", python, "--target", folder, "--python-version", version]
    where += ["--python-platform", f"{machine}-{system}"]
    return [uv, *_UV_INSTALL, *where, "--", *dependencies]


def pip_target(pip: Sequence[str], folder: str, target: PythonTarget, dependencies: Sequence[str]) -> list[str]:
    version = ".".join(map(str, target.version))
    where = ["--target", folder, "--python-version", version, "--implementation", "cp"]
    for platform in _platforms(target):
        where += ["--platform", platform]
    return [*pip, *_PIP_OPTIONS, "--no-compile", *where, "--", *dependencies]


def environment_python(folder: str) -> str:
    return os.path.join(folder, "bin", "python")


def explain_installer(lines: Sequence[str]) -> tuple[str, bool]:
    """Returns advice about the installer's last output, and True when a retry can help."""
    text = "\n".join(lines)
    for pattern, hint, retryable in _HINTS:
        if re.search(pattern, text, re.IGNORECASE):
            return hint, retryable
    return "The last output of the installer is above.", False


_HINTS = (
    (r"no space left on device|disk quota", "There is no room left. Make some, or name another folder.", True),
    (
        r"name resolution|name or service not known|network is unreachable|connection (?:refused|reset|broken|timed)|"
        r"timed out|proxyerror|error sending request|dns error|network was disabled|newconnectionerror",
        "The index cannot be reached. An environment that was made before works without it; a new one does not.",
        True,
    ),
    (r"no such option: --python", "This pip is too old: update it to 22.3 or newer, or install uv.", False),
    (r"ensurepip", "There is neither uv nor pip. Install one of them for Prowess's own interpreter.", False),
    (
        r"resolutionimpossible|conflicting dependencies|conflict|are incompatible",
        "The block asks for versions that exclude each other: its author has to change one of them.",
        False,
    ),
    (
        r"no matching distribution|could not find a version|no solution found|no usable wheels|has no wheels",
        "No wheel fits. Packages are never built here, because that would execute them. Look whether the name is "
        "right, whether there is a wheel for this Python, and whether the index that is configured has it.",
        False,
    ),
    (r"trying to install outside|reserved name", "The package is not one to be trusted. Do not use it.", False),
)


def _platforms(target: PythonTarget) -> list[str]:
    """Returns every platform tag that fits, because pip does not expand them."""
    libc, _, number = target.libc.partition("-")
    machine = _MACHINES.get(target.machine, target.machine)
    kind = {"glibc": "manylinux", "musl": "musllinux"}.get(libc)
    found = re.fullmatch(r"(\d+)\.(\d+)", number)
    if kind is None or found is None:
        raise WorkspaceError(f"'{target.libc}' is no C library that wheels are made for.", op="dependencies")
    major = int(found[1])
    minor = int(found[2])
    lowest = 5 if kind == "manylinux" else 0
    names = [f"{kind}_{major}_{number}" for number in range(minor, lowest - 1, -1)]
    if kind == "manylinux" and minor >= 17:
        names += ["manylinux2014", "manylinux2010", "manylinux1"]
    names.append("linux")
    return [f"{name}_{machine}" for name in names]


def _is_ours(path: str) -> bool:
    status = os.stat(path)
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def _names_an_index(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _PIP_CONFIG.search(file.read(1 << 16)) is not None
    except OSError:
        return False


class InstallerOutput:
    """Collects output line by line and keeps the last lines. Passwords in addresses are removed."""

    def __init__(self, on_line: Callable[[str], None] | None, keep: int = 40) -> None:
        self.kept: list[str] = []
        self._on_line = on_line
        self._keep = keep
        self._rest = b""

    def take(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > 1 << 16:
            whole.append(self._rest)
            self._rest = b""
        for line in whole:
            self._say(line)

    def close(self) -> None:
        if self._rest:
            self._say(self._rest)
            self._rest = b""

    def _say(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        text = re.sub(r"://[^/\s@]+@", "://…@", text).rstrip()
        if text:
            shown = text[:1000]
            self.kept = [*self.kept[1 - self._keep :], shown]
            if self._on_line is not None:
                self._on_line(shown)
