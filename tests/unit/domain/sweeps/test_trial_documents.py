"""The job document of a trial."""

import copy
from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.sweeps.documents import (
    references,
    trial_document,
    wire_text,
    with_all_data,
    with_evaluation,
    with_halts,
    with_halts_of_member,
    with_scheduling,
    with_words,
)
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.spec import EarlyStopping, Method
from tests.builders.submitted import changed, spec_of
from tests.unit.domain.sweeps.sweep_documents import JOB, SCRIPT


def document(job: dict[str, Any], **values: Value) -> dict[str, Any]:
    return trial_document(job, {name.replace("__", "."): each for name, each in values.items()}, name="t", labels={})


def test_hyperparameters_are_texts_and_fields_keep_their_type() -> None:
    found = document(
        JOB, learning_rate=2e-4, lora_r=8, use_dora=True, data_config__batch_size=4, data_config__streaming=False
    )

    assert found["training_config"]["hyperparameters"] == {
        "max_steps": "900",
        "learning_rate": "0.0002",
        "lora_r": "8",
        "use_dora": "true",
    }
    assert found["data_config"] == {**JOB["data_config"], "batch_size": 4, "streaming": False}


@pytest.mark.parametrize(
    ("value", "text"), [(8, "8"), (1e-05, "1e-05"), (0.1, "0.1"), (True, "true"), (False, "false"), ("a", "a")]
)
def test_values_as_text(value: Value, text: str) -> None:
    assert wire_text(value) == text


def test_sections_that_are_not_given_are_added() -> None:
    found = document({"training_config": {"evaluation": None}}, training_config__evaluation__steps=5, lora_r=4)

    assert found["training_config"] == {"evaluation": {"steps": 5}, "hyperparameters": {"lora_r": "4"}}


def test_an_entry_of_a_list_is_named_by_its_index() -> None:
    assert document(JOB, data_config__sources__0__weight=0.5)["data_config"]["sources"] == [
        {"path": "train.jsonl", "weight": 0.5}
    ]


def test_variables_are_added_to_the_environment() -> None:
    found = document(SCRIPT, environment__LR=0.1, environment__MODE="slow")

    assert found["training_config"]["environment"] == {"LR": "0.1", "MODE": "slow"}


def test_name_and_labels_are_those_of_the_trial() -> None:
    found = trial_document({**JOB, "name": "x", "labels": {"a": "1", "b": "2"}}, {}, name="y", labels={"b": "3"})

    assert (found["name"], found["labels"]) == ("y", {"a": "1", "b": "3"})


def test_the_job_of_the_sweep_stays_as_it_is() -> None:
    before = copy.deepcopy([JOB, SCRIPT])

    document(JOB, lora_r=8, data_config__sources__0__weight=0.5)
    document(SCRIPT, lr=0.1, optim="sgd")

    assert before == [JOB, SCRIPT]


def test_words_of_a_script_refer_to_values() -> None:
    found = document(SCRIPT, lr=0.1, optim="sgd", data_config__seed=7)

    assert found["training_config"]["framework"]["custom_arguments"] == ["--lr=0.1", "--opt", "sgd", "0.1/7"]
    assert found["training_config"]["hyperparameters"] == {"lr": "0.1", "optim": "sgd"}


def test_a_word_with_an_inactive_parameter_is_left_out() -> None:
    found = document(SCRIPT, optim="sgd", data_config__seed=7)

    assert found["training_config"]["framework"]["custom_arguments"] == ["--opt", "sgd"]


def test_references_are_found() -> None:
    job = {"training_config": {"framework": {"custom_command": ["a", "--x=$(sweep.x-1)$(other.y)"]}}}

    assert list(references(job)) == [("x-1", "job.training_config.framework.custom_command.1")]
    assert [name for name, _ in references(SCRIPT)] == ["lr", "optim", "lr", "data_config.seed"]
    assert list(references({"training_config": None})) == []


def test_scheduling_has_defaults_and_a_job_no_name() -> None:
    job = {**JOB, "name": "x", "scheduling_config": {"preemptible": False}}

    found = with_scheduling(job, {"preemptible": True, "on_preemption": "requeue"})

    assert found == {**JOB, "scheduling_config": {"preemptible": False, "on_preemption": "requeue"}}
    assert job["scheduling_config"] == {"preemptible": False}


def test_references_survive_in_the_document_that_trials_start_from() -> None:
    found = with_words(document(SCRIPT, lr=0.1), SCRIPT)

    assert found["training_config"]["framework"] == SCRIPT["training_config"]["framework"]
    assert with_words(document(JOB), JOB)["training_config"] == JOB["training_config"]


