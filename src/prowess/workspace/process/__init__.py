"""Starting a program, reading it in constant memory, and ending all of it.

- cgroup: A group of the kernel's for each run, in which all of its processes together have so much memory and no more
- child: A freshly forked process becomes the command, with exactly what it was given, or says at which step it could
  not
- client: commands are run by a supervisor process, and when `run` returns or is cancelled, nothing that they started
  is left
- command: what is to be run, as one frozen value, and what came of it, as another
- interactive: A command that goes on while nobody looks
- posix_client: commands on systems without the kernel parts that the supervisor needs, such as macOS
- posix_watcher: watches over one command on systems that have no supervisor
- process_tree: every process below this one is found and ended, however it left its group, its session or its parent
- seccomp: what the Linux kernel is told before a command starts
- streams: the ends of a command's streams that are ours
- supervisor: one small process that starts every command and outlives none of them
"""
