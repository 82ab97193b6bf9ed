"""Evaluations by a judge through the real system: a service writes verdicts, the job asks it with its own token."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System, wait_for
from tests.systems.with_gateway import gateway_of, requests_counted

pytestmark = pytest.mark.long
_ROWS = [{"prompt": f"def f{n}(x):", "other": f"    return x + {n}"} for n in range(6)]


def judged(system: System, records: Path, **parameters: Any) -> dict[str, Any]:
    """The completed evaluation of the model that also judges."""
    document = {
        "model": {"model_uri": str(system.inputs / "judge")},
        "benchmarks": [
            {
                "name": "judge",
                "dataset": str(records),
                "parameters": {"service": "judge", "max_new_tokens": 8, "max_tokens": 128, **parameters},
            }
        ],
        "require": [{"metric": "judge/unjudged", "max": 0}],
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }
    status, answer = system.call("POST", "/v1/evaluations", document)
    assert status == 201, answer
    evaluation_id = answer["data"]["evaluation_id"]
    system.wait_for_status(evaluation_id, "COMPLETED", seconds=120)
    return dict(system.get(f"/v1/evaluations/{evaluation_id}"))


@pytest.mark.timeout(300)
def test_a_service_judges_answers_and_pairs_with_every_verdict_kept(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    pytest.importorskip("llguidance")
    system = make_system()
    forked_agents.serve_system(system)
    shutil.copytree(assets["model"], system.inputs / "judge")
    records = system.inputs / "questions.jsonl"
    records.write_text("".join(json.dumps(row) + "\n" for row in _ROWS))
    system.start("n1", "n2")
    service = {
        "name": "judge",
        "model": {"model_uri": str(system.inputs / "judge")},
        "replicas": {"min": 0, "max": 1, "idle_seconds": 300},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }
    with gateway_of(system):
        assert system.call("POST", "/v1/services", service)[0] == 201

        scored = judged(system, records)
        pairs = judged(system, records, baseline="other", reason=False)

        # Each evaluation asks once before it begins; of a pair the judge is asked twice.
        wait_for(lambda: requests_counted(system, "judge") == 2 + 3 * len(_ROWS), seconds=30, what="all are counted")
        ids = [scored["evaluation_id"], pairs["evaluation_id"]]
        _, compared = system.call("POST", "/v1/evaluations/compare", {"ids": ids})

    found = scored["results"]["judge"]["metrics"]
    assert (scored["passed"], 1 <= found["score"]["value"] <= 10) == (True, True)
    path = f"/v1/jobs/{scored['evaluation_id']}/artifacts/samples-judge.jsonl"
    samples = [json.loads(line) for line in system.download(path).splitlines()]
    verdicts = [each["more"]["verdicts"] for each in samples]
    assert [len(each) for each in verdicts] == [1] * len(_ROWS)
    assert all(each["value"] == json.loads(each["text"])["score"] for [each] in verdicts)
    assert pairs["results"]["judge"]["metrics"].keys() == {"win_rate", "ties", "consistency", "first_share", "unjudged"}
    shared = {row["metric"]: row["differences"] for row in compared["data"]["comparisons"]}
    assert (shared["score"], shared["unjudged"][0]["difference"], shared["unjudged"][0]["n"]) == ([], 0.0, len(_ROWS))
