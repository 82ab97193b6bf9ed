"""One rank under mpirun: sets the log, directory and variables that it would have without, and reports its end.

Executed by mpirun as ``python -m workers.rank.mpi_rank --plan PATH``; `workers.rank.mpi.Mpirun` writes the plan.
mpirun itself would mix the ranks' lines, and reports neither when a rank ended nor which was the first. Standard
library only.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from app.host.processes import die_with_parent
from trainyard.protocol.channel import encode

RANK = "OMPI_COMM_WORLD_RANK"
# By these a program finds the others, and Open MPI its settings.
PASSED_ON = ("OMPI_", "PMIX_", "ORTE_", "PRTE_")


def main() -> int:
    """The rank's exit code, as mpirun wants it."""
    parser = argparse.ArgumentParser(prog="workers.rank.mpi_rank", description=__doc__)
    parser.add_argument("--plan", required=True)
    plan = json.loads(Path(parser.parse_args().plan).read_text())
    die_with_parent(os.getppid())
    # mpirun ends the whole process group of a rank; this process survives to report how the rank ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    rank = int(os.environ[RANK])
    local_rank = rank - plan["first_rank"]
    if not 0 <= local_rank < len(plan["logs"]):
        raise SystemExit(f"mpirun has started rank {rank} on a node that it doesn't belong to")
    log = os.open(plan["logs"][local_rank], os.O_WRONLY)
    reports = os.open(plan["reports"], os.O_WRONLY)
    # The agent sends its SIGTERM to the rank alone, mpirun to this process, too: once another rank has failed.
    follows = encode({"type": "rank_follows", "rank": rank})
    signal.signal(signal.SIGTERM, lambda *_: os.write(reports, follows) and None)
    process = _start(plan, local_rank, log)
    # Less than PIPE_BUF: what several ranks write at the same time is not mixed.
    os.write(reports, encode({"type": "rank_started", "rank": rank, "pid": process.pid}))
    code = process.wait()
    os.write(reports, encode({"type": "rank_ended", "rank": rank, "code": code, "at": time.monotonic()}))
    return code if code >= 0 else 128 - code


def _start(plan: dict[str, Any], local_rank: int, log: int) -> "subprocess.Popen[bytes]":
    parent = os.getpid()

    def prepare() -> None:
        die_with_parent(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    inherited = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    return subprocess.Popen(
        plan["command"],
        env={**plan["environments"][local_rank], **inherited, **plan["settings"]},
        cwd=plan["directory"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # This process has one thread: nothing can deadlock between fork and exec.
        preexec_fn=prepare,  # noqa: PLW1509
    )


if __name__ == "__main__":
    sys.exit(main())
