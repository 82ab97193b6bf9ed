"""The first process inside the sandbox: starts the ranks of this node, watches them, and ends when they have ended.

It speaks JSON lines with the supervisor's launcher over an inherited socket (``--control-fd``), which user code never
gets: ``start {environment}`` and ``stop {grace_seconds}`` downward, ``rank_exit {rank, exit_code, signal}`` upward.
When that socket closes the supervisor is dead, and so is everything here. Standard library and ``trainyard`` only.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainyard._channel import LineDecoder, Message, encode
from workers import gang
from workers.processes import adopt_orphans, descendants, die_with_parent, kill

# The others get this long to notice that a rank failed; with the SIGKILL after it they are gone within 5 s.
TEARDOWN_SECONDS = 3.0
EXIT_STOPPED = 143
OOM_SCORE = 500  # half of what the machine has, as if a rank had it in addition
# Below the kernel's range for outgoing connections, so that none of those sits on the port when rank 0 binds it.
PORTS = (20000, 32000)
LOOPBACK = "127.0.0.1"
KEPT_BYTES = str(1 << 30)


def main() -> int:
    """Run the ranks that the spec describes; 0 only if each of them exited with 0."""
    arguments = _arguments()
    spec = json.loads(Path(arguments.spec).read_text())
    log_fds = [int(fd) for fd in arguments.log_fds.split(",")]
    control = socket.socket(fileno=arguments.control_fd)
    if arguments.die_with:
        die_with_parent(arguments.die_with)
    adopt_orphans()
    _leave_no_core_dumps()
    agent = RankAgent(spec, Path(arguments.spec), log_fds, control)
    try:
        return agent.run()
    finally:
        kill(descendants(os.getpid()))


class RankAgent:
    """The ranks of one attempt on this node."""

    def __init__(self, spec: Mapping[str, Any], spec_path: Path, log_fds: list[int], control: socket.socket) -> None:
        self._spec = spec
        self._spec_path = spec_path
        self._log_fds = log_fds
        self._control = control
        self._decoder = LineDecoder()
        self._ranks: dict[int, int] = {}  # pid → rank, the living ones
        self._exit_code = 0
        self._kill_at: float | None = None

    def run(self) -> int:
        """Wait for the start message, then for the end of all ranks or a stop message."""
        with _wakeup_on_signals() as wakeup, selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(wakeup, selectors.EVENT_READ)
            self._start_ranks(self._environment_from_supervisor())
            while self._ranks:
                for key, _ in selector.select(self._seconds_until_kill()):
                    self._take_signals(wakeup) if key.fileobj is wakeup else self._take_commands()
                self._collect_exits()
                if self._seconds_until_kill() == 0:
                    kill(descendants(os.getpid()))
        return self._exit_code

    def _environment_from_supervisor(self) -> dict[str, str]:
        """The job's own variables: sent here, because this process must not run under them."""
        while True:
            data = self._control.recv(65536)
            if not data:
                raise SystemExit("the supervisor died before the ranks were started")
            for message in self._decoder.feed(data):
                if message["type"] == "start":
                    return dict(message["environment"])
                raise SystemExit(EXIT_STOPPED)

    def _start_ranks(self, job_environment: Mapping[str, str]) -> None:
        place = gang.meeting_point(self._spec) or (LOOPBACK, free_port())
        for local_rank in range(gang.local_ranks(self._spec)):
            environment = rank_environment(self._spec, self._spec_path, local_rank, place, job_environment)
            pid = self._spawn(local_rank, environment)
            self._ranks[pid] = gang.first_rank(self._spec) + local_rank
        for fd in self._log_fds:
            os.close(fd)

    def _spawn(self, local_rank: int, environment: Mapping[str, str]) -> int:
        parent = os.getpid()
        log = self._log_fds[local_rank]
        process = subprocess.Popen(
            rank_command(self._spec, self._spec_path),
            env=environment,
            cwd=Path(self._spec["run_dir"]) / "work",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # This process has one thread: nothing can deadlock between fork and exec.
            preexec_fn=lambda: _as_rank(parent),  # noqa: PLW1509
        )
        process.returncode = 0  # collected by waitpid(-1) below, together with orphans
        return process.pid

    def _take_commands(self) -> None:
        data = self._control.recv(65536)
        if not data:
            kill(descendants(os.getpid()))
            raise SystemExit("the supervisor is gone")
        for message in self._decoder.feed(data):
            if message["type"] == "stop":
                self._stop(float(message["grace_seconds"]), EXIT_STOPPED)

    def _take_signals(self, wakeup: socket.socket) -> None:
        if signal.SIGTERM in wakeup.recv(4096):
            self._stop(TEARDOWN_SECONDS, EXIT_STOPPED)

    def _stop(self, grace_seconds: float, exit_code: int) -> None:
        self._exit_code = self._exit_code or exit_code
        due = time.monotonic() + grace_seconds
        self._kill_at = due if self._kill_at is None else min(due, self._kill_at)
        kill(self._ranks, signal.SIGTERM)

    def _seconds_until_kill(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _collect_exits(self) -> None:
        while self._ranks:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            rank = self._ranks.pop(pid, None)
            if rank is not None:
                self._rank_ended(rank, status)

    def _rank_ended(self, rank: int, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        killed_by = signal_name(-code) if code < 0 else None
        self._send(
            {
                "type": "rank_exit",
                "rank": rank,
                "exit_code": 128 - code if code < 0 else code,
                "signal": killed_by,
                "at": time.monotonic(),
            }
        )
        if code != 0 and self._kill_at is None:
            self._stop(TEARDOWN_SECONDS, code if code > 0 else 128 - code)

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):  # its end is noticed where commands are read
            self._control.sendall(encode(message))


def rank_command(spec: Mapping[str, Any], spec_path: Path) -> list[str]:
    """What a rank executes: the user's script, or our trainer."""
    if spec["framework"] == "CUSTOM":
        return [sys.executable, spec["script"]]
    return [sys.executable, "-m", "workers.trainers.main", "--spec", str(spec_path)]


def rank_environment(
    spec: Mapping[str, Any],
    spec_path: Path,
    local_rank: int,
    place: tuple[str, int],
    job_environment: Mapping[str, str],
) -> dict[str, str]:
    """The environment of one rank, as torchrun makes it; the job's variables lose against those that we depend on.

    ``place`` is where rank 0 listens.
    """
    environment = {
        **gang.network_settings(spec),
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # OpenMP's threads wait for each other by spinning. Where several jobs share the cores, that takes the time of
        # those who are waited for: 4 to 10 times slower steps on 2 cores. After this many rounds they sleep instead.
        "GOMP_SPINCOUNT": "1000",
        **_memory_settings(spec),
        **job_environment,
        **_place_among_all(spec, local_rank),
        "MASTER_ADDR": place[0],
        "MASTER_PORT": str(place[1]),
        "OMP_NUM_THREADS": str(spec["threads_per_rank"]),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as NVML counts, whose indices we were given
        "CUDA_VISIBLE_DEVICES": _visible_devices(spec),
        **_attempt_of(spec, spec_path),
    }
    # The script imports its siblings, even one called config.py; our trainers must not.
    environment.pop("PYTHONSAFEPATH", None)
    if spec["framework"] != "CUSTOM":
        environment["PYTHONSAFEPATH"] = "1"
    ours = os.environ.get("PYTHONPATH", "")
    theirs = job_environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = ":".join(part for part in (theirs, ours) if part)
    return environment


def _attempt_of(spec: Mapping[str, Any], spec_path: Path) -> dict[str, str]:
    """What the hooks, and whoever looks for processes of the attempt, go by."""
    return {
        "TRAINYARD_GPU_MEMORY_FRACTION": str(spec.get("gpu_memory_fraction", 1.0)),
        "TRAINYARD_JOB_ID": spec["job_id"],
        "TRAINYARD_ATTEMPT": str(spec["attempt"]),
        **({"TRAINYARD_NODE": spec["node"]} if spec.get("node") else {}),
        "TRAINYARD_RUN_DIR": spec["run_dir"],
        "TRAINYARD_OUTPUT_DIR": str(Path(spec["run_dir"]) / "output"),
        "TRAINYARD_SPEC": str(spec_path),
        "TRAINYARD_CHANNEL": spec["channel"],
    }


def _place_among_all(spec: Mapping[str, Any], local_rank: int) -> dict[str, str]:
    numbers = {
        "RANK": gang.first_rank(spec) + local_rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": spec["world_size"],
        "LOCAL_WORLD_SIZE": gang.local_ranks(spec),
        "NODE_RANK": gang.node_rank(spec),
        "NNODES": gang.nodes(spec),
    }
    return {name: str(number) for name, number in numbers.items()}


def signal_name(number: int) -> str:
    """SIGKILL for 9; real-time signals have no names of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def free_port() -> int:
    """A TCP port nobody uses right now."""
    while True:
        port = random.randrange(*PORTS)  # noqa: S311 – spreads jobs, hides nothing
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def _memory_settings(spec: Mapping[str, Any]) -> dict[str, str]:
    """On the CPU, what a step frees stays with the process for the next step: faulting it in anew is 5 to 8 % of one.

    Not beside a GPU, where a model passes through this memory once. What glibc understands; others ignore it.
    """
    if spec["device_type"] == "cuda" or spec["framework"] == "CUSTOM":
        return {}
    return {"MALLOC_TRIM_THRESHOLD_": KEPT_BYTES, "MALLOC_MMAP_THRESHOLD_": KEPT_BYTES}


def _visible_devices(spec: Mapping[str, Any]) -> str:
    """The job's GPUs; each rank picks its own by LOCAL_RANK. Empty on the CPU, where none may be found.

    By UUID where it is known: CUDA counts anew where it can open only some GPUs, as in our sandbox.
    """
    gpus = spec.get("device_uuids") or spec["device_indices"]
    return ",".join(map(str, gpus)) if spec["device_type"] == "cuda" else ""


def _as_rank(parent: int) -> None:
    """Between fork and exec: ends with the agent, and before everything of the platform when memory runs out."""
    die_with_parent(parent)
    with contextlib.suppress(OSError):  # /proc may be read-only, then the kernel decides by size
        adjustment = Path("/proc/self/oom_score_adj")
        adjustment.write_text(str(min(1000, int(adjustment.read_text()) + OOM_SCORE)))


def _leave_no_core_dumps() -> None:
    """The memory of a rank that crashes holds the job's secrets; a script that wants its core raises the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


@contextlib.contextmanager
def _wakeup_on_signals() -> Iterator[socket.socket]:
    """A socket that gets a byte for each SIGCHLD and SIGTERM."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer.fileno())
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(-1)
        reader.close()
        writer.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.rank_agent", description=__doc__)
    parser.add_argument("--spec", required=True)
    parser.add_argument("--log-fds", required=True, help="write ends of the ranks' log pipes, in rank order")
    parser.add_argument("--control-fd", required=True, type=int)
    parser.add_argument(
        "--die-with", type=int, default=0, help="pid of the supervisor, where no sandbox ends us with it"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
