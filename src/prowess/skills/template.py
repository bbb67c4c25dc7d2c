"""Template of a new skill. Its placeholders are lines that a finished skill does not have: validation finds them."""

from __future__ import annotations

UNDESCRIBED = " in one sentence. Use when the user asks for …"  # how the description of the template ends
TEMPLATE = """\
---
name: {name}
description: {description}
---

# {title}

## Goal

Say in one sentence what is true when this skill has done its work.

## Inputs and outputs

- Input: what the user gives, and in which form.
- Output: what the user gets, and where it is.

## Steps

1. Check that the input is there and is what it should be.
2. Do the work: write here how, step by step.
3. Check the result against the checklist below.

## Failure modes

- The input is missing or cannot be read: say which, and ask for it.
- A step fails: report the exact error; do not guess a result.

## Checklist

- [ ] The output exists and can be opened.
- [ ] Every number in the answer comes from the input.

## Resources

None yet. Put scripts in scripts/, long texts in references/, templates in assets/, and say here when to use each.
"""
PLACEHOLDERS = frozenset(
    [
        "Say in one sentence what is true when this skill has done its work.",
        "- Input: what the user gives, and in which form.",
        "- Output: what the user gets, and where it is.",
        "2. Do the work: write here how, step by step.",
    ]
)
