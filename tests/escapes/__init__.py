"""The escape suite: a hostile skill tries every way out of its workspace, and the host watches whether it got anywhere.

`inside/` is that skill's scripts, `scene` what it is after and the traps around it, `tiers` the ways to run it, `drive`
one tier's whole story in a process of its own, `cases` what is expected, and `table` the same for people to read.
"""
