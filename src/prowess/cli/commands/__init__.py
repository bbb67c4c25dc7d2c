"""Commands of the command line: one module per command, with its options and its help. A command whose work imports
much has a handler in `prowess.cli.handlers`, and imports it when it is invoked.

- approvals: list, answer, grant and revoke approvals
- artifacts: list, read, save and remove artifacts
- completion: print the script of a shell
- config: show the configuration
- doctor: report on roots, findings, installation and isolation
- eval: `eval` and `batch`
- evals: write starter cases; show and compare eval runs
- exec: run one command of a skill
- init: make a folder a project
- inspect: show one skill
- install: install and update skills
- list: list the skills
- list_json: fast path of `list --json`, without the parser
- load: print what a model gets when it loads a skill
- new: write a new skill
- pack: write skills into an archive
- policy: explain a policy decision
- prompt: print the catalog as a model sees it
- reference: `read-properties` and `to-prompt`, as in the reference library
- run: `run` and `chat`, which share their options
- runs: list, check, repeat and remove recorded runs
- runs_show: show, compare and export runs
- schema: print JSON Schemas
- search: find skills
- sessions: list, show and delete sessions
- tokens: count tokens
- trust: trust a folder or an address
- uninstall: remove an installed skill, or return to the version before
- validate: check skills
- verify: compare installed skills with the lock, and packs with their manifest
- workspaces: list and clean workspaces; build the container image
"""
