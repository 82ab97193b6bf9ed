"""How the process of a rollout ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.systems.system import wait_for
from tests.trainers.supervision import free_port


def test_signal_that_ends_a_rollout_is_its_exit_code(tmp_path: Path) -> None:
    """Else the platform would take it for one that has done its work, and not start it again."""
    given = {"run_dir": str(tmp_path), "framework": "HF_TRAINER", "training_type": "RLHF", "data_config": {"seed": 5}}
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({**given, "device_type": "cpu", "training_config": {}}))
    address = ("127.0.0.1", free_port())
    places = {"gen": [{"index": 0, "address": address[0], "port": address[1]}]}
    role = {"TRAINYARD_TASKS": json.dumps(places), "TRAINYARD_ROLE": "gen", "TRAINYARD_TASK_INDEX": "0"}
    rank = {"TRAINYARD_JOB_SECRET": "s" * 32, "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    command = [sys.executable, "-m", "workers.trainers.rollouts.main", "--spec", str(spec)]
    rollout = subprocess.Popen(command, env={**os.environ, **role, **rank}, stderr=subprocess.PIPE)

    def listens() -> bool:
        assert rollout.poll() is None, rollout.communicate()
        with suppress(OSError), socket.create_connection(address, timeout=1):
            return True
        return False

    try:
        wait_for(listens, seconds=30, what="the rollout to listen")
        rollout.terminate()
        assert rollout.wait(10) == 128 + signal.SIGTERM
    finally:
        rollout.kill()
        rollout.communicate()
