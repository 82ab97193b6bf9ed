"""A fork server: keeps one child waiting, which takes a request and becomes what it asks for; then forks the next.

The server itself reads no request, so that no later child finds anything of an earlier one's in its memory. It is
started with two descriptors: a bound socket, on which it listens once it is ready, and a pipe, whose other end its
owner holds as long as it wants the server.
"""

import gc
import os
import select
import signal
import socket
import sys
from pathlib import Path

from app.host.process_options import PR_SET_PDEATHSIG, die_with_parent, prctl
from workers.fork_server.requests import ForkRequest, receive

# Children of one server share its hash seed and address layout: its owner starts another after so many.
MOST_CHILDREN = 500
# So many children in a row that ended before they took a request: the machine has no memory left.
MOST_FAILURES = 3
# Of pyarrow's memory allocator: it returns memory in the background, which children do without.
SPARED_THREADS = frozenset({"jemalloc_bg_thd"})
BACKLOG = 64
_TAKEN = b"t"


def serve(bound: int, lifeline: int, program: int) -> ForkRequest | None:
    """Fork until the owner is gone. Returns in a child, with its request; and None at the end of the server.

    Exits with 1 when its children end before they have got a request.

    The child has to confirm its request.
    """
    os.close(program)
    _require_one_thread()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    gc.collect()
    gc.freeze()  # what a child never touches, it never copies
    listener = socket.socket(fileno=bound)
    listener.listen(BACKLOG)
    server, children, failures = os.getpid(), 0, 0
    while children < MOST_CHILDREN and failures < MOST_FAILURES:
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            os.close(lifeline)
            return _wait_for_request(server, listener, writer)
        os.close(writer)
        ready, _, _ = select.select([reader, lifeline], [], [])
        if lifeline in ready:
            break
        failures = 0 if os.read(reader, 1) == _TAKEN else failures + 1
        children += 1
        os.close(reader)
    listener.close()
    if failures >= MOST_FAILURES:
        sys.exit("the processes that waited for a request have ended: is there no memory left?")
    return None


def _wait_for_request(server: int, listener: socket.socket, taken: int) -> ForkRequest:
    die_with_parent(server)
    connection, _ = listener.accept()
    prctl(PR_SET_PDEATHSIG, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.write(taken, _TAKEN)
    os.close(taken)
    listener.close()
    request = receive(connection)
    if request is None:
        os._exit(0)
    return request


def _require_one_thread() -> None:
    """A fork has the calling thread alone: locks that others hold would stay locked in it."""
    tasks = Path("/proc/self/task")
    others = {(task / "comm").read_text().strip() for task in tasks.iterdir() if task.name != str(os.getpid())}
    if threads := others - SPARED_THREADS:
        sys.exit(f"imports have started threads, which no child would have: {', '.join(sorted(threads))}")
