"""How a script of a skill is started, and what it needs."""
