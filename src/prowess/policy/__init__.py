"""Decides whether a call may run. Pure decisions over values; asking a person happens elsewhere.

- allowed_tools: reads a skill's `allowed-tools` list and matches calls against it
- approvals: approvals that a person gave permanently, per skill content
- call_arguments: table of the arguments of each tool; finds rules that can never match
- call_patterns: parses patterns of calls, such as `skill_run(csv-report, command=~'head')`
- decision: makes the one decision about a call, with its rule and reason
- globs: patterns for words and paths
- path_match: matches the paths of a call against a rule
- policy_objects: asks the Policy objects of a program, after the rules
- rule_samples: tries samples of calls, to find a rule that allows nothing for certain
- rule_texts: reads the parts of a policy file; refuses a wrong part with file and line
- rules: parses `.agent/policy.toml` and matches its rules
- safe_regex: compiles regular expressions from config files, if they cannot run forever
- secrets: redacts secrets from output; builds the environment of a run
- trust: folders, config files and URLs that a person trusts
- url_match: matches the URL of a request against a rule
- worktrees: finds the repository of a linked git worktree
"""
