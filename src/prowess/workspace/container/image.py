"""Builds and checks the image of the containers: a few programs and Python, and no data of the build machine.

The engine builds it from the Dockerfile beside this module. Where it can reach no registry, the image is made of the
packages installed on this Debian, so nothing is downloaded: the files of those packages, and of /etc only those named
here. No password, key, host name, resolver or setting of the machine gets in, no file keeps a set-id bit, and the same
packages give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from prowess.errors import WorkspaceUnavailable
from prowess.workspace.isolation.selftest import DEFAULT_UID

if TYPE_CHECKING:
    import docker

DEFAULT_IMAGE = "prowess-box"
BUILD_HINT = "Build one that fits: prowess workspaces build-image"
DIGEST_LABEL = "prowess.digest"
PATH = "/usr/local/bin:/usr/bin:/bin"
PACKAGES = "bash coreutils dash diffutils findutils grep gzip mawk python3 sed tar".split()
IF_INSTALLED = "bzip2 file gawk jq procps python3-venv tzdata unzip xz-utils zip".split()
# Needed to install packages, but not to run programs.
_LEFT_OUT = {"debconf", "cdebconf", "dpkg", "install-info", "perl-base", "usrmerge"}
_NOT_WANTED = re.compile(r"/(etc|var|run|usr/share/(doc|man|info|locale|lintian|bug|doc-base|menu|applications))/")
_OF_ETC = re.compile(r"/etc/(ld\.so\.conf(\.d/.*)?|python3[^/]*/sitecustomize\.py|mime\.types|os-release)")
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_WRITTEN = {
    "etc/passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nbox:x:{DEFAULT_UID}:{DEFAULT_UID}:box:/tmp:/bin/bash\n",
    "etc/group": f"root:x:0:\nbox:x:{DEFAULT_UID}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_CHECK = "import ctypes, sqlite3, ssl, sys; print('.'.join(map(str, sys.version_info[:3])))"
_CHECK_S = 60
_BUILD_S = 600
_CHUNK_BYTES = 1 << 20


class ImageInfo(NamedTuple):
    tag: str
    id: str
    size_bytes: int
    python: str
    built_from: Literal["image", "dockerfile", "packages"]
    packages: tuple[str, ...] = ()


def build_image(
    client: docker.DockerClient,
    *,
    tag: str = DEFAULT_IMAGE,
    base: str | None = None,
    offline: bool = False,
    on_line: Callable[[str], None] | None = None,
) -> ImageInfo:
    """Builds the image and checks it: from the Dockerfile, or from this machine's packages where that fails and with
    `offline`. With `base`, tags that image under our name, and the engine pulls it if needed."""
    say = on_line or (lambda _: None)
    packages: list[str] = []
    if base is not None:
        built_from = "image"
        image = _of_base(client, tag, base, say)
    elif not offline and (image := _of_dockerfile(client, tag, say)):
        built_from = "dockerfile"
    else:
        built_from = "packages"
        packages = find_packages()
        image = _of_packages(client, tag, packages, say)
    python = check_image(client, image)
    size = client.api.inspect_image(image)["Size"]
    said = {"image": f"from {base}", "dockerfile": "from the Dockerfile", "packages": "from this machine's packages"}
    say(f"{tag} is ready, {said[built_from]}: Python {python}, {size >> 20} MiB.")
    return ImageInfo(tag, image, size, python, built_from, tuple(packages))


def check_image(client: docker.DockerClient, image: str) -> str:
    """Returns the image's Python version. Raises WorkspaceUnavailable when it has no usable Python."""
    import docker.errors
    import requests

    made = None
    entrypoint = ["python3", "-I", "-c", _CHECK]
    user = f"{DEFAULT_UID}:{DEFAULT_UID}"
    try:
        host = client.api.create_host_config(network_mode="none", read_only=True, cap_drop=["ALL"])
        made = client.api.create_container(image, entrypoint=entrypoint, user=user, host_config=host)["Id"]
        client.api.start(made)
        code = client.api.wait(made, timeout=_CHECK_S)["StatusCode"]
        said = client.api.logs(made).decode("utf-8", "replace").strip()
    except docker.errors.APIError as error:
        code = 1
        said = str(error.explanation or error)
    except requests.RequestException as error:
        code = 1
        said = f"it did not answer: {error}"
    finally:
        if made is not None:
            client.api.remove_container(made, v=True, force=True)
    if code != 0 or not re.fullmatch(r"[\d.]+", said):
        needs = "It needs python3 (3.10 or newer) with ctypes, sqlite3 and ssl, such as the official python images."
        why = said[-300:] or f"python3 ended with {code}"
        raise image_unfit(image, f"cannot be used: {why}", needs)
    version = tuple(map(int, said.split(".")))
    if version[:2] < (3, 10):
        raise image_unfit(image, f"has Python {said}.", "It needs Python 3.10 or newer.")
    return said


