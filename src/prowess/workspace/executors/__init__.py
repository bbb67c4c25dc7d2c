"""The executors of this machine.

- auto: the sandbox where there is one; otherwise, and never without a word, no isolation at all
- isolation_report: what holds on this machine is found out by trying, once, and is what an executor then promises,
  limit by limit
- local: scripts as plain processes of this machine
- mirrored_folder: two folders with the same files, where nothing can be mounted
- none: an executor that runs nothing, and says so
- preconditions: what comes before every program, whichever executor starts it
- private_copies: A session's own copy of a skill, for executors that cannot bind
- sandbox: scripts in a box
- workspace: an opened workspace
"""
