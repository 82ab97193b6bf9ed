"""Ray Jobs and Slurm on this machine, as far as they are installed: the first line of the same script as their job.

Ray is found as `ray` in the directory that `--ray` of the benchmark names (`pip install "ray[default]"` in an
environment of its own), Slurm and MUNGE by `apt-get install slurm-wlm munge`. Each runs on loopback, in a folder of
its own.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.systems.servers import free_port

# The seconds from the acceptance of a job to its line.
FirstLine = Callable[[], float]
WAIT_SECONDS, POLL_SECONDS = 60.0, 0.05
SLURM_PROGRAMS = ("sbatch", "slurmctld", "slurmd", "munged")
SLURM_CONFIGURATION = """\
ClusterName=benchmark
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
SwitchType=switch/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


@contextlib.contextmanager
def other_schedulers(folder: Path, script: Path, ray: Path | None) -> Iterator[dict[str, FirstLine]]:
    """Name → measurement, of each that is installed here."""
    with contextlib.ExitStack() as stack:
        found = {}
        if ray is not None:
            found["ray"] = stack.enter_context(_ray(folder / "ray", script, ray))
        if os.geteuid() == 0 and all(map(shutil.which, SLURM_PROGRAMS)):
            found["slurm"] = stack.enter_context(_slurm(folder / "slurm", script))
        yield found


@contextlib.contextmanager
def _ray(folder: Path, script: Path, programs: Path) -> Iterator[FirstLine]:
    folder.mkdir()
    port, dashboard = free_port(), free_port()
    command = [str(programs / "ray"), "start", "--head", "--block", "--disable-usage-stats", f"--temp-dir={folder}"]
    command += ["--node-ip-address=127.0.0.1", f"--port={port}", f"--dashboard-port={dashboard}"]
    address = f"http://127.0.0.1:{dashboard}/api"

    def first_line() -> float:
        job = _called(f"{address}/jobs/", {"entrypoint": f"{sys.executable} {script}"})["submission_id"]
        accepted = time.time()
        return _printed(lambda: _called(f"{address}/jobs/{job}/logs")["logs"]) - accepted

    with _running(folder, command):
        _wait(lambda: "ray_version" in _called(f"{address}/version"))
        yield first_line


@contextlib.contextmanager
def _slurm(folder: Path, script: Path) -> Iterator[FirstLine]:
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "slurm.conf").write_text(
        SLURM_CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            controller_port=free_port(),
            node_port=free_port(),
            folder=folder,
            cores=os.cpu_count(),
        )
    )
    batch = folder / "line.sh"
    batch.write_text(f"#!/bin/sh\nexec {sys.executable} {script}\n")
    named = ("key-file=munge.key", "socket=munge.socket", "pid-file=munge.pid", "seed-file=munge.seed")
    munge = ["munged", "--foreground", "--force", "--log-file=/dev/stderr"]
    munge += [f"--{name}={folder}/{file}" for name, file in (each.split("=") for each in named)]
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}

    def called(*command: str) -> str:
        return subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, check=True
        ).stdout

    def first_line() -> float:
        output = folder / "output"
        output.unlink(missing_ok=True)
        called("sbatch", f"--output={output}", str(batch))
        accepted = time.time()
        return _printed(output.read_text) - accepted

    with contextlib.ExitStack() as stack:
        stack.enter_context(_running(folder, munge))
        _wait((folder / "munge.socket").exists)
        for program in ("slurmctld", "slurmd"):
            stack.enter_context(_running(folder, [program, "-D"], **variables))
        _wait(lambda: "idle" in called("sinfo", "--noheader"))
        yield first_line


@contextlib.contextmanager
def _running(folder: Path, command: list[str], **variables: str) -> Iterator[None]:
    """A program whose output goes to a file, with all its children in one session."""
    with (folder / "output.log").open("ab") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(WAIT_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _printed(read: Callable[[], str]) -> float:
    """The time that the script has printed."""
    found: list[str] = []

    def is_there() -> bool:
        found[:] = [line for line in read().splitlines() if line.startswith("line ")]
        return bool(found)

    _wait(is_there)
    return float(found[0].split()[1])


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        # not there yet: the server, its answer, the file
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            if condition():
                return
        if time.monotonic() > deadline:
            sys.exit("another scheduler did not answer; its output is in output.log of its folder")
        time.sleep(POLL_SECONDS)


def _called(url: str, body: dict[str, str] | None = None) -> dict[str, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
        found: dict[str, str] = json.load(answer)
    return found
