"""Smaller batches, other devices, a lower rate: the records of each step stay the same, and nothing else changes."""

from typing import Any

import pytest

from tests.trainers.in_process import plan_of, rows_of, runs

pytestmark = pytest.mark.long

# Without dropout the same records give the same loss but for the order in which sums are rounded, in float32.
ROUNDING = 1e-5
NO_DROPOUT = {"base_model": {"model_kwargs": {"attention_dropout": 0.0}}, "evaluation": {"strategy": "no"}}
# 8 in a step: the last step of an epoch has one record, and ranks that share it fill it up.
RECORDS = 57
STEPS, STOP = 19, 11  # in the third epoch, and in the second


def plan(directory, assets, name, *, world_size=1, batch_size=0, values=(), **changes) -> dict[str, Any]:
    data = {
        "sources": [{"split": f"train[:{RECORDS}]"}],
        "batch_size": batch_size or 4 // world_size,
        "gradient_accumulation_steps": 2,
    }
    found = plan_of(
        directory / name,
        assets,
        "SFT",
        {"max_steps": str(STEPS), "learning_rate": "2e-3", **dict(values)},
        world_size=world_size,
        data_config=data,
        **{"training_config": NO_DROPOUT, "data_paths": [str(assets / "train.jsonl")], **changes},
    )
    return {**found, "records_rows": True}


def nearly(series):
    return {step: pytest.approx(value, rel=ROUNDING) for step, value in series.items()}


def since(series, step):
    return {each: value for each, value in series.items() if each > step}