def test_a_job_of_another_shape_is_an_error() -> None:
    with pytest.raises(TypeError, match="weight is a field of an object"):
        document({"data_config": {"sources": ["x"]}}, data_config__sources__0__weight=1.0)


@pytest.mark.parametrize(
    ("rule", "evaluation"),
    [
        (EarlyStopping(), None),
        (EarlyStopping(name="asha", min=30, max=270), {"strategy": "steps", "steps": 30}),
        (EarlyStopping(name="asha", unit="epochs", min=1, max=9), {"strategy": "epoch"}),
    ],
)
def test_a_job_is_evaluated_at_every_rung(rule: EarlyStopping, evaluation: dict[str, Any] | None) -> None:
    job = {"training_config": {"framework": {"type": "HF_TRAINER"}}}

    assert with_evaluation(job, rule)["training_config"].get("evaluation") == evaluation


def test_a_job_that_says_when_it_evaluates_and_a_script_stay_as_they_are() -> None:
    rule = EarlyStopping(name="asha", min=30, max=270)
    for training in ({"framework": {"type": "CUSTOM"}}, {"framework": {"type": "FSDP"}, "evaluation": {}}):
        assert with_evaluation({"training_config": training}, rule) == {"training_config": training}


@pytest.mark.parametrize(("after", "at"), [(0, [100, 200]), (100, [200]), (200, None)])
def test_a_member_of_a_population_halts_at_every_interval_above_the_step_it_begins_with(
    after: int, at: list[int] | None
) -> None:
    job = {"training_config": {"hyperparameters": {"max_steps": "300"}}}

    found = with_halts_of_member(job, Method(name="pbt", interval=100), after=after)

    assert found["training_config"].get("halt_at") == (None if at is None else {"unit": "steps", "at": at})


def test_a_trial_halts_at_the_rungs_of_its_bracket() -> None:
    rule = EarlyStopping(name="hyperband", min=3, max=27, losers="pause")

    found = [with_halts({"training_config": {}}, rule, bracket)["training_config"] for bracket in range(3)]

    assert found == [{"halt_at": {"unit": "steps", "at": [3, 9]}}, {"halt_at": {"unit": "steps", "at": [9]}}, {}]


def test_a_training_with_all_data_measures_nothing_that_was_split_off() -> None:
    given = {"max_steps": "9", "load_best_model_at_end": "true", "early_stopping_patience": "2"}
    best = {"metric_for_best_model": "eval_loss", "greater_is_better": False, "save_steps": 3}
    job = {
        "training_config": {"hyperparameters": given, "evaluation": {"strategy": "steps", "steps": 3}},
        "data_config": {"validation_split": 0.1, "seed": 7},
        "output_config": {"checkpoint": best},
    }
    before = copy.deepcopy(job)

    found = with_all_data(job)

    assert found == {
        "training_config": {"hyperparameters": {"max_steps": "9"}, "evaluation": None},
        "data_config": {"validation_split": 0.0, "seed": 7},
        "output_config": {"checkpoint": {"metric_for_best_model": None, "greater_is_better": None, "save_steps": 3}},
    }
    assert job == before
    with pytest.raises(BadSpec, match="splits nothing off"):
        with_all_data({"training_config": {}, "data_config": {}})


@pytest.mark.parametrize("metric", ["eval_loss", None, "loss"])
def test_a_training_with_all_data_is_a_job_that_may_be_submitted(metric: str | None) -> None:
    benchmarks = [{"name": "exact_match", "dataset": {"path": "/srv/q.jsonl"}}]
    given = {"early_stopping_patience": "2", "early_stopping_threshold": "0.1"}
    changes = {
        "training_config.hyperparameters": given,
        "training_config.evaluations": [{"on": on, "benchmarks": benchmarks} for on in ("best", "end")],
        "data_config.validation_split": 0.1,
        "output_config.checkpoint": {"metric_for_best_model": metric, "resume_from_best": True},
    }
    job = changed(*changes.items())
    spec_of(job)

    found = with_all_data(job)

    spec_of(found)
    checkpoint = found["output_config"]["checkpoint"]
    assert (checkpoint["metric_for_best_model"], checkpoint["resume_from_best"]) == (
        ("loss", True) if metric == "loss" else (None, False)
    )
    assert [each["on"] for each in found["training_config"]["evaluations"]] == (
        ["best", "end"] if metric == "loss" else ["end"]
    )


def test_a_schedule_by_evaluations_does_not_train_on_all_data() -> None:
    job = {
        "training_config": {"hyperparameters": {"lr_scheduler_type": "reduce_lr_on_plateau"}},
        "data_config": {"validation_split": 0.1},
    }

    with pytest.raises(BadSpec, match="choose another schedule") as refused:
        with_all_data(job)

    assert refused.value.field == "training_config.hyperparameters.lr_scheduler_type"
