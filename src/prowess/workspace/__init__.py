"""Workspaces run scripts: every process that starts here ends here, and isolation is tested before it is reported.

- artifacts: loads artifacts as inputs of a run, and saves output files as artifacts
- cleanup: lists and removes files of ended sessions
- dirfd: opens and walks files below a folder without following links
- export: writes files from a workspace to a folder of the user
- inputs: copies inputs into the workspace before a run
- job: runs one skill_run: stage, inputs, run, collect, save
- layout: the folders of a workspace, as host paths and as paths the script sees
- limits: the limits of one run, and the disk watcher
- output_capture: keeps the start and end of stdout and stderr in memory, and the whole in a file
- outputs: collects the files that a run wrote
- run_as: finds the user that scripts run as
- run_file: a file that a run made, to read and to save
- session_folder: the folder of one session's workspace on disk, its metadata and its locks
- session_names: names of these folders, which nobody can compute
- skill_trees: publishes skills as read-only trees named by digest, and removes trees
- skill_trees_in_use: records which stores use a published skill, and lists and removes published skills
- system_programs: finds programs that only root can change
"""
