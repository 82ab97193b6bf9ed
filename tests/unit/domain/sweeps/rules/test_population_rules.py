"""What is refused of a sweep of population based training, with the field that is named."""

from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.sweeps.rules.document import check, check_other_budget
from app.domain.sweeps.rules.limits import DEFAULT
from app.domain.sweeps.spec import SweepSpec
from tests.unit.domain.sweeps.sweep_documents import JOB, RATE, SCRIPT, refused, sweep, with_training

METHOD = {"name": "pbt", "population": 8, "interval": 100, "explore": "perturb", "seed": 7}
POPULATION: dict[str, Any] = {
    "parameters": {
        "learning_rate": RATE,
        "lr_scheduler_type": {"type": "categorical", "values": ["linear", "cosine"]},
        "warmup_ratio": {"type": "double", "min": 0.0, "max": 0.2, "only_if": {"lr_scheduler_type": ["cosine"]}},
    },
    "require": [],
    "early_stopping": {},
    "method": METHOD,
    "budget": {"max_trials": 26, "parallel_trials": 4},
}
EPOCHS = with_training(JOB, hyperparameters={"num_train_epochs": "5"})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": {**METHOD, "explore": "resample"}},
        {"parameters": {"environment.MODE": {"values": ["a", "b"]}, "lora_dropout": {"values": [0.0, 0.1]}}},
        {"parameters": {"learning_rate": RATE, "lora_r": 16, "data_config.batch_size": 8}},  # constants
        {"budget": {"max_seconds": 60}},
        {"budget": {"max_trials": 9}},
        *({"job": with_training(JOB, framework={"type": framework})} for framework in ("FSDP", "DEEPSPEED")),
        {"job": with_training(JOB, training_type="SFT", framework={"type": "MEGATRON"})},
    ],
)
def test_what_is_accepted(changes: dict[str, Any]) -> None:
    space = check(SweepSpec.from_json(sweep(**{**POPULATION, **changes})))

    assert {each.name for each in space.parameters} == set(changes.get("parameters", POPULATION["parameters"]))


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"parameters": {"lora_r": {"values": [8, 16]}}}, "parameters.lora_r", "lora_r may not vary with pbt"),
        ({"parameters": {"optim": {"values": ["sgd", "adamw_torch"]}}}, "parameters.optim", "set it in job"),
        ({"parameters": {"max_steps": {"values": [300, 900]}}}, "parameters.max_steps", "set max_steps in job"),
        (
            {"parameters": {"data_config.batch_size": {"values": [4, 8]}}},
            "parameters.data_config.batch_size",
            "same model",
        ),
        (
            {"parameters": {"training_config.base_model.model_id": {"values": ["a", "b"]}}},
            "parameters.training_config.base_model.model_id",
            "vary hyperparameters",
        ),
        ({"method": {"name": "pbt", "population": 8}}, "method.interval", "is missing"),
        ({"method": {**METHOD, "interval": 900}}, "method.interval", "below max_steps, 900"),
        ({"method": {**METHOD, "interval": 0}}, "method.interval", "must be from 1"),
        ({"method": {**METHOD, "explore": "guess"}}, "method.explore", "perturb or resample"),
        ({"method": {**METHOD, "population": 27}}, "method.population", "more than budget.max_trials, 26"),
        ({"budget": {"max_trials": 8}}, "budget.max_trials", "no fork fits, of which each counts, too; raise it"),
        ({"budget": {"max_trials": 26, "running": "cancel"}}, "budget.running", "use finish"),
        ({"parameters": {"learning_rate": 1e-4, "lora_r": {"values": [8]}}}, "parameters", "nothing varies"),
        (
            {"parameters": {"early_stopping_patience": {"values": [2, 3]}}},
            "parameters.early_stopping_patience",
            "may not vary with pbt",
        ),
        ({"method": {**METHOD, "population": 1}}, "method.population", "from 2"),
        ({"enqueue": [{}] * 9}, "enqueue", "more than method.population, 8"),
        ({"job": EPOCHS}, "job.training_config.hyperparameters.max_steps", "is missing"),
        (
            {"job": with_training(JOB, hyperparameters={"max_steps": "2000"}), "method": {**METHOD, "interval": 1}},
            "method.interval",
            "more than 1,000 halts",
        ),
        ({"early_stopping": {"name": "asha", "min": 100, "max": 900}}, "early_stopping.name", "use none"),
        ({"objective": {"metric": "report.tokens", "goal": "maximize"}}, "objective.metric", "while a trial trains"),
        ({"objective": [{"metric": "eval_loss"}, {"metric": "loss"}]}, "method.name", "one objective"),
        (
            {"job": SCRIPT, "parameters": {"lr": RATE, "optim": "a", "data_config.seed": 1}},
            "job.training_config.hyperparameters.max_steps",
            "is missing",
        ),
        *(
            (
                {
                    "job": with_training(SCRIPT, hyperparameters={"max_steps": given}),
                    "parameters": {"lr": RATE, "optim": "a", "data_config.seed": 1},
                },
                "job.training_config.hyperparameters.max_steps",
                "must be a whole number in digits, from 1 to 999999999999",
            )
            for given in ("many", "", "9e2", 900.0, "-5", "0", "1000000000000")
        ),
        (
            {
                "job": with_training(
                    SCRIPT, framework={"type": "CUSTOM", "custom_script_path": "a", "config": {"checkpoint_glob": "*"}}
                )
            },
            "job.training_config.framework.config.checkpoint_glob",
            "or use another method",
        ),
    ],
)
def test_what_is_refused(changes: dict[str, Any], field: str, says: str) -> None:
    found = refused(**{**POPULATION, **changes})

    assert found.field == field
    assert says in found.message


def test_a_script_decides_itself_what_its_checkpoints_contain() -> None:
    job = with_training(SCRIPT, hyperparameters={"max_steps": "900"})
    parameters = {"lr": RATE, "optim": {"values": ["adam", "sgd"]}, "data_config.seed": 1}

    check(SweepSpec.from_json(sweep(**{**POPULATION, "job": job, "parameters": parameters})))


def test_another_budget_has_room_for_every_member() -> None:
    def changed(most: int) -> SweepSpec:
        return SweepSpec.from_json(sweep(**{**POPULATION, "budget": {"max_trials": most}}))

    check_other_budget(changed(9), DEFAULT)
    with pytest.raises(BadSpec, match=r"is 8, more than budget\.max_trials, 7") as caught:
        check_other_budget(changed(7), DEFAULT)

    assert caught.value.field == "method.population"
