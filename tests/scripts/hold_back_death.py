"""Holds a process where a hanging driver would: SIGKILL does not end it as long as this script lives.

It traces the process (its pid is the argument) and lets it come no further than to the stop before its exit.
"""

import ctypes
import sys
import time

PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 0x4206, 0x40


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    if libc.ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, PTRACE_O_TRACEEXIT) != 0:
        raise OSError(ctypes.get_errno(), "the process can't be traced")
    sys.stdout.write("held\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    main()