@pytest.fixture(scope="module", params=[1, 2], ids=["1-rank", "2-ranks"])
def halved(request, assets, tmp_path_factory):
    """A run, the same with halved batches, and one resumed with halved batches (on one rank: halved twice)."""
    directory, ranks = tmp_path_factory.mktemp("halved"), request.param
    plans = {
        "whole": plan(directory, assets, "whole", world_size=ranks),
        "half": plan(directory, assets, "half", world_size=ranks, adjustments={"batch_halvings": 1}),
        "stopped": plan(directory, assets, "stopped", world_size=ranks) | {"stop_at": STOP},
        "further": plan(directory, assets, "further", world_size=ranks, adjustments={"batch_halvings": 2 // ranks})
        | {"resume_from": "stopped"},
    }
    return plans, runs(directory, plans, world_size=ranks)


@pytest.mark.timeout(300)  # the first one waits for all the runs
@pytest.mark.parametrize(("name", "before"), [("half", 0), ("further", STOP)])
def test_halved_batches_have_the_same_records_in_the_same_order_and_the_same_losses(halved, name, before):
    plans, outcomes = halved

    assert rows_of(plans[name]) == since(rows_of(plans["whole"]), before)
    assert outcomes[name].series("loss") == nearly(since(outcomes["whole"].series("loss"), before))


def test_memory_that_runs_out_is_reported_with_what_it_ran_out_for(assets, tmp_path):
    plans = {
        "fails": plan(tmp_path, assets, "fails"),
        "fits": plan(tmp_path, assets, "fits", adjustments={"batch_halvings": 1}),
    }
    found = runs(tmp_path, {name: {**one, "largest_batch": 2} for name, one in plans.items()})

    error = found["fails"].error or ""
    assert error.startswith("OUT_OF_MEMORY: the device's memory is not enough for batches of 4 records of up to 48 ")
    assert "gradient_accumulation_steps (2 now)" in error
    assert found["fits"].error is None
    assert found["fits"].result["step"] == STEPS


@pytest.fixture(scope="module")
def moved(assets, tmp_path_factory):
    """Two ranks, then one, then two again; beside a run on two ranks throughout."""
    directory = tmp_path_factory.mktemp("moved")

    def part(name, ranks, after="", **extra):
        start = {"resume_checkpoint": str(directory / after)} if after else {}
        return plan(directory, assets, name, world_size=ranks, batch_size=2, **start) | extra

    first = {"whole": part("whole", 2), "first": part("first", 2, stop_at=STOP)}
    second = {"second": part("second", 1, f"first/checkpoints/step-{STOP}", stop_at=STEPS - 2)}
    third = {"third": part("third", 2, f"second/checkpoints/step-{STEPS - 2}")}
    outcomes = runs(directory, first, world_size=2)
    outcomes |= runs(directory, second)
    outcomes |= runs(directory, third, world_size=2)
    return {**first, **second, **third}, outcomes


@pytest.mark.timeout(300)  # the first one waits for all the runs
def test_other_devices_leave_no_record_out_and_take_none_twice(moved):
    plans, outcomes = moved
    rows = {name: rows_of(one) for name, one in plans.items()}
    together = {**rows["first"], **rows["second"], **rows["third"]}

    assert [one.error for one in outcomes.values()] == [None] * 4
    assert [list(rows[name])[-1] for name in ("first", "second", "third")] == [STOP, STEPS - 2, STEPS]
    assert list(together) == list(range(1, STEPS + 1))
    # One rank alone has nothing to fill up at the end of an epoch.
    assert together == {step: found[: len(together[step])] for step, found in rows["whole"].items()}
    epoch = [row for step in range(9, 17) for row in together[step]]
    assert sorted(epoch) == sorted([row for step in range(1, 9) for row in together[step]][:RECORDS])


def test_other_devices_give_the_same_losses_but_for_rounding(moved):
    _, outcomes = moved
    whole = outcomes["whole"].series("loss")
    together = {**outcomes["first"].series("loss"), **outcomes["second"].series("loss")}

    assert since(together, STOP) == nearly({step: whole[step] for step in range(STOP + 1, 16)}) | since(together, 15)
    assert outcomes["third"].result["step"] == outcomes["whole"].result["step"]
    assert outcomes["third"].result["final_metrics"]["loss"] == pytest.approx(whole[STEPS], rel=0.02)


def test_history_says_that_other_devices_are_not_equal_to_the_last_bit(moved):
    _, outcomes = moved
    (note,) = outcomes["second"].notes

    assert note["reason"] == "NOT_BIT_EQUAL"
    assert "with 1 devices instead of 2" in note["message"]
    assert "none is skipped or repeated" in note["message"]
    assert note["data"] == {
        "step": STOP,
        "devices_before": 2,
        "devices": 1,
        "batch_size": 2,
        "gradient_accumulation_steps": 4,
        "records_per_step": 8,
    }
    assert outcomes["whole"].notes == []


def test_run_whose_loss_explodes_goes_on_with_a_lower_rate_from_before(assets, tmp_path):
    values = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": "60", "max_steps": "60"}
    wild = {**values, "learning_rate": "2", "max_grad_norm": "0"}
    saved = {"output_config": {"checkpoint": {"save_steps": 2}}}
    exploded = runs(tmp_path, {"wild": plan(tmp_path, assets, "wild", values=wild, **saved)})["wild"]
    error = exploded.error or ""
    since = int(error.split("exploded at step ")[1].split(":")[0])
    newest = exploded.checkpoints[-1]
    lower = plan(
        tmp_path, assets, "lower", values=wild, resume_checkpoint=newest, adjustments={"learning_rate_factor": 1e-3}
    )
    found = runs(tmp_path, {"lower": lower})["lower"]

    assert error.startswith("DIVERGED")
    # While the loss is suspected nothing is saved, so that the newest checkpoint is one to go back to.
    assert since - 2 <= int(newest.rpartition("-")[2]) < since
    assert (found.error, found.result["step"]) == (None, 60)


@pytest.mark.parametrize(("scheduler", "more"), [("cosine", {}), ("polynomial", {"lr_end": "1e-4"})])
def test_lower_rate_after_a_rollback_keeps_the_shape_of_the_schedule(assets, tmp_path, scheduler, more):
    values = {"lr_scheduler_type": scheduler, "warmup_steps": "4", **more}
    plans = {
        "whole": plan(tmp_path, assets, "whole", values=values),
        "stopped": plan(tmp_path, assets, "stopped", values=values) | {"stop_at": STOP},
        "lower": plan(tmp_path, assets, "lower", values=values, adjustments={"learning_rate_factor": 0.25})
        | {"resume_from": "stopped"},
    }
    found = runs(tmp_path, plans)

    rates = since(found["whole"].series("learning_rate"), STOP)
    assert found["lower"].series("learning_rate") == {step: pytest.approx(0.25 * rate) for step, rate in rates.items()}
