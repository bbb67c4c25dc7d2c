"""Which interpreter starts a script, the packages it declares, and what was missing.

- configured_python: the Python that `workspace.python` names
- environment_marker: tells a condition of a requirement (`python_version < "3.12"`) from other text
- environment_store: environments on disk
- environments: the packages of a script or skill are in an environment of their own
- installers: what uv and pip are told
- interpreter: how a script of a skill is started
- missing_dependency: what a failed run lacked, when it says so
- pep723: what a Python script says it needs, in its PEP 723 block, read as the specification says
"""
