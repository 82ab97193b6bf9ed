"""Jobs that ask a running service instead of loading its model: the same answers, by real processes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System, wait_for
from tests.systems.with_gateway import requests_counted

pytestmark = pytest.mark.long

RECORDS = 40
CPU = {"gpu_count": 1, "device_type": "cpu"}


def completed(system: System, path: str, body: dict[str, Any]) -> str:
    status, answer = system.call("POST", path, {"resource_config": CPU, **body})
    assert status == 201, answer
    job_id = str(answer["data"].get("job_id") or answer["data"]["evaluation_id"])
    system.wait_for_status(job_id, "COMPLETED", seconds=240)
    return job_id


def outputs_of(system: System, job_id: str) -> list[tuple[str, int]]:
    paths = [each["path"] for each in system.get(f"/v1/jobs/{job_id}/artifacts")["artifacts"]]
    parts = [
        system.download(f"/v1/jobs/{job_id}/artifacts/{path}") for path in sorted(paths) if path.startswith("part")
    ]
    rows = [json.loads(line) for part in parts for line in part.decode().splitlines()]
    return [(row["output"], row["completion_tokens"]) for row in rows]


@pytest.mark.timeout(500)
def test_a_batch_and_an_evaluation_by_a_service_give_what_its_model_gives(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    system = make_system()
    forked_agents.serve_system(system)
    model = str(shutil.copytree(assets["model"], system.inputs / "model-of-service"))
    records = Path(system.inputs) / "records.jsonl"
    rows = [{"prompt": f"def f{number}(x):", "answer": "return"} for number in range(RECORDS)]
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    system.start("n1", "n2")
    system.start_gateway()
    service = {"name": "support", "model": {"model_uri": model}, "replicas": {"min": 0, "max": 1}}
    status, answer = system.call("POST", "/v1/services", {**service, "resource_config": CPU})
    assert status == 201, answer
    batch = {"name": "b", "data_config": {"sources": [{"path": str(records)}]}, "task": {"max_new_tokens": 6}}
    exact = {"benchmarks": [{"name": "contains", "dataset": str(records), "parameters": {"max_new_tokens": 6}}]}

    asked = completed(system, "/v1/inference", {**batch, "model": {"service": "support"}})
    loaded = completed(system, "/v1/inference", {**batch, "model": {"model_uri": model}})
    measured = completed(system, "/v1/evaluations", {**exact, "model": {"service": "support"}})

    assert outputs_of(system, asked) == outputs_of(system, loaded)
    assert system.get(f"/v1/evaluations/{measured}")["results"]["contains"]["n"] == RECORDS
    wait_for(lambda: requests_counted(system, "support") >= 2 * -(-RECORDS // 16), seconds=30, what="all are counted")
    manifest = json.loads(system.download(f"/v1/jobs/{asked}/artifacts/_manifest.json"))
    assert manifest["model"] == {"service": "support"}
