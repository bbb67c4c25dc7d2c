"""Bubblewrap, Landlock and seccomp around a program, believed only after a real self-test.

- bwrap: A box is a value; what bubblewrap is told about it follows from that value alone
- landlock: the box for machines without user namespaces
- mounts: what a program sees in its box
- path_view: where a path leads inside a box, found out on the host before the box is made
- selftest: A box is believed after it was tried
- selftest_probe: run inside a box by `selftest`, as a program of its own
"""
