"""Archives as bytes, made of names and contents."""

from __future__ import annotations

import io
import tarfile
import zipfile


def zipped(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as bundle:
        for name, content in files.items():
            bundle.writestr(zipfile.ZipInfo(name), content)
    return data.getvalue()


def tarred(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as bundle:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            bundle.addfile(info, io.BytesIO(content))
    return data.getvalue()
