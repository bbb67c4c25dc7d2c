"""Evals: does the right skill fire, does it help, did it get worse.

- case: shapes of a case and of a suite. results: shapes of a task and of the record of a run
- suite: finds case files and reads them into a suite. case_files, foreign_cases: read one file, native or not
- starter: writes the first cases of a skill. distractors: made-up skills that a model should not choose
- runner: runs a whole suite. arms: with the skill, without it, with an older version. engines: where tasks run
- run_task: runs one case once. task_runtime: opens its runtime, with the skills of its arm
- checks: checks the form of a case, and the trajectory of its runs. judge: lets a model judge statements
- store: keeps eval runs on disk. document: document of a run, for scripts, reports and baselines
- scores: rates, lift and costs of a run. gate: comparison with a baseline: better, worse, inconclusive or same
- reports: JSON, JUnit, Markdown and HTML files. batch: answers many requests, from a file into a file
"""
