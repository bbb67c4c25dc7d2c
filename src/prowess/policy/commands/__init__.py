"""Matches commands against policy rules and command lists.

- check: matches a program against `workspace.commands_allow` and `commands_deny`
- env_names: environment variables that change which programs start
- parse: splits one simple command into its words, like a shell
- rules: matches commands against policy rules
- scan: splits a shell line into its simple commands
- words: reads all words of a shell line at any depth; says when its programs are unknown
"""
