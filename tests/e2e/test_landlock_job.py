"""A training on a node that confines its jobs by Landlock alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.host.landlock import lack_of_landlock
from tests.e2e.test_sft_job import sft_job
from tests.systems.system import System


@pytest.mark.long
@pytest.mark.timeout(300)
def test_model_is_trained_without_namespaces(make_system: Callable[..., System], assets: dict[str, str]) -> None:
    if lack := lack_of_landlock():
        pytest.skip(lack.detail)
    roots = str(Path(assets["model"]).parent)
    system = make_system(TRAINYARD_STORAGE_ROOTS=roots, TRAINYARD_NODE_SANDBOX="landlock").start("n1")
    (node,) = system.get("/v1/nodes")["nodes"]

    job_id = system.submit(sft_job(assets, steps=20, ranks=2))
    job = system.wait_for_status(job_id, "COMPLETED", seconds=240)

    assert node["sandbox"] == "landlock"
    assert not {"mounts", "images"} & set(node["capabilities"])
    assert job["attempt"] == 1, system.story(job_id)
    assert len(system.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"]) > 0
