"""Types of the JSON documents that commands print under `--json`. `tools/make_schemas.py` derives their schemas.

The name of a document is the only value of its field `schema`. A field that a document may lack is `NotRequired`. Types
are needed to check code and to make schemas, so commands import them for type checking only.

- packs: installing, checking and packing skills
- permissions: trust, approvals and policy
- runs: runs, sessions and evals
- shared: parts that several documents have
- skills: finding, checking, showing and loading skills
- work: scripts, workspaces and artifacts
"""
