"""Libraries that look like the real ones: lengths and fields as measured over 15,725 public SKILL.md files.

Descriptions p50 183 characters, bodies p50 6 KB; half of the files have fields beyond the specification, 17 % a
licence, 20 % metadata, 6 % allowed-tools in one of three forms. `make_real_library` has also what makes real libraries
slow to read: folders of folders, references and scripts, quoted, folded and non-ASCII descriptions, names that differ.
"""

from __future__ import annotations

import random
from pathlib import Path

_WORDS = (
    "extract parse convert file data table report when user asks about spreadsheet json pdf document analysis summary "
    "chart build deploy test run query database review code write draft email meeting notes image audio video search "
    "index clean merge split"
).split()


def make_library(folder: Path, skills: int, seed: int = 7) -> Path:
    chance = random.Random(seed)
    for number in range(skills):
        name = f"{chance.choice(_WORDS)}-{chance.choice(_WORDS)}-{number:05}"
        target = folder / name
        target.mkdir(parents=True)
        body = "# Steps\n\n" + "".join(f"{n}. {_sentence(chance, 12)}\n" for n in range(chance.randint(20, 120)))
        (target / "SKILL.md").write_text(f"---\n{_front(chance, name)}---\n\n{body}", encoding="utf-8")
    return folder


def make_real_library(folder: Path, skills: int, seed: int = 11) -> Path:
    chance = random.Random(seed)
    for number in range(skills):
        name = f"{chance.choice(_WORDS)}-{chance.choice(_WORDS)}-{number:05}"
        target = folder / f"collection-{number // 500:02}" / name
        (target / "references").mkdir(parents=True)
        front = _front(chance, name if chance.random() < 0.9 else f"{name}-skill")
        head, _, rest = front.partition("description: ")
        description, _, rest = rest.partition("\n")
        body = "".join(_section(chance) for _ in range(chance.randint(2, 14)))
        text = f"---\n{head}description: {_as_people_write(chance, description)}\n{rest}---\n\n# {name}\n\n{body}"
        (target / "SKILL.md").write_text(text, encoding="utf-8")
        if chance.random() < 0.3:
            (target / "references" / "guide.md").write_text(_section(chance), encoding="utf-8")
            (target / "scripts").mkdir()
    return folder


def _as_people_write(chance: random.Random, text: str) -> str:
    style = chance.random()
    if style < 0.15:
        return f'"{text} Says \\"no\\" to nothing: ask first."'
    if style < 0.25:
        half = text.index(" ", len(text) // 2)
        return f">-\n  {text[:half]}\n  {text[half + 1 :]}"
    return text + chance.choice(("", "", "", " — and more 🚀", " 从数据生成报告。"))


def _section(chance: random.Random) -> str:
    lines = "".join(f"- {_sentence(chance, chance.randint(6, 18))}\n" for _ in range(chance.randint(2, 9)))
    code = f"```bash\npython scripts/{chance.choice(_WORDS)}.py --input data.json\n```\n\n"
    return f"## {_sentence(chance, 3)}\n\n{lines}\n{code}"


def _front(chance: random.Random, name: str) -> str:
    words = max(6, int(chance.lognormvariate(3.35, 0.5)))
    lines = [f"name: {name}", f"description: {_sentence(chance, words)} Use when the user asks."]
    if chance.random() < 0.17:
        lines.append("license: MIT")
    if chance.random() < 0.20:
        lines += ["metadata:", "  author: acme", '  version: "1.0"', f"  category: {chance.choice(_WORDS)}"]
    if chance.random() < 0.06:
        forms = ["Read, Bash(git:*), Grep", "[Read, Grep]", "Read Grep"]
        lines.append(f"allowed-tools: {chance.choice(forms)}")
    if chance.random() < 0.5:
        extra = ["version: 1.2.0", "author: someone", f"tags: [{chance.choice(_WORDS)}, {chance.choice(_WORDS)}]"]
        extra += ["source: community", "risk: safe", 'date_added: "2026-02-27"']
        lines += chance.sample(extra, chance.randint(1, 4))
    return "\n".join(lines) + "\n"


def _sentence(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words)).capitalize() + "."
