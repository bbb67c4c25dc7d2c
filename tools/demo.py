"""The main job on embedded defaults: list, check and show the skills that ship with Prowess, load one, run a script of
one, and let an agent do a real request with them.

No key, no service, no network, and nothing of the user's: home is a temporary folder.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROWESS = (sys.executable, "-m", "prowess")


def main() -> int:
    shipped = ("examples/skills", "src/prowess/builtin_skills")
    places = [place for place in shipped if any((ROOT / place).rglob("SKILL.md"))]
    roots = [word for place in places for word in ("--root", place)]
    with tempfile.TemporaryDirectory(prefix="prowess-demo-") as home:
        environ = _clean_environ(home)
        _show("Every skill that ships with Prowess", ["list", *roots], environ)
        _show("Are they sound? Every finding has a code and says what to do", ["validate", *places], environ)
        _show("What a model is shown: names and descriptions, no bodies", ["prompt", *roots], environ)
        skills = _active_skills(roots, environ)
        _show("What a model gets when it loads one", ["load", skills[0], *roots], environ)
        table, results = "examples/data/sales.csv", os.path.join(home, "results")
        command = ["scripts/fib.py", "8"]
        _show(
            "A script of a skill, run in a workspace",
            ["exec", "python-math", "--yes", "skill_run", "--", *command],
            environ,
        )
        request = f"Report the amount by region in @{table}"
        _show(
            "A request: the agent finds the skill, loads it, runs its script on a file, and answers",
            ["run", request, *roots, "--model", "offline", "--yes", "skill_run", "--output-dir", results],
            environ,
        )
        _show("What is on record", ["sessions", "list"], environ)
        made = sorted(os.listdir(results))
    print(f"\nShown: {len(skills)} skills listed, checked and offered to a model, '{skills[0]}' loaded, and ", end="")
    print(
        f"{' and '.join(made)} made by a request. The lines in brackets say what isolated it, and where its record is."
    )
    return 0


def _show(title: str, args: list[str], environ: dict[str, str]) -> None:
    print(f"\n# {title}\n$ prowess {shlex.join(args)}\n", flush=True)
    subprocess.run([*PROWESS, *args], cwd=ROOT, env=environ, check=True)


def _active_skills(roots: list[str], environ: dict[str, str]) -> list[str]:
    answer = subprocess.run(
        [*PROWESS, "list", *roots, "--json"], cwd=ROOT, env=environ, check=True, capture_output=True, text=True
    )
    names = [skill["name"] for skill in json.loads(answer.stdout)["skills"] if skill["status"] == "active"]
    if not names:
        raise SystemExit("There is no skill to show.")
    return names


def _clean_environ(home: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PROWESS_", "SKILLS_", "TRPC_"))}
    places = {"HOME": home, "PROWESS_HOME": home, "PROWESS_CACHE_DIR": os.path.join(home, "cache")}
    os.chmod(home, 0o711)  # whoever scripts run as, if we are root, must get to the workspace
    return kept | places | {"PROWESS_WORKSPACE_DIR": os.path.join(home, "workspaces")}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"\nThe demo stopped: the command above ended with exit code {error.returncode}.")
