"""Trackers of imported configurations: what becomes `tracking`, and what is named instead."""

from pathlib import Path
from typing import Any

import pytest

from app.cli.client.imports.command import detected, imported
from app.cli.client.imports.draft import Imported
from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.schemas.jobs import SubmitJobSchema

AXOLOTL = {"base_model": "/srv/base", "datasets": [{"path": "/srv/train.jsonl", "type": "chat_template"}]}
LLAMA_FACTORY = {"model_name_or_path": "org/base", "stage": "sft", "finetuning_type": "full", "dataset": "org/data"}


def converted(config: dict[str, Any], **keys: Any) -> Imported:
    return imported({**config, **keys}, detected(config), Path(), default_name="file", gpus=1)


def accepted(found: Imported) -> list[dict[str, Any]]:
    """The trackers, which the rules accept, with a key for those that need one: none is in a configuration."""
    trackers: list[dict[str, Any]] = found.document.get("tracking", [])
    online = [each["kind"] == "wandb" and "mode" not in each for each in trackers]
    keyed = [{**each, "token": "k" * 40} if needs else each for each, needs in zip(trackers, online, strict=True)]
    document = {**found.document, "tracking": keyed}
    from_document(SubmitJobSchema().load(document), ReadingRules(roots=("/srv",)))
    return trackers


def reasons(found: Imported) -> dict[str, str]:
    return {left.key: left.reason for left in found.left_out}


@pytest.mark.parametrize(
    ("keys", "trackers", "left"),
    [
        (
            {"wandb_project": "p", "wandb_entity": "team", "wandb_name": "first try", "wandb_mode": "online"},
            [{"kind": "wandb", "experiment": "p", "entity": "team", "run_name": "first try"}],
            [],
        ),
        (
            {"wandb_project": "p", "wandb_mode": "offline", "wandb_log_model": "checkpoint", "use_wandb": True},
            [{"kind": "wandb", "mode": "offline", "experiment": "p"}],
            ["wandb_log_model"],
        ),
        ({"wandb_project": "p", "wandb_mode": "disabled"}, [], []),
        ({"wandb_entity": "team"}, [], ["wandb_entity"]),
        (
            {
                "use_mlflow": True,
                "mlflow_tracking_uri": "https://mlflow.example",
                "mlflow_experiment_name": "e",
                "mlflow_run_name": "r",
                "hf_mlflow_log_artifacts": True,
            },
            [{"kind": "mlflow", "url": "https://mlflow.example", "experiment": "e", "run_name": "r"}],
            ["hf_mlflow_log_artifacts"],
        ),
        ({"mlflow_tracking_uri": "./mlruns"}, [], ["mlflow_tracking_uri"]),
        ({"use_mlflow": False, "mlflow_tracking_uri": "https://mlflow.example", "mlflow_run_name": "r"}, [], []),
        (
            {"mlflow_tracking_uri": "https://me:hun/ter2@mlflow.example"},
            [{"kind": "mlflow", "url": "https://mlflow.example"}],
            ["mlflow_tracking_uri"],
        ),
        ({"mlflow_tracking_uri": "postgresql://me:hunter2@db/mlflow"}, [], ["mlflow_tracking_uri"]),
        ({"use_mlflow": True}, [], ["use_mlflow"]),
        ({"use_trackio": True, "trackio_project_name": "p"}, [], ["use_trackio", "trackio_project_name"]),
    ],
)
def test_trackers_of_axolotl_are_carried_over(
    keys: dict[str, Any], trackers: list[dict[str, str]], left: list[str]
) -> None:
    found = converted(AXOLOTL, **keys)

    assert accepted(found) == trackers
    assert "ter2" not in str(found)  # passwords are printed nowhere
    assert [key for key in reasons(found) if key in (*keys, "use_mlflow")] == left


@pytest.mark.parametrize(
    ("keys", "trackers", "left"),
    [
        (
            {"report_to": "wandb", "run_name": "first", "wandb_project": "p"},
            [{"kind": "wandb", "experiment": "p", "run_name": "first"}],
            {},
        ),
        ({"report_to": ["wandb", "tensorboard"]}, [{"kind": "wandb"}], {"report_to": "tracking.0.experiment"}),
        ({"report_to": "mlflow"}, [], {"report_to": "needs mlflow_tracking_uri"}),
        (
            {"report_to": "mlflow", "mlflow_tracking_uri": "https://mlflow.example"},
            [{"kind": "mlflow", "url": "https://mlflow.example"}],
            {},
        ),
        (
            {"report_to": "trackio", "trackio_space_id": "me/s"},
            [],
            {"report_to": "kind: trackio", "trackio_space_id": "of your own"},
        ),
        ({"report_to": "none"}, [], {}),
    ],
)
def test_trackers_of_llama_factory_are_carried_over(
    keys: dict[str, Any], trackers: list[dict[str, str]], left: dict[str, str]
) -> None:
    found = converted(LLAMA_FACTORY, **keys)

    assert accepted(found) == trackers
    said = {key: why for key, why in reasons(found).items() if key in keys}
    assert said.keys() == left.keys()
    assert all(text in said[key] for key, text in left.items())
