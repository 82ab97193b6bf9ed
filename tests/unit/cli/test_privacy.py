"""Processes that hold credentials keep them from others of the same user."""

import os
import subprocess
import sys

import pytest

from app.cli.local.command_lines import foreign_environment

ASK = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
GUNICORN = "from types import SimpleNamespace as Some; arbiter = Some(cfg=Some(env={}))"  # all that the hook reads


@pytest.mark.parametrize(
    ("statement", "dumpable"),
    [
        ("pass", "1"),
        ("from app.host.privacy import hide_from_same_user; hide_from_same_user()", "0"),
        (f"{GUNICORN}\nfrom app.server import gunicorn_hooks; gunicorn_hooks.on_starting(arbiter)", "0"),
        ("from app.host import processes; processes.hide_from_same_user()", "0"),
        ("import contextlib\nfrom tasks import flower\nwith contextlib.suppress(SystemExit):\n    flower.main()", "0"),
    ],
)
def test_process_can_be_hidden(statement, dumpable, tmp_path):
    command = [sys.executable, "-c", f"{statement}\n{ASK}"]
    environment = {**os.environ, "TRAINYARD_DATA_DIR": str(tmp_path)}

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == dumpable


def test_a_program_that_is_not_ours_gets_no_setting_and_no_credential():
    given = {"PATH": "/bin", "LANG": "C", "TRAINYARD_DATABASE_URL": "x", "AWS_SECRET_ACCESS_KEY": "y", "HF_TOKEN": "z"}

    assert foreign_environment(given) == {"PATH": "/bin", "LANG": "C"}
