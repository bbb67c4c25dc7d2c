"""Evals: does the right skill fire, does it help, did it get worse.

- case: shapes of a case and of a suite, as a file has them
- case_files: reads one case file, with the line of every fault
- distractors: made-up skills that a model should not choose
- foreign_cases: reads the cases of other systems as they are
- starter: writes the first cases of a skill
- suite: finds the case files of paths and reads them into a suite
- document: document of a run, for scripts, reports and baselines
- gate: comparison with a baseline: better, worse, inconclusive or same
- reports: JSON, JUnit, Markdown and HTML files
- results: shapes of a run's record and of a report
- checks: checks the form of a case, and the trajectory of its runs
- judge: lets a model judge statements that no other check can decide
- run_task: runs one case once
- task_runtime: opens the runtime of a task, with the skills of its arm
- arms: with the skill, without it, with an older version of it
- runner: runs a whole suite
- engines: where tasks run, within the cost cap
- store: keeps eval runs on disk
- scores: rates, lift and costs of a run's records
- batch: answers many requests, from a file into a file
"""
