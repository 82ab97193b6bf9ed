"""Two nodes in networks of their own: their ranks connect by address, and resume after a cable was pulled."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cluster import SHORT
from tests.faults.networks import Networks
from tests.faults.proxy import FaultProxy, ProxyThread
from tests.systems.installations import counting_job, with_inputs
from tests.systems.system import System, wait_for

pytestmark = [
    pytest.mark.long,
    pytest.mark.network,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None,
        reason="network namespaces need root and iproute2: run `make test-long` as root",
    ),
]

NODES = ("n1", "n2")
STEPS = 80


class Apart(System):
    """A system whose nodes reach the broker, and each other, over the network alone."""

    def __init__(self, folder: Path, networks: Networks, **settings: str) -> None:
        super().__init__(folder, **settings)
        self._networks = networks
        self._proxies = ProxyThread()
        self._broker: FaultProxy | None = None

    def command_of(self, process: str) -> list[str]:
        name = process.removeprefix("node-")
        return [*(self._networks.command(name) if name in NODES else []), *super().command_of(process)]

    def environment_of(self, process: str) -> dict[str, str]:
        if not process.startswith("node-"):
            return self.environment
        if self._broker is None:
            self._broker = FaultProxy(self._proxies, ("127.0.0.1", self.redis.port), host=self._networks.host)
        url = self.redis.url.replace(f"127.0.0.1:{self.redis.port}/", f"{self._networks.host}:{self._broker.port}/")
        return {**self.environment, "TRAINYARD_BROKER_URL": url}

    def stop(self) -> None:
        super().stop()
        if self._broker is not None:
            self._broker.close()
        self._proxies.close()


@pytest.fixture
def networks() -> Iterator[Networks]:
    try:
        made = Networks(NODES)
    except subprocess.CalledProcessError as error:  # root in a container has not the right to everything
        pytest.skip(f"this container may make no network namespaces; run in a privileged one: {error.stderr}")
    yield made
    made.close()


@pytest.fixture
def system(networks: Networks, tmp_path: Path) -> Iterator[Apart]:
    config = tmp_path / "node.toml"
    config.write_text('[[devices]]\ntype = "cpu"\ncount = 1\n')
    made = Apart(tmp_path / "system", networks, **SHORT, TRAINYARD_NODE_CONFIG=str(config))
    try:
        yield with_inputs(made)
    finally:
        made.stop()


def summing_job() -> dict[str, Any]:
    """A document for the script whose ranks add up, one on each node."""
    document = counting_job(steps=STEPS, resource_config={"node_count": 2, "gpu_count": 1, "device_type": "cpu"})
    document["training_config"]["framework"]["custom_script_path"] = "summing.py"
    return document


def test_a_pulled_cable_is_noticed_and_the_training_goes_on_when_it_is_back(system: Apart, networks: Networks) -> None:
    system.start(*NODES)
    job_id = system.submit(summing_job())
    system.wait_for_step(job_id, 30, seconds=90)

    networks.pull("n2")
    wait_for(lambda: system.get(f"/v1/jobs/{job_id}/attempts")["attempts"][0]["ended_at"], seconds=90, what="its end")
    networks.plug("n2")
    system.wait_for_status(job_id, "COMPLETED", seconds=120)

    first = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"][0]
    assert (first["node_names"], first["cause"]) == (list(NODES), "HANG")
    meetings = {tuple(line.split()) for line in system.log_lines(job_id, rank=0) if line.startswith("rank ")}
    assert meetings == {("rank", "0", "meets", "at", networks.address("n1"))}
    answer = json.loads(system.download(f"/v1/jobs/{job_id}/artifacts/weights.json"))
    assert answer == [3 * STEPS * (STEPS + 1) / 2] * 4
