"""The hostile jobs of `benchmarks/hostile.py`: each takes what it gets, as a script of a user would.

    hostile_script.py ATTACK MARKER

Every attack is bounded by itself, in number and in time: it takes no machine down on which nothing holds it. The marker
is part of every file name and command line that it chooses.
"""

import gc
import json
import mmap
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIFE_SECONDS = 60  # of any process that is left alone
FORKS_EACH = 10  # 2 ** 10 processes, and for a moment twice as many
FLOOD_SECONDS = 10.0
CHUNK = 16 << 20
FILLED_BYTES = HOGGED_BYTES = 3 << 30
SHARED_BYTES = 1 << 30  # of these, in /dev/shm
SPARSE_BYTES = 20 << 30
FILES = 100_000
WAIT_SECONDS = 20.0  # for the platform to notice
DAEMON = """
import signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
signal.alarm(int(sys.argv[2]))
while True:
    open("/tmp/" + sys.argv[1] + "-daemon", "a").write("still here\\n")
    time.sleep(0.1)
"""


def main(attack: str, marker: str) -> None:
    signal.alarm(LIFE_SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (2 * HOGGED_BYTES, 2 * HOGGED_BYTES))
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        Path(place, f"{marker}-{attack}").touch()
    ATTACKS[attack](marker)


def fork_bomb(_marker: str) -> None:
    """Their number doubles until it is enough, or refused; then all compute, and fork now and then."""
    gc.disable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies, which would count, too
    began, root, refused = time.monotonic(), os.getpid(), mmap.mmap(-1, 1)
    for _ in range(FORKS_EACH):
        if forks(refused):
            signal.alarm(LIFE_SECONDS // 2)  # not inherited
    time.sleep(max(0.0, began + FLOOD_SECONDS / 2 - time.monotonic()))
    while os.getpid() != root:
        if forks(refused):
            os._exit(0)
        sum(range(1_000_000))
    time.sleep(FLOOD_SECONDS)
    say(f"forks refused: {bool(refused[0])}")


def forks(refused: mmap.mmap) -> bool:
    """Whether this is the new process; ``refused`` remembers that there was none."""
    try:
        return os.fork() == 0
    except OSError:
        refused[0] = 1
        return False


def memory_hog(marker: str) -> None:
    held = [b"x" * CHUNK for _ in range((HOGGED_BYTES - SHARED_BYTES) // CHUNK)]
    try:
        with Path("/dev/shm", f"{marker}-hog").open("wb") as shared:
            shared.writelines(held[0] for _ in range(SHARED_BYTES // CHUNK))
    except OSError as error:
        say(f"refused shared memory: {error}")
    time.sleep(FLOOD_SECONDS / 2)
    say(f"held {len(held) * CHUNK >> 20} MB and a file of memory")


def disk_filler(marker: str) -> None:
    """Into both places that a job may write to, and onto the disk itself."""
    for place in (Path(f"{marker}-fill"), Path("/tmp", f"{marker}-fill")):
        with place.open("wb") as file:
            for _ in range(FILLED_BYTES // 2 // CHUNK):
                file.write(os.urandom(1 << 16) * (CHUNK >> 16))
            os.fsync(file.fileno())
    time.sleep(WAIT_SECONDS)
    say(f"wrote {FILLED_BYTES >> 20} MB")


def port_scanner(_: str) -> None:
    """Every port of loopback, those of other jobs and of the platform's servers among them."""
    found = []
    for port in range(1, 65536):
        with socket.socket() as probe:
            probe.settimeout(0.2)
            connected = not probe.connect_ex(("127.0.0.1", port))
            if connected and probe.getsockname() != probe.getpeername():  # not by chance its own port
                found.append(port)
    say(f"open ports: {found}")


def log_flood(_: str) -> None:
    until = time.monotonic() + FLOOD_SECONDS
    lines = ("x" * 99 + "\n") * 1000
    while time.monotonic() < until:
        sys.stdout.write(lines)
    say("flooded")


def many_files(_: str) -> None:
    output = Path(os.environ["TRAINYARD_RUN_DIR"], "output")
    for number in range(FILES):
        (output / str(number)).touch()
    say(f"made {FILES} files")


def sparse_file(_: str) -> None:
    with Path(os.environ["TRAINYARD_RUN_DIR"], "output", "sparse").open("wb") as file:
        file.truncate(SPARSE_BYTES)
    say(f"made a file of {SPARSE_BYTES >> 30} GB")


def daemon(marker: str) -> None:
    """Ignores the request to end, and leaves a process without parent, session and environment that does so, too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.execve(sys.executable, [sys.executable, "-c", DAEMON, marker, str(LIFE_SECONDS)], {})
        os._exit(0)
    say("daemon started")
    while True:
        time.sleep(1)


def metric_flood(_: str) -> None:
    """Past the hooks, which are kinder: names without end, points without end, phases back and forth."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(f"/proc/self/fd/{os.open(os.environ['TRAINYARD_RUN_DIR'], os.O_RDONLY)}/channel")

    def report(**message: object) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    report(type="hello", rank=0, can_checkpoint=True)
    until, step = time.monotonic() + FLOOD_SECONDS, 0
    while time.monotonic() < until:
        step += 1
        report(type="metric", step=step, values={f"name-{step * 20 + n}": n for n in range(20)})
        report(type="metric", step=step, values={f"kept-{n}": n for n in range(20)})
        report(type="progress", step=step, total_steps=step * 2)
        report(type="phase", phase=("TRAINING", "CHECKPOINTING")[step % 2])
        report(type="note", reason="FLOOD", message="x" * 1000, data={})
    report(type="result", stopped=None, step=step)
    say(f"sent {step} rounds")


def say(text: str) -> None:
    print(f"\nattack: {text}", flush=True)


ATTACKS: dict[str, Callable[[str], None]] = {
    "fork-bomb": fork_bomb,
    "memory-hog": memory_hog,
    "disk-filler": disk_filler,
    "port-scanner": port_scanner,
    "log-flood": log_flood,
    "many-files": many_files,
    "sparse-file": sparse_file,
    "daemon": daemon,
    "metric-flood": metric_flood,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
