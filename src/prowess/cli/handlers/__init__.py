"""Handlers of the commands: each does the work of a command that `prowess.cli.commands` declares.

A command imports its handler when it is invoked, so that `--help` imports nothing of what the work needs.

- approvals: list, answer, grant and revoke approvals
- artifacts: list, read, save and remove artifacts
- chat: a chat and its slash commands
- doctor: report on roots, findings, installation and isolation
- eval: run eval cases, and batches of requests
- evals: write starter cases; show and compare eval runs
- exec: run one command of a skill
- inspect: show one skill
- install: install and update skills
- pack: write skills into an archive
- policy: explain a policy decision
- run: run one request
- runs: check and remove recorded runs
- runs_list: list recorded runs
- runs_replay: repeat a recorded run
- runs_show: show, compare and export runs
- sessions: list, show and delete sessions
- uninstall: remove an installed skill, or return to the version before
- verify: compare installed skills with the lock, and packs with their manifest
- workspaces: list and clean workspaces; build the container image
"""
