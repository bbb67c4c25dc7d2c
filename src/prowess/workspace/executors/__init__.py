"""Executors that run scripts on this machine.

- auto: uses the sandbox if it works here, else runs without isolation and says so
- isolation_report: tests the limits and rights of this machine, for the isolation that an executor reports
- local: runs scripts as plain processes, without isolation
- mirrored_folder: keeps two folders the same where nothing can be mounted
- none: refuses to run anything
- preconditions: checks before every run: names, folders, owner, program
- private_copies: a session's own copy of each skill, for executors that cannot bind-mount
- sandbox: runs scripts in a bubblewrap or Landlock sandbox
- setup: settings and processes that our own executors are made with
- workspace: an open workspace: the steps before and after each run
"""
