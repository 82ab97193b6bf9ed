"""What is refused of a sweep's document, with the field that is named."""

import tracemalloc
from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.sweeps.rules.document import check, check_budget
from app.domain.sweeps.spec import BOHB, METHODS, PBT, SweepSpec
from tests.unit.domain.sweeps.sweep_documents import JOB, PLAIN, RATE, SCRIPT, refused, sweep, with_training

WHOLE = {"type": "int", "min": 1, "max": 4}
PPO = with_training(JOB, training_type="RLHF", hyperparameters={"algorithm": "ppo"})
WITHOUT_VALIDATION = {**JOB, "data_config": {"sources": [{"path": "train.jsonl"}]}}
EPOCHS = with_training(JOB, hyperparameters={"num_train_epochs": "5"})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        PLAIN,
        {"early_stopping": {"name": "hyperband", "min": 100, "max": 900}},
        {"early_stopping": {"name": "patience", "min": 100, "max": 900}},
        {"job": EPOCHS, "early_stopping": {"name": "median", "unit": "epochs", "min": 1, "max": 5}},
        {"early_stopping": {"name": "asha", "unit": "epochs", "min": 1, "max": 3}},
        {"objective": {"metric": "loss"}, "job": WITHOUT_VALIDATION},
        {"objective": {"metric": "tokens_per_second", "goal": "maximize"}},
        {"objective": {"metric": "report.gpu_time_ms", "goal": "minimize"}, "early_stopping": {}},
        {**PLAIN, "job": PPO, "objective": {"metric": "policy_loss"}},
        {
            **PLAIN,
            "job": SCRIPT,
            "objective": {"metric": "val/f1"},
            "parameters": {"lr": 1, "optim": "a", "data_config.seed": 1},
        },
        {
            **PLAIN,
            "parameters": {"environment.MODE": {"values": ["a", "b"]}, "base_model": 1},
            "job": with_training(SCRIPT, framework={"type": "CUSTOM"}),
        },
        {**PLAIN, "parameters": {"training_config.base_model.model_id": {"values": ["a", "b"]}, "environment.OMP": 2}},
        {**PLAIN, "parameters": {"data_config.sources.0.weight": {"type": "double", "min": 0.1, "max": 1}}},
        {**PLAIN, "parameters": {"data_config.validation_split": {"values": [0.1, 0.2]}}, "job": WITHOUT_VALIDATION},
        {**PLAIN, "method": {"name": "grid"}, "parameters": {"lora_r": {"values": [4, 8]}}, "budget": {}},
        {**PLAIN, "method": {"name": "cmaes", "sigma0": 0.2}, "parameters": {"learning_rate": RATE, "lora_r": WHOLE}},
        {
            **PLAIN,
            "method": {"name": "nsga2"},
            "objective": [{"metric": "eval_loss"}, {"metric": "tokens_per_second", "goal": "maximize"}],
            "budget": {"max_trials": 9},
        },
        {"budget": {"max_seconds": 60, "parallel_trials": "free"}},
        {"enqueue": [{"learning_rate": 1e-4, "lora_r": 8, "data_config.batch_size": 8, "lr_scheduler_type": "linear"}]},
        {"on_failed_trials": {"max_failed": 0.5}},
    ],
)
def test_what_is_accepted(changes: dict[str, Any]) -> None:
    space = check(SweepSpec.from_json(sweep(**changes)))

    assert {each.name for each in space.parameters} == set(sweep(**changes)["parameters"])


@pytest.mark.parametrize("name", [name for name in METHODS if name not in (BOHB, PBT)])
def test_every_method_searches_numbers(name: str) -> None:
    parameters = {"lora_r": WHOLE, "lora_alpha": WHOLE}

    space = check(SweepSpec.from_json(sweep(**{**PLAIN, "parameters": parameters, "method": {"name": name}})))

    assert [each.name for each in space.parameters] == ["lora_alpha", "lora_r"]


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"training_config": 5}, "job"),
        ({"data_config": {"sources": 5}}, "job"),
        (with_training(JOB, training_type="X"), "job.training_config.training_type"),
        (with_training(JOB, hyperparameters={"max_steps": "many"}), "job.training_config.hyperparameters.max_steps"),
        ({**JOB, "data_config": {"sources": [{"path": "x", "split": "[:"}]}}, "job.data_config.sources"),
    ],
)
def test_wrong_jobs(job: dict[str, Any], field: str) -> None:
    assert refused(parameters={"learning_rate": RATE}, require=[], job=job).field == field


