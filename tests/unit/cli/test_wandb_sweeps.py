"""Sweep files of Weights & Biases as documents of ours."""

from typing import Any

import pytest

from app.cli.client.sweeps.wandb import NotTranslated, translated
from app.domain.sweeps.rules import document as rules
from app.domain.sweeps.spec import SweepSpec
from app.schemas.tuning.sweeps import CreateSweepSchema
from tests.builders.factories import make_document

TRAINER = make_document(
    data_config={"validation_split": 0.1}, training_config={"hyperparameters": {"max_steps": "900"}}
)
SCRIPT = make_document(
    training_config={"framework": {"type": "CUSTOM", "custom_script_path": "/srv/train.py"}, "hyperparameters": {}}
)
CONFIG: dict[str, Any] = {
    "method": "bayes",
    "metric": {"name": "eval/loss", "goal": "minimize"},
    "parameters": {"learning_rate": {"min": 1e-5, "max": 1e-2}},
    "run_cap": 20,
}


def document(job: dict[str, Any] = TRAINER, **changes: Any) -> dict[str, Any]:
    return translated({**CONFIG, **changes}, job, default_name="sweep")[0]


def refused(job: dict[str, Any] = TRAINER, **changes: Any) -> str:
    with pytest.raises(NotTranslated) as caught:
        document(job, **changes)
    return str(caught.value)


def test_a_translated_file_is_a_document_that_the_api_accepts() -> None:
    found = document(name="mine", early_terminate={"type": "hyperband", "min_iter": 100, "eta": 3})

    spec: SweepSpec = CreateSweepSchema().load(found)

    assert rules.check(spec).parameters[0].name == "learning_rate"
    assert found == {
        "name": "mine",
        "job": {name: value for name, value in TRAINER.items() if name != "name"},
        "parameters": {"learning_rate": {"type": "double", "min": 1e-5, "max": 1e-2}},
        "method": {"name": "tpe"},
        "objective": {"metric": "eval_loss", "goal": "minimize"},
        "budget": {"parallel_trials": "free", "max_trials": 20},
        "early_stopping": {"name": "asha", "unit": "steps", "min": 100, "max": 900, "reduction": 3},
    }


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"value": 8}, {"values": [8]}),
        ({"value": "adamw", "distribution": "constant"}, {"values": ["adamw"]}),
        ({"values": [8, 16], "distribution": "categorical"}, {"values": [8, 16]}),
        ({"values": ["1e-5", "2.5E-4", "1e", "e5"]}, {"values": [1e-5, 2.5e-4, "1e", "e5"]}),
        ({"min": 1, "max": 8}, {"type": "int", "min": 1, "max": 8}),
        ({"min": 1, "max": 8.0}, {"type": "double", "min": 1, "max": 8.0}),
        ({"min": 1, "max": 8, "distribution": "uniform"}, {"type": "double", "min": 1, "max": 8}),
        ({"min": 1, "max": 8, "distribution": "int_uniform"}, {"type": "int", "min": 1, "max": 8}),
        (
            {"min": "1e-5", "max": 0.1, "distribution": "log_uniform_values"},
            {"type": "double", "min": 1e-5, "max": 0.1, "scale": "log"},
        ),
        (
            {"min": 0, "max": 1, "distribution": "log_uniform"},
            {"type": "double", "min": 1.0, "max": pytest.approx(2.718281828), "scale": "log"},
        ),
        ({"min": 8, "max": 64, "q": 8, "distribution": "q_uniform"}, {"type": "int", "min": 8, "max": 64, "step": 8}),
        (
            {"min": 0.0, "max": 0.5, "q": 0.1, "distribution": "q_uniform"},
            {"type": "double", "min": 0.0, "max": 0.5, "step": 0.1},
        ),
    ],
)
def test_parameters_with_an_equal_of_ours(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    assert document(SCRIPT, parameters={"x": raw})["parameters"] == {"x": expected}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"distribution": "normal", "mu": 0, "sigma": 1}, "parameters.x.mu: has no translation"),
        ({"distribution": "inv_log_uniform", "min": 1, "max": 2}, "x.distribution: 'inv_log_uniform' has no"),
        ({"distribution": "q_log_uniform_values", "min": 1, "max": 2, "q": 1}, "has no translation; known: constant"),
        ({"values": [1, 2], "probabilities": [0.1, 0.9]}, "x.probabilities: has no translation"),
        ({"values": [1], "distribution": "uniform"}, "has no values"),
        ({"values": []}, "x.values: must be a list"),
        ({"value": None}, "must be a number, a text"),
        ({"min": 1}, "parameters.x.max: None must be a finite number"),
        ({"min": "a", "max": 2}, "parameters.x.min: 'a' must be"),
        ({"min": 1, "max": True}, "parameters.x.max: True must be"),
        ({"min": 1, "max": 1000, "distribution": "log_uniform"}, "too large"),
        ({"min": 1, "max": 3, "q": 1}, "x.q: counts for q_uniform only"),
        ({"parameters": {"a": {"value": 1}}}, "x.parameters: nested"),
        (8, "parameters.x: must be a mapping"),
    ],
)
def test_parameters_without_one_are_named(raw: object, said: str) -> None:
    assert said in refused(SCRIPT, parameters={"x": raw})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "hyperopt"}, "method: 'hyperopt' must be one of grid, random, bayes"),
        ({"metric": {"goal": "minimize"}}, "metric.name: is missing"),
        ({"metric": None}, "metric: is missing"),
        ({"metric": {"name": "x", "impute": "latest"}}, "metric.impute: has no translation"),
        ({"metric": {"name": "x", "goal": "up"}}, "metric.goal: 'up' must be one of"),
        ({"parameters": None}, "parameters: is missing"),
        ({"parameters": {"a.b": {"value": 1}}}, "parameters.a.b: dots"),
        ({"controller": {"type": "local"}}, "controller: has no translation"),
        ({"run_cap": 0}, "run_cap: 0 must be a whole number"),
        ({"early_terminate": {"type": "envelope"}}, "early_terminate.type: 'envelope'"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 3, "strict": True}}, "early_terminate.strict"),
        ({"early_terminate": {"type": "hyperband"}}, "early_terminate.min_iter: None must be"),
        ({"early_terminate": {"type": "hyperband", "max_iter": 27}}, "early_terminate.s: is missing"),
        ({"program": "train.py"}, "program: the job's framework runs its own trainer"),
    ],
)
def test_what_has_no_translation_is_named(changes: dict[str, Any], said: str) -> None:
    assert said in refused(**changes)


