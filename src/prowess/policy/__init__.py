"""Whether a call may happen. Pure decisions over values; the surfaces ask the questions.

- allowed_tools: what a skill's `allowed-tools` means
- approvals: what a person has approved for good
- call_arguments: what a call of each of our tools can say, in the form in which it is judged
- decision: every call gets one decision, which names the rule that made it and says why
- globs: patterns in policy
- path_match: A rule about paths is also about what a call comes to below its path
- rules: `.agent/policy.toml` as values
- safe_regex: A regular expression from a config file, compiled only if no text can make it run for ever
- secrets: what is shown, sent or recorded never holds a secret's value, however it arrives in pieces
- trust: trust is given by a person, to a folder and what is below it, to a config file by content, and to a URL by
  digest
- url_match: A rule about a URL is about the address that it leads to, in whatever way it is written
"""