def test_a_job_that_a_trial_cannot_be_made_of_is_refused() -> None:
    job = {**JOB, "data_config": {"sources": {"0": {"path": "x"}}}}

    assert refused(**{**PLAIN, "job": job}).field == "job"


@pytest.mark.parametrize(
    ("objective", "field", "part"),
    [
        ([], "objective", "1 to 4"),
        ([{"metric": f"m{i}"} for i in range(5)], "objective", "1 to 4"),
        ([{"metric": "loss"}, {"metric": "loss"}], "objective", "twice"),
        ({"metric": "eval_lost"}, "objective.metric", "did you mean eval_loss?"),
        ({"metric": "policy_loss"}, "objective.metric", "LORA does not measure"),
        ({"metric": ""}, "objective.metric", "1 to 128"),
        ({"metric": "report.colour"}, "objective.metric", "report.gpu_time_ms"),
        ({"metric": "benchmark:f1/f1"}, "objective.metric", "job.training_config.evaluations plans nothing"),
        ({"metric": "benchmark:f1"}, "objective.metric", "benchmark:NAME/METRIC"),
        ({"metric": "entropy"}, "objective.goal", "minimize or maximize"),
        ([{"metric": "loss"}, {"metric": "entropy"}], "objective.1.goal", "minimize or maximize"),
        ({"metric": "loss", "select": "median"}, "objective.select", "mean:N"),
    ],
)
def test_wrong_objectives(objective: Any, field: str, part: str) -> None:
    error = refused(objective=objective, early_stopping={}, budget={"max_trials": 9})

    assert error.field == field
    assert part in error.message


def test_a_metric_of_the_evaluation_needs_one() -> None:
    error = refused(job=WITHOUT_VALIDATION)

    assert (error.field, "validation_split" in error.message) == ("objective.metric", True)


@pytest.mark.parametrize(
    ("constraint", "field"),
    [
        ({"metric": "memory", "at_most": 1}, "constraints.0.metric"),
        ({"metric": "loss"}, "constraints.0"),
        ({"metric": "loss", "at_most": 1, "at_least": 2}, "constraints.0"),
        ({"metric": "loss", "at_most": float("inf")}, "constraints.0"),
        ({"metric": "loss", "at_most": 1, "select": "x"}, "constraints.0.select"),
    ],
)
def test_wrong_constraints(constraint: dict[str, Any], field: str) -> None:
    assert refused(constraints=[constraint]).field == field


def test_too_many_constraints() -> None:
    assert refused(constraints=[{"metric": "loss", "at_most": 1}] * 17).field == "constraints"


@pytest.mark.parametrize(
    ("method", "parameters", "part"),
    [
        ({"name": "bayes"}, PLAIN["parameters"], "must be one of"),
        ({"name": "cmaes"}, {"learning_rate": RATE, "use_dora": {"type": "bool"}}, "use_dora is bool"),
        ({"name": "cmaes"}, {"learning_rate": RATE, "lora_r": 8}, "at least two"),
    ],
)
def test_methods_that_do_not_suit_the_space(method: dict[str, Any], parameters: dict[str, Any], part: str) -> None:
    error = refused(**{**PLAIN, "method": method, "parameters": parameters})

    assert error.field == "method.name"
    assert part in error.message


@pytest.mark.parametrize("name", ["gp", "cmaes", "anneal", "bohb"])
def test_methods_of_one_objective(name: str) -> None:
    error = refused(
        **{**PLAIN, "method": {"name": name}, "objective": [{"metric": "loss"}, {"metric": "eval_loss"}]},
        budget={"max_trials": 9},
    )

    assert error.field == "method.name"


