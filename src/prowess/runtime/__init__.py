"""Composition root: reads the configuration and puts the parts together for every surface.

- agent: `Agent` and its sessions
- api: the public functions `run`, `run_sync` and `stream`
- arguments: turns arguments of the public functions into parts, and names the keyword that is wrong
- callers: runs tools, approvers and observers of a kit where its caller is
- check: validates skills and returns a report per skill
- config: merges defaults, files, environment and flags into one configuration
- config_file: reads and checks one config file
- default_places: where skills are looked for when nobody says where
- documents: types of the JSON documents that commands print
- factories: makes executors, kits and sessions from the configuration
- given_objects: policies, an executor and stores that a program gives as objects
- kit_home: library, policy and loop that the sessions of a kit share
- kit_preview: shows what a model would be shown
- kit_session: `KitSession`, one conversation of another framework's agent
- library: places of skills, `discover`, and libraries that can be read again
- loop_thread: an event loop in a thread of its own
- output_type: makes the form of an answer from a Python type
- own_executor: makes an executor of ours for a program that wraps it
- policy_files: reads policy files and turns settings into values for `policy`
- project_state: folder of a project's state, and projects that were moved or replaced
- recorded_output: the form of the answer of a recorded run
- runtime: `Runtime`, which holds configuration, trust and skills of one call
- session_models: makes and keeps the models of sessions
- skill_kit: `SkillKit`
- storage: finds and opens the places of records, runs and workspaces
- settings: every setting with its type, default and meaning
- take_over: moves the record of an earlier release from the project to the state folder
"""
