"""Which commands a rule or a list is about.

- check: lists of commands (`workspace.commands_allow`, `commands_deny`)
- env_names: environment variables that change which programs start, or what a program does before its first line
- parse: A command as a shell would read it, when a shell would do nothing with it but pass it on
- rules: rules about commands
- words: the words of a shell line at any depth of quoting, and why nobody can say which programs it starts
"""
