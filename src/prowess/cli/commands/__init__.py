"""Commands of the command line: one module per command, and one for each large action of a command.

- approvals: list, answer, grant and revoke approvals
- artifacts: list, read, save and remove artifacts
- chat: a chat and its slash commands
- config: show the configuration
- doctor: report on roots, findings, installation and isolation
- exec: run one command of a skill
- init: make a folder a project
- inspect: show one skill
- list: list the skills
- list_json: fast path of `list --json`, without the parser
- load: print what a model gets when it loads a skill
- new: write a new skill
- policy: explain a policy decision
- prompt: print the catalog as a model sees it
- reference: `read-properties` and `to-prompt`, as in the reference library
- run: run one request
- runs: list, check, repeat and remove recorded runs
- runs_show: show, compare and export runs
- schema: print JSON Schemas
- search: find skills
- sessions: list, show and delete sessions
- tokens: count tokens
- trust: trust a folder or an address
- validate: check skills
- workspaces: list and clean workspaces; build the container image
"""
