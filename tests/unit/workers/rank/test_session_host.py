"""The agent's side of the session server: it waits for no server, and starts one that ends again, but not for ever."""

import os
import signal
from pathlib import Path

import pytest

from tests.builders.run_specs import make_run_spec
from trainyard.protocol.run_spec import ImageEnvironment
from workers.rank.session_host import MOST_STARTS, SessionHost


@pytest.mark.long
def test_a_server_that_reads_nothing_does_not_hold_the_agent(tmp_path: Path) -> None:
    """A rank may stop a new server before it has read more than a pipe holds."""
    reads_nothing = ImageEnvironment(python=("/bin/sh", "-c", "exec sleep 60", "sh"), hooks="", environment={})
    host = SessionHost(make_run_spec(run_dir=tmp_path, image=reads_nothing))
    starts = 0

    host.open({0: {"LARGE": "x" * (1 << 20)}}, None)
    while host.is_open:
        starts += 1
        os.kill(host.pid, signal.SIGKILL)
        os.waitpid(host.pid, 0)
        host.ended()

    assert starts == MOST_STARTS
