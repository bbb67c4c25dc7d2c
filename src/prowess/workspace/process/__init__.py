"""Starts programs, reads their output in constant memory, and ends every process they started.

- cgroup: memory limit for all processes of a run together, with a control group of the kernel
- child: turns a forked process into the command, or reports the step that failed
- client: runs commands through the supervisor; no process is left when `run` returns or is cancelled
- command: a command to run, its limits, and its result
- interactive: a command that stays open for reading and writing
- posix_client: runs commands on systems other than Linux, such as macOS
- posix_watcher: process that watches one command on those systems
- process_tree: finds and ends every process below the calling one
- seccomp: system call filter, Landlock rules and resource limits for a command
- streams: our ends of a command's pipes
- supervisor: process that starts every command and ends them all when the runtime ends
"""
