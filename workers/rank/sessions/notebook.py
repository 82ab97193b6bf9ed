"""The JupyterLab of a job: started on a free port of the sandbox, and again when it ends. Standard library only."""

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.rank.rank_process import as_rank
from workers.rank.sessions.loop import EpollLoop
from workers.rank.sessions.port_connection import PortUnreachable
from workers.rank.sessions.process_tree import MARK

LOOPBACK = "127.0.0.1"
MISSING = 3  # the exit code of the start below when the job has no JupyterLab
RESTART_SECONDS = (1.0, 30.0)  # at first, and at most
LEAST_SECONDS = 30.0  # one that ends sooner, again and again, is given up
MOST_FAILURES = 5  # in a row
WAY_OUT = (
    "the notebook can't start, because the job has no JupyterLab: add jupyterlab to training_config.packages, "
    "or use an image that has it"
)
# Not `-m jupyterlab` alone: whether it is missing must show before anything is started.
_START = f"""
import importlib.util, runpy, sys
if importlib.util.find_spec("jupyterlab") is None:
    sys.exit({MISSING})
runpy.run_module("jupyterlab", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class NotebookPlan:
    """``token``: without it the server refuses all requests. ``base_url``: the path at which the gateway serves it."""

    python: str
    directory: str
    environment: Mapping[str, str]
    log: str
    token: str
    base_url: str


class Notebook:
    """``start`` once; children are collected by the session server."""

    def __init__(self, loop: EpollLoop, plan: NotebookPlan) -> None:
        self._loop, self._plan = loop, plan
        self._port = self._pid = 0
        self._missing = ""
        self._wait = RESTART_SECONDS[0]
        self._failures = 0
        self._began = 0.0

    def port(self) -> int:
        """Where it listens. Raises PortUnreachable."""
        if self._missing:
            raise PortUnreachable(self._missing, final=True)
        if not self._pid:
            raise PortUnreachable(f"the notebook server has ended and starts again in a moment; see {self._plan.log}")
        return self._port

    def start(self) -> None:
        self._port, self._began = _free_port(), time.monotonic()
        parent = os.getpid()
        environment = {**self._plan.environment, MARK: "notebook", "JUPYTER_TOKEN": self._plan.token}
        try:
            with Path(self._plan.log).open("ab") as log:
                process = subprocess.Popen(
                    [self._plan.python, "-c", _START, *_arguments(self._port, self._plan)],
                    env=environment,
                    cwd=self._plan.directory if Path(self._plan.directory).is_dir() else "/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=lambda: as_rank(parent),  # noqa: PLW1509 – this process has one thread
                )
        except OSError as error:
            self._missing = f"the notebook can't start: {self._plan.python}: {error.strerror}"
            return
        process.returncode = 0  # collected with all other children
        self._pid = process.pid

    def ended(self, pid: int, status: int) -> None:
        """Some child has; if it is this one, it starts again, unless the job has none."""
        if pid != self._pid:
            return
        self._pid = 0
        if os.waitstatus_to_exitcode(status) == MISSING:
            self._missing = WAY_OUT
            return
        lasted = time.monotonic() - self._began > LEAST_SECONDS
        self._wait = RESTART_SECONDS[0] if lasted else min(2 * self._wait, RESTART_SECONDS[1])
        self._failures = 0 if lasted else self._failures + 1
        if self._failures >= MOST_FAILURES:
            self._missing = f"the notebook server ended {MOST_FAILURES} times in a row; see {self._plan.log}"
            return
        self._loop.call_after(self._wait, self.start)


def _arguments(port: int, plan: NotebookPlan) -> Sequence[str]:
    settings = {
        "ServerApp.ip": LOOPBACK,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.base_url": plan.base_url,
        "ServerApp.root_dir": plan.directory,
        "ServerApp.open_browser": False,
        "ServerApp.allow_root": True,
        # The gateway has checked where a request comes from, and sends its own host.
        "ServerApp.allow_remote_access": True,
        "ServerApp.trust_xheaders": True,
        "ServerApp.quit_button": False,
        # It would ask people about news and new versions, and few sandboxes reach the network that has them.
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    return [f"--{name}={value}" for name, value in settings.items()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
