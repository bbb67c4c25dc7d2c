"""Skills in five lines: find them, show a model which there are, load one.

Run it from the top of the repository: python examples/five_lines.py

Prints what a model is shown before it decides, and what it gets when it has decided:

    <available_skills>
    <skill>
    <name>
    api-style-guide
    </name>
    <description>
    Reviews or drafts HTTP and JSON API designs ...
    </available_skills>
    <skill_content name="meeting-notes" source="explicit">
    # Meeting notes
    ...
    </skill_content>
"""

import prowess

catalog = prowess.discover("examples/skills")
print(prowess.render_catalog(catalog))
skill = prowess.load(catalog, "meeting-notes")
print(prowess.render_skill(skill))
