"""Composition root: reads the configuration and puts the parts together for every surface.

- api: the public functions `run`, `run_sync` and `stream`, and `SkillKit`
- check: validates skills and returns a report per skill
- config: merges defaults, files, environment and flags into one configuration
- config_file: reads and checks one config file
- documents: types of the JSON documents that commands print
- factories: makes models, executors, kits and sessions from the configuration
- given_objects: policies, an executor and stores that a program gives as objects
- own_executor: makes an executor of ours for a program that wraps it
- parts: checks what a program gives as policy=, executor=, store=, artifacts= and secrets=
- policy_files: reads policy files and turns settings into values for `policy`
- runtime: `Runtime`, which holds configuration, trust and skills of one call
- storage: finds and opens the places of records, runs and workspaces
- settings: every setting with its type, default and meaning
"""
