"""Where ranks hang: the stacks that they write on request, and the kernel's state of their threads."""

import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from app.host.processes import PROC, descendants, kill, state_of
from workers.run_dir.layout import RunDirectory

# A rank that can answer does so within milliseconds; on a machine that swaps it takes longer.
ANSWER_SECONDS = 2.0
SETTLED_SECONDS = 0.2
POLL_SECONDS = 0.05
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_STACK_BYTES = 256 << 10
MAX_THREADS = 200
MAX_PROCESSES = 200


def dump(
    run: RunDirectory, root_pid: int, ranks: Mapping[int, int], writing: Collection[int], ask: Callable[[], None]
) -> str:
    """The stacks of every rank and every process below ``root_pid``, as text; takes up to 4 s.

    ``ranks``: rank -> pid; ``writing``: ranks that write their stacks on request; ``ask`` sends that request. The
    others get SIGUSR2. A stopped rank is continued for that: the caller is about to kill it.
    """
    kernel = {pid: _of_process(pid) for pid in [*ranks.values(), *descendants(root_pid)][:MAX_PROCESSES]}
    asked = {rank: pid for rank, pid in ranks.items() if rank in writing}
    before = {rank: _size(run, rank) for rank in asked}
    kill([pid for pid in asked.values() if state_of(pid) == "T"], signal.SIGCONT)
    ask()
    if silent := _wait_for_answers(run, before):
        kill([asked[rank] for rank in silent], signal.SIGUSR2)
        _wait_for_answers(run, before)
    parts = []
    for rank, pid in sorted(ranks.items()):
        parts.append(f"==== rank {rank}\n{kernel.pop(pid)}\n\n{_reported_stacks(run, rank, before)}")
    parts += [f"==== another process of the attempt\n{text}" for text in kernel.values()]
    return "\n\n".join(parts) + "\n"


def _reported_stacks(run: RunDirectory, rank: int, before: Mapping[int, int]) -> str:
    if rank not in before:
        return "It does not write its stacks: it has not called trainyard.hooks.init(), or handles SIGUSR2 itself."
    text = _read(run, rank, before[rank])
    return text or f"It did not write its stacks within {2 * ANSWER_SECONDS:g} s."


def _wait_for_answers(run: RunDirectory, before: Mapping[int, int]) -> list[int]:
    """Wait until every file has grown and is stable, or the time is up; returns the ranks whose files have not."""
    deadline = time.monotonic() + ANSWER_SECONDS
    sizes: dict[int, int] = {}
    settled_at = time.monotonic() + SETTLED_SECONDS
    while time.monotonic() < deadline:
        now = {rank: _size(run, rank) for rank in before}
        if now != sizes or any(now[rank] == before[rank] for rank in before):
            sizes, settled_at = now, time.monotonic() + SETTLED_SECONDS
        elif time.monotonic() > settled_at:
            break
        time.sleep(POLL_SECONDS)
    return [rank for rank in before if sizes.get(rank, before[rank]) == before[rank]]


def _of_process(pid: int) -> str:
    command = _text(pid, "cmdline").replace("\0", " ").strip()
    lines = [f"process {pid}: {command[:500]}", f"state {_status(pid, 'State')}, parent {_status(pid, 'PPid')}"]
    lines += [_of_thread(pid, thread) for thread in _threads(pid)[:MAX_THREADS]]
    return "\n".join(lines)


def _of_thread(pid: int, thread: str) -> str:
    folder = f"task/{thread}"
    name, waits_in = _text(pid, f"{folder}/comm").strip(), _text(pid, f"{folder}/wchan").strip()
    text = f"  thread {thread} {name}: {_status(pid, 'State', folder)}"
    if waits_in not in ("", "0"):
        text += f", in {waits_in}"
    kernel_stack = _text(pid, f"{folder}/stack")  # empty unless we are root
    return "\n".join([text, *(f"    {line}" for line in kernel_stack.splitlines())])


def _threads(pid: int) -> list[str]:
    try:
        return sorted(os.listdir(PROC / str(pid) / "task"), key=int)  # noqa: PTH208
    except OSError:
        return []


def _status(pid: int, field: str, folder: str = "") -> str:
    for line in _text(pid, f"{folder}/status" if folder else "status").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return value.strip()
    return "gone"


def _text(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_bytes().decode("utf-8", "replace")
    except OSError:  # it ended, or we may not read it
        return ""


def _size(run: RunDirectory, rank: int) -> int:
    with _opened(run, rank) as descriptor:
        return os.fstat(descriptor).st_size if descriptor is not None else 0


def _read(run: RunDirectory, rank: int, start: int) -> str:
    with _opened(run, rank) as descriptor:
        text = os.pread(descriptor, MAX_STACK_BYTES, start) if descriptor is not None else b""
    return text.decode("utf-8", "replace").strip()


@contextlib.contextmanager
def _opened(run: RunDirectory, rank: int) -> Iterator[int | None]:
    """The rank's file, if regular: ranks own the directory, and a link in it may point anywhere."""
    with contextlib.ExitStack() as stack:
        file: int | None = None
        with contextlib.suppress(OSError):
            folder = os.open(run.stacks, READ | os.O_DIRECTORY)
            stack.callback(os.close, folder)
            opened = os.open(f"rank-{rank}.txt", READ, dir_fd=folder)
            stack.callback(os.close, opened)
            file = opened if stat.S_ISREG(os.fstat(opened).st_mode) else None
        yield file
