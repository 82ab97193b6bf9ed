"""Steps that two trainings have in common: never more than they have, and none where that is unknown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import BadSpec
from app.domain.spec.defaults import completed
from app.domain.spec.document import typed_hyperparameters
from app.domain.spec.hyperparameters.parameter import Hyperparameter, display
from app.domain.spec.hyperparameters.schedules import Schedule
from app.domain.spec.hyperparameters.tables import TABLES
from app.domain.spec.model import JobDocument
from app.domain.sweeps.rules.document import check
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.trunks import FRAMEWORKS, check_sharing, first_difference, latest_branch, shared_names
from tests.builders.factories import make_document
from tests.unit.domain.sweeps.sweep_documents import JOB, SCRIPT, sweep

DECAY = {"lr_scheduler_type": "warmup_stable_decay", "lr_decay_ratio": "0.2", "lr_decay_type": "linear"}
PAIRS = [pair for pair in TABLES if pair[0] in FRAMEWORKS and pair[1] != "RLHF"]


def job(
    hyperparameters: dict[str, str], *, pair: tuple[str, str] = ("HF_TRAINER", "SFT"), **changes: Any
) -> JobDocument:
    training = {
        "training_type": pair[1],
        "framework": {"type": pair[0]},
        "hyperparameters": hyperparameters,
        **changes.pop("training_config", {}),
    }
    return completed(JobDocument.from_json(make_document(training_config=training, **changes)))


def common(first: dict[str, str], second: dict[str, str], **changes: Any) -> int:
    """Of two jobs that differ in these hyperparameters only, whichever comes first."""
    found = first_difference(job(first, **changes), job(second, **changes))
    assert found == first_difference(job(second, **changes), job(first, **changes))
    return found


@pytest.mark.parametrize(
    ("first", "second", "steps"),
    [
        # The first step of a decay still has the whole rate: the next one is the first that differs.
        ({"max_steps": "100"}, {"max_steps": "300"}, 81),
        ({"max_steps": "300"}, {"max_steps": "300", "lr_decay_ratio": "0.5"}, 151),
        ({"max_steps": "300"}, {"max_steps": "300", "lr_decay_type": "cosine"}, 241),
        ({"max_steps": "300"}, {"max_steps": "300", "min_lr_rate": "0.5"}, 241),
        ({"max_steps": "300"}, {"max_steps": "300", "logging_steps": "7"}, 300),
        # The lowest rate is also where a warm-up begins.
        ({"max_steps": "300", "warmup_steps": "9"}, {"max_steps": "300", "warmup_steps": "9", "min_lr_rate": "0.5"}, 0),
        ({"max_steps": "100", "warmup_steps": "9"}, {"max_steps": "300", "warmup_steps": "9"}, 81),
        # A share of all steps: 10 of 100, 30 of 300.
        ({"max_steps": "100", "warmup_ratio": "0.1"}, {"max_steps": "300", "warmup_ratio": "0.1"}, 0),
        ({"max_steps": "100", "warmup_ratio": "0.1"}, {"max_steps": "300", "warmup_steps": "10"}, 81),
        ({"max_steps": "300"}, {"max_steps": "300", "learning_rate": "7e-3"}, 0),
    ],
)
def test_stable_phase_is_common(first: dict[str, str], second: dict[str, str], steps: int) -> None:
    assert common({**DECAY, **first}, {**DECAY, **second}) == steps


@pytest.mark.parametrize(
    ("scheduler", "steps"), [("constant", 100), ("constant_with_warmup", 100), ("linear", 0), ("inverse_sqrt", 0)]
)
def test_longer_training_goes_on_where_the_rate_does_not_depend_on_the_length(scheduler: str, steps: int) -> None:
    evaluation = {"evaluation": {"strategy": "steps", "steps": 50}}
    values = {"lr_scheduler_type": scheduler}

    assert common({**values, "max_steps": "100"}, {**values, "max_steps": "300"}, training_config=evaluation) == steps


@pytest.mark.parametrize("evaluation", [{"strategy": "steps", "steps": 30}, {"strategy": "epoch"}, {"strategy": "no"}])
def test_evaluation_at_the_end_of_the_shorter_one_is_not_common(evaluation: dict[str, Any]) -> None:
    values, training = {"lr_scheduler_type": "constant"}, {"evaluation": evaluation}

    assert common({**values, "max_steps": "100"}, {**values, "max_steps": "300"}, training_config=training) == 99


@pytest.mark.parametrize(
    "change",
    [
        {"data_config": {"seed": 7}},
        {"data_config": {"batch_size": 3}},
        {"training_config": {"evaluation": {"strategy": "steps", "steps": 10}}},
        {"training_config": {"environment": {"MODE": "fast"}}},
        {"output_config": {"checkpoint": {"save_steps": 7}}},
        {"resource_config": {"gpu_count": 2}},
    ],
)
def test_whatever_else_differs_matters_from_the_start(change: dict[str, Any]) -> None:
    values = {**DECAY, "max_steps": "300"}

    assert first_difference(job(values), job(values, **change)) == 0


def test_names_scheduling_and_what_is_saved_never_matter() -> None:
    values = {**DECAY, "max_steps": "300"}
    other = job(
        values,
        name="another",
        labels={"a": "b"},
        scheduling_config={"priority": 9},
        training_config={"max_retries": 1},
        output_config={"checkpoint": {"save_at": [100], "save_total_limit": 9}},
    )

    assert first_difference(job(values), other) == 300


@pytest.mark.parametrize(
    ("first", "second", "steps"),
    [
        ({"unit": "steps", "at": [10, 30]}, {"unit": "steps", "at": [10, 50]}, 29),
        ({"unit": "steps", "at": [10, 400]}, {"unit": "steps", "at": [10]}, 300),
        ({"unit": "steps", "at": [10]}, None, 9),
        ({"unit": "epochs", "at": [1]}, {"unit": "epochs", "at": [2]}, 0),
        ({"unit": "epochs", "at": [1]}, {"unit": "epochs", "at": [1]}, 300),
    ],
)
def test_both_must_halt_at_the_same_steps(first: Any, second: Any, steps: int) -> None:
    values = {**DECAY, "max_steps": "300"}
    documents = [job(values, training_config={"halt_at": halts}) for halts in (first, second)]

    assert first_difference(*documents) == steps


@pytest.mark.parametrize(
    "values", [{"early_stopping_patience": "3"}, {"load_best_model_at_end": "true"}, {"max_steps": "-1"}]
)
def test_training_whose_past_decides_has_nothing_in_common(values: dict[str, str]) -> None:
    assert common({**DECAY, "max_steps": "300", **values}, {**DECAY, "max_steps": "300", **values}) == 0


def test_streamed_data_and_rlhf_have_nothing_in_common() -> None:
    values = {**DECAY, "max_steps": "300"}

    assert common(values, values, data_config={"streaming": True}) == 0
    assert common(values, values, pair=("HF_TRAINER", "RLHF")) == 0
    assert common(values, values, pair=("MEGATRON", "SFT")) == 0


def others(item: Hyperparameter) -> st.SearchStrategy[Any]:
    if item.kind == "bool":
        return st.booleans()
    if item.kind == "choice":
        return st.sampled_from(item.choices)
    if item.kind == "int":
        return st.integers(int(item.minimum or 0), 400)
    if item.kind == "float":
        return st.floats(item.minimum or 0.0, min(item.maximum or 1.0, 1.0))
    return st.just("q_proj")


@given(st.data())
def test_no_step_is_claimed_that_differs(data: st.DataObject) -> None:
    """Over the tables: a value that matters from the start leaves nothing, one of the rate what has equal rates."""
    pair = data.draw(st.sampled_from(PAIRS))
    item = data.draw(st.sampled_from(TABLES[pair]))
    values = {
        "lr_scheduler_type": data.draw(st.sampled_from(["constant", "constant_with_warmup", "warmup_stable_decay"])),
        "max_steps": str(data.draw(st.integers(1, 400))),
    }
    changed = {**values, item.name: display(data.draw(others(item)))}
    first, second = job(values, pair=pair), job(changed, pair=pair)

    steps = first_difference(first, second)
    if item.matters == "start":
        typed = item.parse(changed[item.name])
        assert steps == 0 or typed == typed_hyperparameters(first).get(item.name, item.default)
    if steps:
        a, b = (Schedule.of(typed_hyperparameters(each)) for each in (first, second))
        assert a is not None
        assert b is not None
        assert steps <= min(a.total, b.total)
        assert [a.factor(step) for step in range(steps)] == [b.factor(step) for step in range(steps)]


def spec(**changes: Any) -> SweepSpec:
    parameters = {"max_steps": {"type": "int", "values": [100, 300]}, "learning_rate": {"values": [1e-4, 1e-3]}}
    return SweepSpec.from_json(sweep(**{"parameters": parameters, "require": [], "early_stopping": {}, **changes}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"job": {**SCRIPT, "resource_config": {"gpu_count": 1}}}, "CUSTOM does not"),
        ({"objective": {"metric": "report.gpu_time_ms"}}, "report.gpu_time_ms of a trial"),
        ({"constraints": [{"metric": "report.attempts", "at_most": 1}]}, "report.attempts of a trial"),
        ({"method": {"name": "pbt"}}, "pbt chooses itself"),
        ({"parameters": {"learning_rate": {"values": [1e-3, 1e-4]}}}, "every parameter matters from the first step on"),
    ],
)
def test_sweeps_that_cannot_share_say_why(changes: dict[str, Any], reason: str) -> None:
    found = spec(**changes)
    document = JobDocument.from_json(dict(found.job))

    assert shared_names(found, document) == frozenset()
    asked = spec(**changes, share_trunks=True)
    with pytest.raises(BadSpec, match=f"{reason}.*or set it to false") as refused:
        check_sharing(asked, document)
    assert refused.value.field == "share_trunks"


def test_trials_share_where_they_can_unless_they_must_not() -> None:
    document = JobDocument.from_json(JOB)

    assert shared_names(spec(), document) == {"max_steps"}
    assert shared_names(spec(share_trunks=True), document) == {"max_steps"}
    assert shared_names(spec(share_trunks=False), document) == frozenset()
    assert check(spec(share_trunks=True)).size == 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"share_trunks": False}, "share_trunks is false"),
        ({"constraints": [{"metric": "report.attempts", "at_most": 1}]}, "report.attempts of a trial"),
        ({"early_stopping": {"name": "asha", "min": 100, "max": 300, "losers": "pause"}}, "never halts"),
    ],
)
def test_forks_that_there_are_none_of_can_not_be_verified(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSpec, match=reason) as refused:
        check_sharing(spec(**changes, verify_trunks=1), JobDocument.from_json(JOB))
    assert refused.value.field == "verify_trunks"


def test_trial_that_halts_trains_up_to_its_first_rung_itself() -> None:
    halting = {"name": "asha", "min": 100, "max": 300}

    assert latest_branch(spec(), 300) == 300
    assert latest_branch(spec(early_stopping=halting), 300) == 300
    assert latest_branch(spec(early_stopping={**halting, "losers": "pause"}), 300) == 99
    assert latest_branch(spec(early_stopping={**halting, "losers": "pause", "unit": "epochs"}), 300) == 0
