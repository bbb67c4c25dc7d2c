"""Runs a command on a kernel without Landlock: its three system calls answer ENOSYS, for it and all it starts.

python tools/no_landlock.py COMMAND…
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_FIRST, _LAST = 444, 446  # landlock_create_ruleset, _add_rule, _restrict_self: the same on every architecture
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER
_LOAD, _AT_LEAST, _ABOVE, _RETURN = 0x20, 0x35, 0x25, 0x06  # BPF: load a word, jump if >=, jump if >, return
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def main(command: list[str]) -> None:
    steps = [
        (_LOAD, 0, 0, 0),  # the number of the system call
        (_AT_LEAST, 0, 2, _FIRST),
        (_ABOVE, 1, 0, _LAST),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.execvp(command[0], command)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
