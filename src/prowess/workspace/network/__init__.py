"""Gives a run network access to the listed hosts only, through a proxy that listens inside its sandbox.

- connection: serves one connection of a program, from its request to the last byte
- host_rules: rules for allowed hosts, checked by name and then by address
- http: parses proxy requests strictly and renders the proxy's own answers
- listener: program that opens the listener inside the sandbox and then starts the command
- proxy: the proxy of a run; the only network access of a sandbox
"""
