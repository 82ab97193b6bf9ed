"""What OpenAI's client for Node sends is what was recorded, so that a newer one which asks otherwise is noticed.

When this fails after a new version in `tests/clients/node`, read its release notes, change the dialect where it has to,
and copy the new recording, whose place the failure names, over `tests/clients/openai_requests.json`.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.doubles.recorded_requests import recording
from tests.doubles.scripted_server import Handler, running
from tests.systems.clients import CLIENTS, node_packages

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

RECORDED = CLIENTS / "openai_requests.json"
# Every kind of object can be read from it.
ANSWER = (
    b'{"id": "x", "object": "list", "data": [{"embedding": [0.5]}], "has_more": false, "output": [], "choices": []}'
)


def test_client_for_node_sends_what_was_recorded(tmp_path: Path) -> None:
    packages = node_packages()
    (tmp_path / "node_modules").symlink_to(packages)
    program = str(shutil.copy(CLIENTS / "openai_requests.mjs", tmp_path))

    with running() as server:
        server.script(_answer)
        done = subprocess.run(
            [str(packages / ".bin" / "node"), program],
            env={"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "key"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    found = recording(dict(zip(done.stdout.splitlines(), server.seen, strict=True)))
    new = tmp_path / RECORDED.name
    new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    assert len(found["requests"]) >= 32
    assert found == json.loads(RECORDED.read_text(encoding="utf-8")), f"the new recording is {new}"


def _answer(handler: Handler) -> None:
    handler.reply(200, ANSWER, "application/json")
