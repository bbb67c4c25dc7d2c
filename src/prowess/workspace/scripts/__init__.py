"""Chooses the interpreter of a script, installs its packages, and explains missing ones.

- configured_python: checks the Python named by `workspace.python`
- environment_store: keeps environments on disk, with locks and records
- environments: builds and finds the environment with the packages of a script or skill
- installers: command lines and environment variables for uv and pip
- interpreter: chooses the interpreter and arguments that start a script
- missing_dependency: finds the missing package, program or library in the output of a failed run
- pep723: parses the PEP 723 block of a Python script
"""
