"""Every scheduler of the table gives the learning rates it promises."""

import copy
from pathlib import Path

import pytest
import torch
from transformers import get_scheduler

from app.domain.spec.hyperparameters.parsing import parse
from app.domain.spec.hyperparameters.tables import PLATEAU, SCHEDULERS
from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.loop.lr_schedule import scale, scheduler_kwargs

STEPS = 20


def scheduler(name, optimizer, *, factor=1.0, **values):
    hyperparameters = parse("HF_TRAINER", "SFT", {"lr_scheduler_type": name, "learning_rate": "1", **values})
    spec = RunSpec(
        run_dir=Path("/run"),
        framework="HF_TRAINER",
        training_type="SFT",
        hyperparameters=hyperparameters,
        model_path="",
        data_paths=(),
        adjustments={"learning_rate_factor": factor},
    )
    kwargs = scheduler_kwargs(spec, STEPS)
    return get_scheduler(name, optimizer, int(hyperparameters["warmup_steps"]), STEPS, scheduler_specific_kwargs=kwargs)


def rates(name, **values):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, found = scheduler(name, optimizer, **values), []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return [*found, optimizer.param_groups[0]["lr"]]


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != PLATEAU])
def test_rate_never_exceeds_the_peak(name):
    assert 0 <= min(rates(name)) <= max(rates(name)) <= 1


@pytest.mark.parametrize(
    ("name", "values", "last"),
    [
        ("linear", {}, 0.0),
        ("cosine_with_min_lr", {"min_lr_rate": "0.25"}, 0.25),
        ("cosine_warmup_with_min_lr", {"min_lr_rate": "0.25", "warmup_steps": "4"}, 0.25),
        ("polynomial", {"lr_end": "0.125", "lr_power": "2"}, 0.125),
        ("warmup_stable_decay", {"min_lr_rate": "0.5", "lr_decay_ratio": "0.2"}, 0.5),
        ("constant", {}, 1.0),
    ],
)
def test_rate_ends_at_the_configured_value(name, values, last):
    assert rates(name, **values)[-1] == pytest.approx(last, abs=0.01)


def test_warmup_starts_at_the_configured_rate():
    assert rates("cosine_warmup_with_min_lr", warmup_lr_rate="0.5", warmup_steps="4")[0] == pytest.approx(0.5)
    assert rates("linear", warmup_steps="4")[:5] == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def test_restarts_go_back_to_the_peak():
    found = rates("cosine_with_restarts", lr_num_cycles="4")

    assert [step for step, rate in enumerate(found[:-1]) if rate == pytest.approx(1)] == [0, 5, 10, 15]


def test_stable_part_lasts_until_the_decay():
    found = rates("warmup_stable_decay", lr_decay_ratio="0.25", lr_decay_type="linear")

    assert found[:15] == pytest.approx([1] * 15)
    assert found[16] < 1


def test_higher_power_falls_faster():
    assert rates("polynomial", lr_power="3")[10] < rates("polynomial")[10]


def test_smaller_timescale_falls_faster():
    assert rates("inverse_sqrt", lr_timescale="2")[10] < rates("inverse_sqrt", lr_timescale="100")[10]


def test_plateau_lowers_the_rate_after_its_patience():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = scheduler(PLATEAU, optimizer, lr_plateau_factor="0.25", lr_plateau_patience="2")
    found = []
    for loss in (1.0, 1.0, 1.0, 1.0):
        schedule.step(loss)
        found.append(optimizer.param_groups[0]["lr"])

    assert found == [1.0, 1.0, 1.0, 0.25]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_lowered_schedule_goes_on_with_its_shape(name):
    """As after a rollback: what a checkpoint remembers is read into the schedule of the lower rate, then scaled."""
    halfway, losses = STEPS // 2, [1.0] * STEPS

    def stepped(schedule, optimizer, count):
        found = []
        for loss in losses[:count]:
            optimizer.step()
            schedule.step(*([loss] if name == PLATEAU else []))
            found.append(optimizer.param_groups[0]["lr"])
        return found

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = scheduler(name, optimizer)
    stepped(schedule, optimizer, halfway)
    saved = copy.deepcopy((schedule.state_dict(), optimizer.state_dict()))
    expected = stepped(schedule, optimizer, STEPS - halfway)

    lowered = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.25)
    schedule = scheduler(name, lowered, factor=0.25)
    schedule.load_state_dict(saved[0])
    lowered.load_state_dict(saved[1])
    scale(schedule, lowered, 0.25)

    assert stepped(schedule, lowered, STEPS - halfway) == pytest.approx([0.25 * rate for rate in expected])
