"""Skills need no folder: one is a text in this file, two come from a source, and each user sees only their own.

Run it from anywhere: python examples/skills_in_code.py

Prints:

    everybody's: explicit:greeting, explicit:holiday-request, explicit:payroll
    ana sees: greeting, holiday-request, payroll
    ben sees: greeting, holiday-request
    ben asks for payroll: No skill 'payroll'. See: prowess list
    a file of greeting: Guten Tag, こんにちは
"""

from __future__ import annotations

from collections.abc import Iterable

import prowess
from prowess.ports import Source

GREETING = """\
---
name: greeting
description: Greets people in their language. Use when the user asks for a greeting.
---
Look up the greeting in references/greetings.txt, and say it once.
"""

OFFICE = {
    "holiday-request": "Fills in a holiday request. Use when somebody wants days off.",
    "payroll": "Explains a pay slip. Use when somebody asks about their pay.",
}


class OfficeSkills:
    """A SkillSource: anything with a source and skills(). It may read a database or an intranet page."""

    source: Source = "explicit"

    def skills(self) -> Iterable[prowess.Skill]:
        for name, description in OFFICE.items():
            yield prowess.Skill.from_text(
                f"---\nname: {name}\ndescription: {description}\n---\nAsk the office first.\n"
            )


def for_user(catalog: prowess.Catalog, user: str) -> prowess.Catalog:
    """What this user may have. The rest does not exist: it is not listed, not found and not suggested."""
    return catalog.where(lambda entry: user == "ana" or entry.name != "payroll")


def main() -> None:
    greeting = prowess.Skill.from_text(GREETING, files={"references/greetings.txt": "Guten Tag, こんにちは"})
    catalog = prowess.discover(greeting, OfficeSkills())
    print("everybody's:", ", ".join(sorted(entry.id for entry in catalog)))
    for user in ("ana", "ben"):
        print(f"{user} sees:", ", ".join(sorted(entry.name for entry in for_user(catalog, user))))
    try:
        prowess.load(for_user(catalog, "ben"), "payroll")
    except prowess.SkillNotFound as error:
        print("ben asks for payroll:", error)
    loaded = prowess.load(catalog, "greeting")
    print("a file of greeting:", prowess.read_resource(loaded, "references/greetings.txt").decode())


if __name__ == "__main__":
    main()
