"""Hostile skills, files, outputs and repositories, and a model that does all that they ask for.

Each case looks at effects: what ran, was read, written, sent, shown to the model and recorded. Each has a control: the
same attempt with the permission, or without the protection, succeeds; so a test that looks at nothing would be red.
Where isolation has a part in it, it is tried in every tier; a case that differs by tier says why.
"""