def test_bohb_learns_from_the_rungs_of_hyperband() -> None:
    bohb = {"method": {"name": "bohb"}}

    for rule in ({}, {"name": "asha", "min": 100, "max": 900}):
        error = refused(**bohb, early_stopping=rule)
        assert (error.field, "set early_stopping.name to hyperband" in error.message) == ("method.name", True)
    check(SweepSpec.from_json(sweep(**bohb, early_stopping={"name": "hyperband", "min": 100, "max": 900})))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("seed", -1),
        ("startup_trials", -1),
        ("sigma0", 0.0),
        ("restarts", -1),
        ("population", 1),
        ("avg_best_idx", 0.5),
        ("shrink_coef", -0.1),
        ("order", "random"),
    ],
)
def test_wrong_options_of_a_method(option: str, value: Any) -> None:
    assert refused(method={"name": "tpe", option: value}).field == f"method.{option}"


def test_a_grid_needs_points() -> None:
    grid = {**PLAIN, "method": {"name": "grid"}}

    assert refused(**grid).field == "parameters.learning_rate.step"
    assert refused(**{**grid, "parameters": {"lora_r": WHOLE}, "require": ["lora_r > 4"]}).field == "require"


def test_a_large_grid_needs_a_number_of_trials() -> None:
    wide = {"type": "int", "min": 1, "max": 101}
    grid = {**PLAIN, "method": {"name": "grid"}, "parameters": {"lora_r": wide, "lora_alpha": wide}}

    assert refused(**grid, budget={}).field == "budget.max_trials"
    check(SweepSpec.from_json(sweep(**grid, budget={"max_trials": 10})))
    check(SweepSpec.from_json(sweep(**{**grid, "require": ["lora_r < 90"]}, budget={})))


def test_a_condition_that_is_never_met() -> None:
    error = refused(require=["lora_r > 32"])

    assert (error.field, "never met" in error.message) == ("require", True)


@pytest.mark.parametrize(
    ("early_stopping", "field"),
    [
        ({"name": "halving"}, "name"),
        ({"name": "asha", "min": 0, "max": 900}, "min"),
        ({"name": "asha", "min": 10}, "max"),
        ({"name": "asha", "min": 901, "max": 900}, "max"),
        ({"name": "asha", "min": 10, "max": 901}, "max"),
        ({"name": "asha", "min": 10, "max": 900, "reduction": 1}, "reduction"),
        ({"name": "asha", "min": 10, "max": 900, "unit": "hours"}, "unit"),
        ({"name": "none", "unit": "tokens"}, "unit"),
        ({"name": "asha", "min": 10, "max": 900, "unit": "tokens", "losers": "pause"}, "unit"),
        ({"name": "asha", "min": 10, "max": 900 * 32 * 1024 + 1, "unit": "tokens"}, "max"),
        ({"name": "patience", "min": 10, "max": 900, "patience": 0}, "patience"),
        ({"name": "median", "min": 10, "max": 900, "startup_trials": 0}, "startup_trials"),
    ],
)
def test_wrong_early_stopping(early_stopping: dict[str, Any], field: str) -> None:
    assert refused(early_stopping=early_stopping).field == f"early_stopping.{field}"


def test_patience_has_a_limited_number_of_rungs() -> None:
    job = with_training(JOB, hyperparameters={"max_steps": "2000"})

    for most in (1_001, 2**31 - 1):
        found = refused(job=job, early_stopping={"name": "patience", "min": 1, "max": most})
        assert found.field == "early_stopping.min"


def test_rungs_of_patience_are_counted_without_making_them() -> None:
    spec = SweepSpec.from_json(sweep(early_stopping={"name": "patience", "min": 1, "max": 2**31 - 1}))
    tracemalloc.start()
    try:
        with pytest.raises(BadSpec, match="more than 1000 rungs"):
            check(spec)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 16 << 20  # bytes


def test_rungs_in_epochs_lie_below_the_last_one() -> None:
    rule = {"name": "asha", "unit": "epochs", "min": 1, "max": 6}

    assert refused(job=EPOCHS, early_stopping=rule).field == "early_stopping.max"


