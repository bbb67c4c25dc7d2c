"""Sandboxes around a program: bubblewrap or Landlock, with seccomp, used only after a self-test.

- bwrap: builds the bubblewrap command of a sandbox
- landlock: builds the Landlock command, for machines without user namespaces
- mounts: the files that a program sees in its sandbox
- path_view: resolves paths as the sandbox will see them, before it exists
- selftest: tests a sandbox on this machine and caches a good result
- selftest_probe: the program that `selftest` runs inside the sandbox
"""
