"""The effective batch stays the same, whatever becomes of memory and devices."""

from pathlib import Path
from typing import Any

import pytest

from trainyard.protocol.checkpoint_manifest import Manifest
from workers.rank.run_context import RunSpec
from workers.trainers.failures import InvalidConfig
from workers.trainers.hf_trainer.loop.batch_plan import batch_plan


class Context:
    """A run of a job; `before` is the checkpoint that it resumes from."""

    def __init__(self, spec, before=None, *, foreign=False):
        self.spec, self._before, self._foreign = spec, before, foreign

    def resume_manifest(self):
        return self._before

    def taken_over(self):
        return self._before if self._foreign else None


def plan(batch, accumulation, devices, *, halvings=0, before=None, foreign=False):
    spec = RunSpec(
        run_dir=Path("/run"),
        framework="HF_TRAINER",
        training_type="SFT",
        hyperparameters={},
        model_path="",
        data_paths=(),
        data_config={"batch_size": batch, "gradient_accumulation_steps": accumulation},
        world_size=devices,
        adjustments={"batch_halvings": halvings},
    )
    context: Any = Context(spec, before, foreign=foreign)
    found = batch_plan(context, context.spec.world_size)
    return found.batch_size, found.accumulation


def saved(devices, **position):
    return Manifest(job_id="job", attempt=1, step=3, world_size=devices, data_position=position)


@pytest.mark.parametrize(
    ("batch", "accumulation", "halvings", "expected"),
    [
        (8, 1, 0, (8, 1)),
        (8, 1, 1, (4, 2)),
        (8, 3, 2, (2, 12)),
        (8, 1, 3, (1, 8)),
        (8, 1, 4, (1, 8)),
        (6, 1, 1, (3, 2)),
        (5, 2, 1, (2, 5)),  # no half of 5: the largest batch that divides the 10 records and is not larger
    ],
)
def test_batches_are_halved_and_accumulated_more_often(batch, accumulation, halvings, expected):
    assert plan(batch, accumulation, 2, halvings=halvings) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(2, 1, (4, 4)), (1, 2, (4, 1)), (1, 4, (2, 1)), (4, 1, (4, 8)), (4, 2, (4, 4)), (2, 8, (2, 1))],
)
def test_other_devices_share_the_same_records(before, now, expected):
    assert plan(4, 2, now, before=saved(before)) == expected


def test_memory_that_ran_out_limits_batches_on_other_devices_too():
    assert plan(4, 2, 1, before=saved(2), halvings=1) == (2, 8)


def test_what_was_shared_before_counts_after_several_changes():
    """From 4 devices to 1 to 2: the checkpoint of the one device knows how many records a step has."""
    assert plan(4, 2, 2, before=saved(1, records_per_step=32)) == (4, 4)


def test_devices_that_do_not_fit_are_refused_with_those_that_do():
    with pytest.raises(InvalidConfig, match=r"16 records, which 3 devices .* one of 1, 2, 4, 8, 16$"):
        plan(4, 2, 3, before=saved(2))


def test_another_jobs_steps_were_its_own_affair():
    assert plan(4, 2, 1, before=saved(3), foreign=True) == (4, 2)
