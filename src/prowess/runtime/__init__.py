"""Composition root: reads the configuration and puts the parts together for every surface.

- api: the public functions `run`, `run_sync` and `stream`, and `SkillKit`
- check: validates skills and returns a report per skill
- config: merges defaults, files, environment and flags into one configuration
- config_file: reads and checks one config file
- documents: types of the JSON documents that commands print
- factories: makes models, executors, kits and sessions from the configuration
- policy_files: reads policy files and turns settings into values for `policy`
- python_words: errors that leave a public function name keywords, not options of the command line
- runtime: `Runtime`, which holds configuration, trust and skills of one call
- storage: finds and opens the places of records, runs and workspaces
- settings: every setting with its type, default and meaning
"""