def image_unfit(image: str, why: str, hint: str = BUILD_HINT) -> WorkspaceUnavailable:
    message = f"The image '{image}' {why}"
    return WorkspaceUnavailable(message, op="image", code="container-image-unfit", hint=hint)


def _of_base(client: docker.DockerClient, tag: str, base: str, say: Callable[[str], None]) -> str:
    import docker.errors

    try:
        image = client.api.inspect_image(base)
    except docker.errors.ImageNotFound:
        say(f"The engine fetches {base}.")
        version = None if ":" in base else "latest"
        try:
            for line in client.api.pull(base, stream=True, decode=True, tag=version):
                if "error" in line:
                    raise docker.errors.APIError(line["error"])
            image = client.api.inspect_image(base)
        except docker.errors.APIError as error:
            why = error.explanation or error
            message = f"There is no image '{base}', and it could not be fetched: {why}."
            hint = "Name an image that `docker images` shows, or one that the engine can reach."
            raise WorkspaceUnavailable(message, op="image", code="container-image-missing", hint=hint) from error
    id = image["Id"]
    check_image(client, id)
    repository, version = _split_tag(tag)
    client.api.tag(id, repository, version, force=True)
    return id


def _of_dockerfile(client: docker.DockerClient, tag: str, say: Callable[[str], None]) -> str | None:
    """Returns the image, or None when the engine could not build it; the reason is said."""
    import docker.errors
    import requests

    source = files("prowess.workspace.container") / "Dockerfile"
    dockerfile = io.BytesIO(source.read_bytes())
    say("The engine builds the image from the Dockerfile.")
    try:
        lines = client.api.build(fileobj=dockerfile, tag=tag, rm=True, forcerm=True, decode=True, timeout=_BUILD_S)
        for line in lines:
            if "error" in line:
                raise docker.errors.APIError(line["error"])
        return client.api.inspect_image(tag)["Id"]
    except (docker.errors.APIError, requests.RequestException) as error:
        why = getattr(error, "explanation", None) or str(error)
        say(f"The Dockerfile could not be built here: {why.strip()[:300]}")
        return None


def _of_packages(client: docker.DockerClient, tag: str, packages: list[str], say: Callable[[str], None]) -> str:
    say(f"Packing {len(packages)} packages of this machine; nothing is downloaded.")
    with tempfile.TemporaryFile(prefix="prowess-image-") as file:
        digest = write_image(file, packages)
        size = file.tell()
        say(f"Importing {size >> 20} MiB.")
        file.seek(0)
        return _imported(client, tag, file, digest)


def _imported(client: docker.DockerClient, tag: str, file: IO[bytes], digest: str) -> str:
    changes = [f"USER {DEFAULT_UID}:{DEFAULT_UID}", f"ENV PATH={PATH}", "ENV LANG=C.UTF-8"]
    changes.append(f'LABEL {DIGEST_LABEL}="{digest}"')
    changes.append('CMD ["/bin/bash"]')
    repository, version = _split_tag(tag)
    usual_s = client.api.timeout
    client.api.timeout = _BUILD_S
    try:
        answer = client.api.import_image(src=file, repository=repository, tag=version, changes=changes)
    finally:
        client.api.timeout = usual_s
    for line in answer.splitlines():
        said = json.loads(line)
        if "error" in said:
            raise image_unfit(tag, f"could not be imported by the engine: {said['error']}")
    return client.api.inspect_image(f"{repository}:{version}")["Id"]


def _split_tag(tag: str) -> tuple[str, str]:
    repository, colon, version = tag.rpartition(":")
    if colon and "/" not in version:
        return (repository, version)
    return (tag, "latest")


# --- from the packages of this machine ------------------------------------------------------------------------------


def find_packages() -> list[str]:
    """Returns the installed packages of our lists and everything they depend on, sorted."""
    if shutil.which("dpkg-query") is None:
        raise _no_packages("this is no Debian")
    fields = "${Package}\\t${db:Status-Abbrev}\\t${Provides}\\t${Pre-Depends}, ${Depends}\\n"
    needs: dict[str, str] = {}
    providers: dict[str, list[str]] = {}
    for line in _dpkg("-W", f"-f={fields}").splitlines():
        name, status, provides, depends = line.split("\t")
        if not status.startswith("ii"):
            continue
        needs[name] = depends
        for provided in _names(provides):
            providers.setdefault(provided[0], []).append(name)
    absent = [name for name in PACKAGES if name not in needs]
    if absent:
        raise _no_packages(f"it has not installed {', '.join(absent)}")
    found: set[str] = set()
    waiting = [name for name in (*PACKAGES, *IF_INSTALLED) if name in needs]
    while waiting:
        name = waiting.pop()
        if name in found or name in _LEFT_OUT:
            continue
        found.add(name)
        for alternatives in _names(needs[name]):
            installed = [each for each in alternatives if each in needs]
            installed += [each for other in alternatives for each in sorted(providers.get(other, ()))]
            waiting += installed[:1]
    return sorted(found)


