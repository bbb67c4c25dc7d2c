"""Tools that run programs.

- code_blocks: fenced code in an answer, turned into calls of skill_run
- command_line: a command, however it is written, as the line that is run
- packages: the Python packages that a run needs: finding, granting, installing them
- programs: programs that keep running between calls, and their last lines
- requirements: the check that programs, variables and Python that a skill requires are present
- run_text: the text of a result that a model gets
- skill_run: the skill_run tool, which runs a command or script of a skill
- terminals: the skill_exec tool for long-running programs, and the tools that write to, poll and end them
"""
