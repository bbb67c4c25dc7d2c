"""Where scripts run: every process that is started here is ended here, and each promise about it was tried first.

- artifacts: artifacts on their way into a run and out of it
- cleanup: what stays on disk when sessions have ended, and what of it may go
- dirfd: files below a folder, reached by descriptor
- export: files on their way out of a workspace, to where a person wants them
- inputs: inputs are copied into the workspace before a run, each from a place that may be read and to a place inside
  it
- job: one skill_run, from "run this" to "here are the files it made"
- layout: where things are in a workspace, as the host and as the script see it
- limits: how much one run may use
- output_capture: A stream of any length is kept as its first and its last bytes, in memory that does not grow with it
- outputs: what a run left behind, collected after it is dead
- run_as: the user that scripts run as
- session_folder: the place of one session's workspace on this machine
- skill_trees: A skill's tree is published once, under its digest, and never changes
- skill_trees_in_use: published skills on disk
- system_programs: programs of the system
"""
