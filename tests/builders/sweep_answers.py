"""Sweeps and trials as the API shows them, for clients that are tested without it."""

from typing import Any

SWEEP_ID = "sweep-01900000-0000-7000-8000-000000000001"
DOCUMENT: dict[str, Any] = {
    "name": "support-lr",
    "parameters": {
        "learning_rate": {"type": "double", "min": 1e-5, "max": 1e-3, "scale": "log"},
        "data_config.batch_size": {"type": "int", "min": 4, "max": 32, "step": 4},
        "lr_scheduler_type": {"type": "categorical", "values": ["linear", "cosine"]},
        "warmup_ratio": {"type": "double", "min": 0.0, "max": 0.2, "only_if": {"lr_scheduler_type": ["cosine"]}},
    },
    "require": [],
    "objective": [{"metric": "eval_loss", "goal": "minimize", "select": "best"}],
    "method": {"name": "tpe", "seed": 7},
    "early_stopping": {"name": "asha", "unit": "steps", "min": 100, "max": 900, "reduction": 3},
    "budget": {"max_trials": 60, "parallel_trials": 2, "max_device_hours": 40},
}
VALUES = {"learning_rate": 0.00021, "data_config.batch_size": 16, "lr_scheduler_type": "linear"}
NO_TRIALS = {"RUNNING": 0, "COMPLETED": 0, "STOPPED": 0, "FAILED": 0, "CANCELLED": 0}


def sweep(status: str = "RUNNING", *, best: int | None = None, **changes: Any) -> dict[str, Any]:
    """``best``: the number of the best trial. ``trials_by_state`` need only have what is not 0."""
    has_ended = status in ("COMPLETED", "CANCELLED", "FAILED")
    by_state = {**NO_TRIALS, **changes.pop("trials_by_state", {})}
    found = {"number": best, "job_id": f"job-{best}", "values": VALUES, "objectives": [1.412], "earlier": None}
    return {
        "sweep_id": SWEEP_ID,
        "name": "support-lr",
        "labels": {},
        "project": "default",
        "created_by": "key-1",
        "created_by_name": "",
        "status": status,
        "status_reason": "",
        "pending_reason": "",
        "document": DOCUMENT,
        "trials": sum(by_state.values()),
        "trials_by_state": by_state,
        "device_hours": 14.2,
        "elapsed_seconds": 750.0,
        "eta_seconds": None,
        "forecast": None,
        "best": None if best is None else found,
        "created_at": "2026-11-20T11:22:33.444Z",
        "started_at": "2026-11-20T11:22:34.444Z",
        "finished_at": "2026-11-20T11:35:04.444Z" if has_ended else None,
        "version": 1,
        **changes,
    }


def trial(number: int, state: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    return {
        "number": number,
        "job_id": f"job-{number}",
        "state": state,
        "reason": "",
        "values": VALUES,
        "objectives": None,
        "is_feasible": True,
        "job_status": "TRAINING" if state == "RUNNING" else state,
        "waits_for": [],
        "step": 0,
        "total_steps": 900,
        "source": "method",
        "note": "",
        "forked_from": None,
        "steps_saved": 0,
        "bracket": 0,
        "promoted": False,
        "error_type": None,
        "reports": [],
        "device_seconds": 0.0,
        "seed": 1,
        "seen_seq": 0,
        "created_at": "2026-11-20T11:22:34.444Z",
        "finished_at": None,
        **changes,
    }


def report(rung: int, value: float | None, rank: int, compared: int, **decision: bool) -> dict[str, Any]:
    decided = {"continues": True, "is_decided": True, **decision}
    return {
        "rung": rung,
        "value": value,
        "rank": rank,
        "compared": compared,
        "at": "2026-11-20T11:24:00.000Z",
        **decided,
    }


def page(*trials: dict[str, Any]) -> dict[str, Any]:
    """A page of trials, the last one."""
    return {"trials": list(trials), "next_page_token": None, "total_count": len(trials)}
