"""GUARD_S ends what hangs: far more seconds than a busy machine needs, and never a measure of how fast something is."""

GUARD_S = 300
