"""Tools that run programs.

- code_blocks: fenced code in an answer, read as calls of skill_run, for models that write code instead of calling
  tools
- packages: the packages that a run needs, found or installed for the Python that will run it
- requirements: what a skill requires is looked for where its scripts will run, before the first one does, and once
  for each content
- skill_run: skill_run
- terminals: skill_exec and the three that go with it
"""
