"""Composition root: reads the configuration and puts the parts together for every surface.

- api: the public functions `run`, `run_sync` and `stream`
- arguments: turns arguments of the public functions into the parts that the runtime takes
- callers: runs tools, approvers and observers of a kit where its caller is
- check: validates skills and returns a report per skill
- config: merges defaults, files, environment and flags into one configuration
- config_file: reads and checks one config file
- documents: types of the JSON documents that commands print
- factories: makes models, executors, kits and sessions from the configuration
- kept_models: keeps the model of an agent from one run to the next
- kit_home: library, policy and loop that the sessions of a kit share
- kit_session: `KitSession`, one conversation of another framework's agent
- loop_thread: event loop in a thread, for callers in other threads and loops
- policy_files: reads policy files and turns settings into values for `policy`
- runtime: `Runtime`, which holds configuration, trust and skills of one call
- skill_kit: `SkillKit`, skills for another framework's agent
- storage: finds and opens the places of records, runs and workspaces
- settings: every setting with its type, default and meaning
"""
