"""Where a training's metrics go, by the keys of both tools: W&B and MLflow as `tracking` of the document."""

import re
from collections.abc import Mapping
from typing import Any

from app.cli.client.imports.draft import Draft
from app.domain.spec.model import MLFLOW, OFFLINE, TRACKIO, WANDB

TO_TRACKIO = "add {kind: trackio, url: https://…, token: …} of a Trackio server of your own to tracking"
WITHOUT_PROJECT = "W&B is off without wandb_project"
OTHERS = "tracking sends metrics to MLflow, Trackio and W&B: docs/how-to/tracking.md"
ONE_RUN = "a job is one run over all attempts, with its own id, and only metrics and settings are sent"
_OFFLINE_MODES = ("offline", "dryrun")
_NO_PROJECT = "the run is in the project of W&B that has the job's project's name; tracking.0.experiment names another"
_LOGIN, _MASKED = re.compile(r"//.*@"), "//***@"  # greedy: a password may hold any character
_WITH_LOGIN = "is carried over without user and password; give them as username and token of the tracker"
_OF_MLFLOW = ("mlflow_tracking_uri", "mlflow_experiment_name", "mlflow_run_name", "use_mlflow")
_NO_URL = "needs mlflow_tracking_uri, the address of a server; add {kind: mlflow, url: https://…} to tracking"


def add_wandb(draft: Draft, *, run_name: object, asked: bool = False) -> None:
    """The run of ``wandb_project``; ``asked``: also without one. The key of W&B is in none of the files."""
    keys = draft.keys
    project, entity = keys.peek("wandb_project"), keys.peek("wandb_entity")
    if not project and not asked:
        return
    mode = str(keys.take("wandb_mode") or "online").lower()
    for name in ("wandb_project", "wandb_entity", "wandb_name", "use_wandb"):
        keys.take(name)
    if mode == "disabled":
        return
    if not project:
        draft.note("report_to", WANDB, _NO_PROJECT)
    draft.tracking.append(
        _given(
            {
                "kind": WANDB,
                "mode": OFFLINE if mode in _OFFLINE_MODES else None,
                "experiment": project,
                "entity": entity,
                "run_name": run_name,
            }
        )
    )


def add_mlflow(draft: Draft, *, run_name: object, asked: str = "") -> None:
    """The run of ``mlflow_tracking_uri``; ``asked`` is the key that asks for one, whose address may be missing."""
    keys = draft.keys
    if keys.has("use_mlflow") and not keys.flag("use_mlflow"):
        for name in _OF_MLFLOW:
            keys.take(name)
        return
    url = str(keys.peek("mlflow_tracking_uri") or "")
    if not url.startswith(("http://", "https://")):
        if url:
            keys.take("mlflow_tracking_uri")
            reason = "is no address of a server: tracking takes http and https"
            draft.note("mlflow_tracking_uri", _LOGIN.sub(_MASKED, url), reason)
        elif asked:
            draft.note(asked, MLFLOW, _NO_URL)
        return
    if _LOGIN.search(url):
        draft.note("mlflow_tracking_uri", _LOGIN.sub(_MASKED, url), _WITH_LOGIN)
    experiment = keys.peek("mlflow_experiment_name")
    for name in _OF_MLFLOW:
        keys.take(name)
    draft.tracking.append(
        _given({"kind": MLFLOW, "url": _LOGIN.sub("//", url), "experiment": experiment, "run_name": run_name})
    )


def add_reported(draft: Draft) -> None:
    """What ``report_to`` of transformers names, and the keys of W&B and MLflow beside it."""
    keys = draft.keys
    asked = keys.take("report_to") or []
    names = [asked] if isinstance(asked, str) else [*map(str, asked)]
    run_name = keys.peek("run_name")
    add_wandb(draft, run_name=keys.peek("wandb_name") or run_name, asked=WANDB in names)
    add_mlflow(draft, run_name=keys.peek("mlflow_run_name") or run_name, asked="report_to" if MLFLOW in names else "")
    for name in names:
        if name not in ("none", "tensorboard", WANDB, MLFLOW):
            draft.note("report_to", name, TO_TRACKIO if name == TRACKIO else OTHERS)


def _given(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value}
