"""docs/tutorials/your-first-job.md as a member of a team follows it, and the README as a newcomer does: their commands,
in their order, on one system.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systems.running_up import RunningUp
from trainyard.client import Client

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorials" / "your-first-job.md"
GIVEN = "export TRAINYARD_URL="  # the block with what a reader was given
SECONDS = 150.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, demo_assets: Path) -> Iterator[RunningUp]:
    place = tmp_path_factory.mktemp("up")
    # Ranks are forked: five of them start.
    environment = {"TRAINYARD_STORAGE_ROOTS": str(demo_assets), "TRAINYARD_NODE_WARM": "auto"}
    running = RunningUp(place / "data", environment=environment)
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


def of_readme(up: RunningUp) -> str:
    """What the README says to type once the demo is built and `up` runs: it is followed to the end of the job."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (document,) = (block for block in blocks if block.startswith("cat > job.json"))
    (control,) = (block for block in blocks if "logs -f @last" in block)
    (curl,) = (block for block in blocks if block.startswith("url="))
    assert '"max_steps": "200"' in document
    # Shorter; followed beside the others; and what the comment behind `pause` says.
    document = document.replace('"max_steps": "200"', '"max_steps": "40"')
    control = re.sub(r"(logs -f @last)[^\n]*", r"\1 > followed.txt &", control)
    control = re.sub(r"(pause \$job --wait)[^\n]*", r"\1; .venv/bin/trainyard resume $job; wait", control)
    curl = curl.replace("http://127.0.0.1:8000", up.url)
    return f"set -euo pipefail\n{document}\n{control}\n{curl}\n.venv/bin/trainyard cancel @last --wait"


def test_newcomer_follows_the_readme(up: RunningUp, tmp_path: Path, demo_assets: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    place_of_key = tmp_path / ".local/share/trainyard"
    place_of_key.mkdir(parents=True)
    (place_of_key / "admin.key").write_text(up.key)
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "TRAINYARD_URL": up.url,
        "TRAINYARD_API_KEY": up.key,
    }

    followed = subprocess.run(
        ["bash", "-c", of_readme(up).replace("$PWD/data/demo", str(demo_assets))],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert "step 40" in (tmp_path / "followed.txt").read_text()
    assert list(tmp_path.rglob("model.safetensors")), "the model is downloaded"
    assert '"status":"success"' in followed.stdout
    jobs = [(job["status"], job["name"]) for job in up.get("/v1/jobs")[1]["jobs"]]
    assert sorted(jobs) == [("CANCELLED", "docstrings"), ("COMPLETED", "docstrings")]
