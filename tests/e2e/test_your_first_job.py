"""docs/tutorials/your-first-job.md as a member of a team follows it: its commands, in their order, with their key."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systems.running_up import RunningUp
from trainyard.client import Client

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "your-first-job.md"
GIVEN = "export TRAINYARD_URL="  # the block with what a reader was given
SECONDS = 150.0


@pytest.fixture
def up(tmp_path: Path, demo_assets: Path) -> Iterator[RunningUp]:
    running = RunningUp(tmp_path / "data", environment={"TRAINYARD_STORAGE_ROOTS": str(demo_assets)})
    yield running.wait_until_ready()
    running.stop()


def commands() -> str:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    typed = [block for block in blocks if not block.startswith(GIVEN)]
    assert len(typed) == len(blocks) - 1
    return "\n".join(["set -euo pipefail", *typed])


def test_member_of_a_team_trains_on_data_of_their_own_and_runs_a_script(
    up: RunningUp, tmp_path: Path, demo_assets: Path
) -> None:
    administrator = Client(up.url, up.key)
    administrator.projects.create("red")
    key = administrator.keys.create(role="user", project="red", name="Ada")["key"]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "TRAINYARD_URL": up.url,
        "TRAINYARD_API_KEY": key,
        "MODEL": str(demo_assets / "model"),
    }

    followed = subprocess.run(
        ["bash", "-c", commands()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert followed.returncode == 0, followed.stdout + followed.stderr
    home = tmp_path / "first-job"
    assert (home / "model" / "adapter_config.json").is_file()
    assert (home / "results" / "result.txt").read_text() == "done"
    assert "# sums\n" in followed.stdout
    assert "SHA-256 of samples" in followed.stdout
    member = Client(up.url, key)
    assert (list(member.list()), "sums.jsonl" in str(list(member.files.list()))) == ([], False), (
        "the last commands clean up"
    )
