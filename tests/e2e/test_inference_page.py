"""docs/how-to/run-inference.md, and the comparison of evaluate-models.md, as a reader follows them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.running_up import RunningUp

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
# The examples that neither page runs; `score` asks the reward model of the training before it.
OTHERS = """
for name in generate-sampled loglikelihood features-npy; do
  fill inference/$name.json
  trainyard infer request.json --watch
done
fill jobs/rlhf-reward.json
trainyard submit request.json --watch
fill inference/score.json
trainyard infer request.json --watch
fill inference/evaluation.json
trainyard eval run $job --file request.json --watch
"""


@pytest.fixture
def checkout(tmp_path: Path, demo_assets: Path, forked_agents: ForkedAgents) -> Iterator[Path]:
    """Where the reader types, with a home of its own; the server runs, as the first lines of the page say."""
    folder, data_dir = tmp_path / "checkout", tmp_path / ".local" / "share" / "trainyard"
    shutil.copytree(demo_assets, folder / "data" / "demo")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / ".venv").symlink_to(sys.prefix)
    forked_agents.serve(data_dir)
    up = RunningUp(data_dir, environment={"TRAINYARD_STORAGE_ROOTS": str(folder)}).wait_until_ready()
    try:
        yield folder
    finally:
        up.stop()


def blocks(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", (HOW_TO / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_lines_of_the_page_work_as_printed(checkout: Path, tmp_path: Path) -> None:
    start, *lines = blocks("run-inference.md")
    assert "trainyard up" in start
    commands = "\n".join(["set -eo pipefail", *lines, blocks("evaluate-models.md")[0], OTHERS])

    followed = subprocess.run(
        ["bash", "-c", commands],
        cwd=checkout,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1400,
        check=False,
    )

    said, finished = followed.stdout, checkout / "data" / "demo" / "finished"
    assert followed.returncode == 0, said
    assert "the same bytes" in said, said
    again = json.loads((finished / "again" / "_manifest.json").read_text())
    assert (again["counts"]["records"], len(again["parts"])) == (5000, 20)
    assert "(4590, 128)" in said, said  # the vectors, as pyarrow reads them
    assert re.search(r"^perplexity .*\[-?[\d.]+, -?[\d.]+\]", said, re.MULTILINE), said
    for name in ("answers", "matrix", "likelihoods", "scores"):
        assert (finished / name / "_manifest.json").exists(), said
