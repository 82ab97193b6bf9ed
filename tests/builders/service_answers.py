"""What a server answers about services, for tests of clients."""

from typing import Any

SERVICE_ID = "svc-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"
MOMENT = "2026-05-17T09:30:00.000Z"


def service(**changes: Any) -> dict[str, Any]:
    return {
        "service_id": SERVICE_ID,
        "name": "support",
        "project": "default",
        "created_by": "key-1",
        "created_by_name": "anna",
        "is_automatic": False,
        "model": {"job_id": "job-1", "checkpoint": "ckpt-1"},
        "task": "generate",
        "adapters": {"from": "project", "max_loaded": 32, "max_rank": 64},
        "replicas": {"min": 0, "max": 4, "target_in_flight": 16, "idle_seconds": 600},
        "engine": "auto",
        "limits": {"max_context": None, "max_output_tokens": 2048, "max_waiting": 200, "cold_start_seconds": 180},
        "defaults": {"temperature": 0.7},
        "resource_config": {"gpu_count": 1},
        "scheduling_config": {"priority": 5},
        "environment": {},
        "status": "ACTIVE",
        "pending_reason": "",
        "revision": 1,
        "wanted": 1,
        "answering": 1,
        "starting": 1,
        "in_flight": 7,
        "waiting": 0,
        "tokens_per_second": 1240.2,
        "first_token_seconds": 0.18,
        "adapters_loaded": 5,
        "failures": 0,
        "requested_at": MOMENT,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "ended_at": None,
        "version": 3,
        **changes,
    }


def replica(**changes: Any) -> dict[str, Any]:
    return {
        "job_id": "job-7",
        "number": 3,
        "revision": 1,
        "status": "SERVING",
        "pending_reason": "",
        "is_draining": False,
        "answers": True,
        "answers_since": MOMENT,
        "node_names": ["n1"],
        "latest_metrics": {"tokens_per_second": 1240.0},
        "error_type": None,
        "error_message": None,
        "created_at": MOMENT,
        "finished_at": None,
        **changes,
    }


def page(items: str, *rows: dict[str, Any]) -> dict[str, Any]:
    return {items: list(rows), "next_page_token": "", "total_count": len(rows)}


CREATED = {"service_id": SERVICE_ID, "name": "support", "status": "ACTIVE", "message": "", "warnings": ["x: no effect"]}