def test_a_sweep_must_end() -> None:
    endless = {name: value for name, value in CONFIG.items() if name != "run_cap"}

    with pytest.raises(NotTranslated, match="run_cap: is missing"):
        translated(endless, TRAINER, default_name="sweep")
    assert "max_trials" not in translated({**endless, "method": "grid"}, TRAINER, default_name="sweep")[0]["budget"]


@pytest.mark.parametrize(
    ("rule", "rungs"),
    [
        ({"min_iter": 3}, (3, 900)),
        ({"min_iter": 3, "s": 2, "eta": 4}, (3, 48)),
        ({"max_iter": 27, "s": 2}, (3, 27)),
        ({"max_iter": 2700, "s": 2}, (300, 900)),
    ],
)
def test_brackets_are_rungs_within_the_jobs_steps(rule: dict[str, Any], rungs: tuple[int, int]) -> None:
    found = document(early_terminate={"type": "hyperband", **rule})["early_stopping"]

    assert (found["min"], found["max"]) == rungs


def test_rungs_of_a_script_need_an_end() -> None:
    assert "early_terminate.s: is missing" in refused(SCRIPT, early_terminate={"type": "hyperband", "min_iter": 3})


def test_keys_of_their_service_have_a_warning() -> None:
    config = {**CONFIG, "project": "p", "entity": "e", "description": "d"}

    assert translated(config, TRAINER, default_name="s")[1] == [
        "project: has no effect here",
        "entity: has no effect here",
        "description: has no effect here",
    ]


def framework(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = document(SCRIPT, parameters={"lr": {"min": 0.1, "max": 0.2}}, **changes)["job"]
    return dict(found["training_config"]["framework"])


def test_a_script_gets_the_arguments_that_an_agent_would_pass() -> None:
    command = ["${env}", "python3", "${program}", "--fast", "${args_no_hyphens}"]

    assert framework(program="train.py")["custom_arguments"] == ["--lr=$(sweep.lr)"]
    assert framework(command=command)["custom_arguments"] == ["--fast", "lr=$(sweep.lr)"]
    assert document(SCRIPT, metric={"name": "eval/loss"})["objective"]["metric"] == "eval/loss"


def test_arguments_that_the_job_passes_itself_stay() -> None:
    job = make_document(
        training_config={
            "framework": {"type": "CUSTOM", "custom_script_path": "/srv/a.py", "custom_arguments": ["$(sweep.lr)"]}
        }
    )

    found = document(job, parameters={"lr": {"value": 1.0}})

    assert found["job"]["training_config"]["framework"]["custom_arguments"] == ["$(sweep.lr)"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"program": "other.py"}, "program: is other.py, and the job runs /srv/train.py"),
        ({"command": ["python", "${program}"]}, "command: must be a list that ends with"),
        ({"command": ["${args_json_file}", "${args}"]}, "${args_json_file} has no translation"),
        ({"command": "python train.py"}, "command: must be a list"),
    ],
)
def test_other_programs_and_commands_are_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refused(SCRIPT, **changes)
