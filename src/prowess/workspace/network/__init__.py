"""The listed hosts, through a proxy whose listener is inside the box.

- connection: one connection of a program, from its request to the last byte
- host_rules: which host a run may reach is decided by name first and by address afterwards, and both have to agree
- http: what a program asks a proxy for, read strictly, and what it is told
- listener: run inside a box by `proxy`, before the program
- proxy: the one way out of a box without a network
"""
