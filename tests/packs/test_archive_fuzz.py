"""10,000 damaged and hostile archives, unpacked and searched: nothing is written outside the folder, nothing stays
behind, and every refusal is a PackError."""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import stat
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest

from pack_samples import SKILL_MD, obtained
from prowess._internal.archive import ArchiveLimits, extract
from prowess.errors import PackError, in_one_line
from prowess.packs.contents import find_skills

PARTS, EACH = 10, 1000
FILES = {
    "pdf/SKILL.md": SKILL_MD.format(name="pdf").encode(),
    "pdf/scripts/run.py": b"print(1)\n" * 20,
    "pdf/references/a.md": b"# A\n",
    "csv/SKILL.md": SKILL_MD.format(name="csv").encode(),
    "manifest.json": b'{"schema": "prowess.pack/1", "skills": []}',
}
NASTY = [
    "../evil", "../../evil", "pdf/../../evil", "/{outside}/evil", "//{outside}/evil", "..", ".", "", "/", "pdf", "pdf/",
    "pdf/SKILL.md", "PDF/skill.md", "pdf/SKILL.md/x", "C:/evil", "c:evil", "..\\evil", "\\\\host\\evil", "a\0b", "nul",
    "aux.md", "pdf/com1", "a.", "a ", "a:b", "e\u0301", "\u00e9", "\u202etxt", "a" * 255, "a" * 256, "a/" * 40 + "b",
    ".git/hooks/post-checkout", ".DS_Store", "__MACOSX/x", "manifest.json", "~/evil", "$HOME/evil", "pdf/\x1b[2J",
]  # fmt: skip
KINDS = [tarfile.REGTYPE] * 6 + [
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
    b"S",
]
MODES = [0o100644] * 6 + [0o100755, 0o40755, 0o120777, 0o10644, 0o20644, 0o104755, 0]
LIMITS = ArchiveLimits(max_entries=50, max_file_bytes=100_000, max_total_bytes=300_000)


@pytest.mark.parametrize("part", range(PARTS))
def test_10k_mutated_archives(tmp_path: Path, part: int):
    chance = random.Random(f"packs {part}")
    outside, place = tmp_path / "outside", tmp_path / "a" / "b" / "place"
    outside.mkdir()
    place.mkdir(parents=True)
    archive, into = place / "archive", place / "into"
    whole = {kind: _archive(kind, FILES, chance) for kind in ("zip", "stored", "tar", "tgz")}
    unpacked = searched = 0
    for number in range(EACH):
        archive.write_bytes(_mutated(whole, chance, str(outside)))
        try:
            written = extract(archive, into, limits=LIMITS)
        except PackError as error:
            assert error.hint, number
            assert in_one_line(error).isprintable(), number
            assert not into.exists(), number
        else:
            unpacked += 1
            found = _walked(into)
            assert sorted(found) == [*written], number
            searched += _search(into, found)
            shutil.rmtree(into)
        assert os.listdir(place) == ["archive"], number
        assert os.listdir(outside) == [], number
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "archive", "b", "outside", "place"]
    assert unpacked > EACH // 20  # the mutations reach what comes after a refusal
    assert searched > EACH // 100


def _walked(folder: Path) -> list[str]:
    """Every file below a folder. There is nothing but files and folders, with plain modes."""
    names: list[str] = []
    for parent, folders, files in os.walk(folder):
        assert not any(os.path.islink(os.path.join(parent, name)) for name in folders), parent
        for path in [os.path.join(parent, name) for name in files]:
            mode = os.lstat(path).st_mode
            assert stat.S_ISREG(mode) and stat.S_IMODE(mode) in (0o644, 0o755), path
            names.append(os.path.relpath(path, folder))
    return names


def _search(folder: Path, before: list[str]) -> bool:
    try:
        skills = find_skills(obtained(folder, is_ours=True))
    except PackError as error:
        assert error.hint
        assert in_one_line(error).isprintable()
        return False
    finally:
        assert _walked(folder) == before
    top = os.path.realpath(folder)
    assert all(os.path.realpath(skill.folder).startswith(top) for skill in skills)
    return bool(skills)


# --- mutations --------------------------------------------------------------------------------------------------------


def _mutated(whole: dict[str, bytes], chance: random.Random, outside: str) -> bytes:
    kind = chance.choice(list(whole))
    data = whole[kind]
    if chance.random() < 0.5:  # other names, kinds and modes
        names = [chance.choice(list(FILES)) for _ in range(chance.randrange(4))]
        names += [
            chance.choice(NASTY).replace("{outside}", outside.lstrip("/")) for _ in range(chance.choice((0, 1, 1, 2)))
        ]
        chance.shuffle(names)
        data = _archive(kind, {name: FILES.get(name, b"evil") for name in names}, chance, odd=chance.random() < 0.3)
        if chance.random() < 0.6:
            return data
    if kind == "tgz" and chance.random() < 0.7:  # below the compression; a flipped bit of it is only noticed
        return gzip.compress(_damaged(gzip.decompress(data), whole["tar"], chance), 1)
    return _damaged(data, whole[kind], chance)


def _damaged(data: bytes, other: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, to = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
        kind = chance.randrange(6)
        if kind <= 1 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        elif kind == 2:
            data = data[:at] if chance.random() < 0.5 else data[:at] + data[to:]
        elif kind == 3:
            data = data[:at] + other[chance.randrange(len(other)) :]
        elif kind == 4:
            data = data.replace(
                b"pdf/", chance.choice((b"../x", b"/tmp", b"pdf\\", b"p\0f/", b"PDF/", b"csv/")), chance.randrange(3)
            )
        else:
            data = data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at:]
        data = data or b"\0"
    return _with_checksums(data) if chance.random() < 0.7 else data


def _with_checksums(data: bytes) -> bytes:
    """Corrects the checksum of each tar header, so that a changed header is believed."""
    blocks = bytearray(data)
    for at in range(0, len(blocks) - 511, 512):
        if blocks[at + 257 : at + 262] == b"ustar":
            blocks[at + 148 : at + 156] = b" " * 8
            blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + 512])
    return bytes(blocks)


def _archive(kind: str, files: dict[str, bytes], chance: random.Random, *, odd: bool = False) -> bytes:
    data = io.BytesIO()
    if kind in ("tar", "tgz"):
        with tarfile.open(
            fileobj=data, mode="w", format=chance.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
        ) as bundle:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.type, info.linkname = chance.choice(KINDS) if odd else tarfile.REGTYPE, chance.choice(NASTY)
                info.size = len(content) if info.isreg() else 0
                bundle.addfile(info, io.BytesIO(content))
        return gzip.compress(data.getvalue(), 1, mtime=0) if kind == "tgz" else data.getvalue()
    method = zipfile.ZIP_DEFLATED if kind == "zip" else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(data, "w", method) as bundle:
        warnings.simplefilter("ignore")  # duplicate names are the point
        for name, content in files.items():
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, method  # past the constructor, which cuts at a NUL
            info.external_attr = (chance.choice(MODES) if odd else 0o100644) << 16
            bundle.writestr(info, content)
    return data.getvalue()