def write_image(file: IO[bytes], packages: Iterable[str]) -> str:
    """Writes the root file system as a tar. Returns its digest."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _Root(tar).fill(sorted(set(_paths(packages))))
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


class _Root:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self.tar = tar
        self.made: set[str] = set()

    def fill(self, paths: list[str]) -> None:
        for name in _MERGED:
            if os.path.islink(f"/{name}"):
                self.link(name, os.readlink(f"/{name}"))
        for name, mode in {"tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755}.items():
            self.folder(name, mode)
        for name, text in _WRITTEN.items():
            self.write(name, text.encode())
        for path in paths:
            self.add(path)
        made = {f"/{name}" for name in self.made}
        for path, target in _alternatives(made):
            self.link(path.lstrip("/"), target)

    def write(self, name: str, data: bytes) -> None:
        self.parents(name)
        info = _info(name, tarfile.REGTYPE, 0o644)
        info.size = len(data)
        self.tar.addfile(info, io.BytesIO(data))
        self.made.add(name)

    def add(self, path: str) -> None:
        """Adds a file or link as it is here, but owned by root and without a set-id bit."""
        folder = os.path.realpath(os.path.dirname(path))
        name = os.path.join(folder, os.path.basename(path)).lstrip("/")
        # A file of a package can be missing: Debian images leave out documentation.
        if name in self.made or not os.path.lexists(path):
            return
        info = self.tar.gettarinfo(path, name)
        if info.isreg() or info.islnk():
            self.parents(name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mode &= 0o777
            info.mtime = int(info.mtime)
            with open(path, "rb") as source:
                self.tar.addfile(info, source if info.isreg() else None)
            self.made.add(name)
        elif info.issym():
            self.link(name, info.linkname)

    def parents(self, name: str) -> None:
        """Adds the folders above a name."""
        parts = name.split("/")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            self.folder(above, 0o755)

    def folder(self, name: str, mode: int) -> None:
        if name not in self.made:
            self.tar.addfile(_info(name, tarfile.DIRTYPE, mode))
            self.made.add(name)

    def link(self, name: str, target: str) -> None:
        if name not in self.made:
            self.parents(name)
            info = _info(name, tarfile.SYMTYPE, 0o777)
            info.linkname = target
            self.tar.addfile(info)
            self.made.add(name)


def _paths(packages: Iterable[str]) -> Iterator[str]:
    """Yields the files of the packages that the image gets."""
    for path in _dpkg("-L", *packages).splitlines():
        if not path.startswith("/") or (_NOT_WANTED.match(path) and not _OF_ETC.fullmatch(path)):
            continue
        yield path
        if path.endswith(".py") and "/python3" in path:
            yield from _compiled(path)


def _compiled(path: str) -> Iterator[str]:
    """Yields the compiled forms of a module, which were made after installation. On a read-only root Python would
    compile it again in every run."""
    folder, name = os.path.split(path)
    module = name.removesuffix(".py")
    cache = os.path.join(folder, "__pycache__")
    if not os.path.isdir(cache):
        return
    for compiled in os.listdir(cache):
        if compiled.startswith(f"{module}.cpython-"):
            yield f"{cache}/{compiled}"


def _alternatives(made: set[str]) -> Iterator[tuple[str, str]]:
    """Yields links such as `awk`, which were made after installation and go through a folder that is left out."""
    for name in sorted(os.listdir("/usr/bin")):
        path = f"/usr/bin/{name}"
        if os.path.islink(path) and os.readlink(path).startswith("/etc/alternatives/"):
            target = os.path.realpath(path)
            if target in made:
                yield path, target


def _info(name: str, kind: bytes, mode: int, mtime: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = mode
    info.mtime = mtime
    return info


def _names(relation: str) -> list[list[str]]:
    """Parses `a (>= 1) | b, c:any` to [[a, b], [c]]."""
    found = []
    for group in relation.split(","):
        if group.strip():
            alternatives = [each.strip() for each in group.split("|")]
            found.append([re.split(r"[ (:\[]", each, maxsplit=1)[0] for each in alternatives])
    return found


def _dpkg(*arguments: str) -> str:
    answer = subprocess.run(  # noqa: S603
        ["/usr/bin/dpkg-query", *arguments], check=True, capture_output=True, text=True, env={"LC_ALL": "C.UTF-8"}
    )
    return answer.stdout


def _no_packages(why: str) -> WorkspaceUnavailable:
    message = f"The image cannot be made of this machine's packages: {why}."
    hint = "Name an image to begin with: prowess workspaces build-image --from python:3.12-slim"
    return WorkspaceUnavailable(message, op="image", code="container-image-base", hint=hint)