def test_rungs_in_tokens_need_evaluations_that_are_planned() -> None:
    rule = {"name": "asha", "unit": "tokens", "min": 10_000, "max": 900 * 32 * 1024}

    assert refused(early_stopping=rule).field == "job.training_config.evaluation"
    planned = with_training(JOB, evaluation={"strategy": "steps", "steps": 50})
    check(SweepSpec.from_json(sweep(job=planned, early_stopping=rule)))
    check(SweepSpec.from_json(sweep(objective={"metric": "loss"}, early_stopping=rule)))


def test_rungs_may_reach_as_far_as_the_longest_trial() -> None:
    changes = {
        **PLAIN,
        "parameters": {"max_steps": {"values": [100, 900]}},
        "early_stopping": {"name": "asha", "min": 100, "max": 900},
    }

    assert check(SweepSpec.from_json(sweep(**changes))).size == 2
    beyond = {**changes, "early_stopping": {"name": "asha", "min": 100, "max": 901}}
    assert refused(**beyond).field == "early_stopping.max"


def test_rungs_of_a_script_are_its_own_affair() -> None:
    changes = {"job": SCRIPT, "parameters": {"lr": 1, "optim": "a", "data_config.seed": 1}, "require": []}

    assert {each.name for each in check(SweepSpec.from_json(sweep(**changes))).parameters} == set(changes["parameters"])


def test_early_stopping_compares_one_objective() -> None:
    objectives = [{"metric": "loss"}, {"metric": "eval_loss"}]

    assert refused(objective=objectives, budget={"max_trials": 9}).field == "early_stopping.name"
    assert refused(objective={"metric": "report.tokens", "goal": "minimize"}).field == "early_stopping.name"


@pytest.mark.parametrize(
    ("budget", "field"),
    [
        ({}, "max_trials"),
        ({"max_trials": 0}, "max_trials"),
        ({"max_trials": 100_001}, "max_trials"),
        ({"max_trials": True}, "max_trials"),
        ({"max_trials": 9, "parallel_trials": 0}, "parallel_trials"),
        ({"max_trials": 9, "parallel_trials": "many"}, "parallel_trials"),
        ({"max_trials": 9, "max_device_hours": 0}, "max_device_hours"),
        ({"max_trials": 9, "max_seconds": -1}, "max_seconds"),
        ({"max_trials": 9, "patience": 0}, "patience"),
        ({"max_trials": 9, "target": float("nan")}, "target"),
        ({"max_trials": 9, "running": "pause"}, "running"),
    ],
)
def test_wrong_budgets(budget: dict[str, Any], field: str) -> None:
    assert refused(budget=budget).field == f"budget.{field}"
    with pytest.raises(BadSpec):
        check_budget(SweepSpec.from_json(sweep(budget=budget)))


@pytest.mark.parametrize("key", ["target", "patience"])
def test_several_objectives_have_no_best(key: str) -> None:
    error = refused(objective=[{"metric": "loss"}, {"metric": "eval_loss"}], budget={"max_trials": 9, key: 1})

    assert error.field == f"budget.{key}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"deterministic": True, "budget": {"max_trials": 9, "parallel_trials": "free"}}, "budget.parallel_trials"),
        ({"on_failed_trials": {"max_failed": 1.5}}, "on_failed_trials.max_failed"),
        ({"on_failed_trials": {"max_failed": -1}}, "on_failed_trials.max_failed"),
        ({"on_failed_trials": {"causes": ["DIVERGED", "SLOW"]}}, "on_failed_trials.causes.1"),
        ({"keep": {"checkpoints_of_best": -1}}, "keep.checkpoints_of_best"),
        ({"warm_start": {"count": True}}, "warm_start.count"),
        ({"warm_start": {"sweeps": ["sweep-1"], "kind": "transfer", "count": True}}, "warm_start.count"),
        ({"enqueue": [{"lora_r": 8}]}, "enqueue.0.data_config.batch_size"),
        ({"enqueue": [{}] * 10, "budget": {"max_trials": 9}}, "enqueue"),
    ],
)
def test_other_refusals(changes: dict[str, Any], field: str) -> None:
    assert refused(**changes).field == field


def test_limits_of_the_budget() -> None:
    assert refused(budget={"max_trials": 10_001}).field == "budget.max_trials"
    assert refused(budget={"max_trials": 9, "parallel_trials": 1_001}).field == "budget.parallel_trials"
