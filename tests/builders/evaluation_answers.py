"""Answers about evaluations and their jobs, and what a command has asked for."""

import json
from typing import Any

from tests.doubles.scripted_server import ScriptedServer, success

JOB_ID = "job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"
PLAN = {"queue": "default", "candidate_nodes": [{"name": "n1", "fits_now": True, "reason": ""}]}
COMPARISON = {
    "baseline": "job-2",
    "comparisons": [
        {
            "benchmark": "choices",
            "metric": "accuracy",
            "values": {"job-1": 0.615, "job-2": 0.265},
            "differences": [
                {
                    "id": "job-1",
                    "difference": 0.35,
                    "interval": [0.27, 0.43],
                    "p_value": 0.0001,
                    "n": 200,
                    "changes": 71,
                    "changed": [{"index": 3, "from": 0, "to": 1}],
                }
            ],
            "notes": ["the seeds differ"],
        }
    ],
}


def job(status: str, **more: Any) -> dict[str, Any]:
    common = {"job_id": "job-1", "name": "n", "kind": "batch", "attempt": 1, "node_names": ["local"]}
    return {**common, "status": status, "total_steps": 120_000, "elapsed_seconds": 92.0, **more}


def evaluation(**more: Any) -> dict[str, Any]:
    measured = {"accuracy": {"value": 0.615, "stderr": 0.0344}, "accuracy_by_length": {"value": 0.6, "stderr": None}}
    found = {
        "evaluation_id": "job-1",
        "name": "n",
        "project": "default",
        "created_by": "key-1",
        "created_by_name": "",
        "created_at": "2026-05-17T09:30:00.000Z",
        "status_reason": "",
        "pending_reason": "no device is free",
        "error_type": None,
        "elapsed_seconds": 92.0,
        "benchmarks": [{"name": "choices", "parameters": {"separator": ""}}],
        "job_id": JOB_ID,
        "model": {"job_id": JOB_ID},
        "checkpoint_id": None,
        "step": 72,
        "status": "COMPLETED",
        "results": {"choices": {"metrics": measured, "n": 200, "seconds": 3.21}},
        "passed": None,
        "verdicts": [],
    }
    return {**found, **more}


def created(evaluation_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"message": "", "estimated_wait_seconds": None, "warnings": []}
    return {"evaluation_id": evaluation_id, "status": "PENDING", **fields}


def sent(server: ScriptedServer, number: int = -1) -> Any:
    return json.loads(server.seen[number][3])


def planned() -> Any:
    """The answer to a dry run."""
    return success({"valid": True, "plan": PLAN, "warnings": []})
