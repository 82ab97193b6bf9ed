"""What is reported of a step: every number that users see, and NaN as it is."""

import math
import time
from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest

from workers.trainers.failures import NonFiniteLoss
from workers.trainers.hf_trainer.monitoring.reporting import Reporting, Totals

ARGS: Any = SimpleNamespace(get_warmup_steps=lambda _: 0, fp16=False)
CONTROL: Any = None


class Context:
    """Records what is reported."""

    rank = 0

    def __init__(self):
        self.points, self.progress = [], []

    def report_metrics(self, step, values):
        self.points.append((step, values))

    def report_progress(self, progress):
        self.progress.append(progress)


class Run:
    """A trainer's events, without a trainer."""

    def __init__(self, *, step=0, tokens=0):
        context: Any = Context()
        state: Any = SimpleNamespace(global_step=step, max_steps=100, epoch=0.0, log_history=[])
        self.context, self.state = context, state
        self.reporting = Reporting(context, Totals(tokens=tokens), records_per_step=16)
        self.reporting.on_train_begin(ARGS, self.state, CONTROL)

    def steps(self, count, *, loss=1.0, num_tokens=0, seconds=0.0):
        for _ in range(count):
            time.sleep(seconds)
            self.state.global_step += 1
            self.state.epoch += 0.1
            self.reporting.on_step_end(ARGS, self.state, CONTROL)
        logs = {"loss": loss, "learning_rate": 0.1, "grad_norm": 2.0, "num_tokens": num_tokens}
        self.reporting.on_log(ARGS, self.state, CONTROL, logs=logs)


def test_a_step_has_all_that_a_person_looks_at():
    run = Run()
    run.steps(1, num_tokens=640, seconds=0.02)

    ((step, values),) = run.context.points
    assert step == 1
    assert (values["loss"], values["learning_rate"], values["grad_norm"], values["epoch"]) == (1.0, 0.1, 2.0, 0.1)
    assert values["step_seconds"] >= 0.02
    assert values["samples_per_second"] == pytest.approx(16 / values["step_seconds"])
    assert values["tokens_per_second"] == pytest.approx(640 / values["step_seconds"])
    assert values["tokens"] == 640


def test_several_steps_between_two_logs_share_them():
    run = Run()
    run.steps(4, num_tokens=400, seconds=0.005)

    ((_, values),) = run.context.points
    assert values["samples_per_second"] == pytest.approx(16 / values["step_seconds"])
    assert values["tokens_per_second"] == pytest.approx(100 / values["step_seconds"])


def test_evaluating_and_saving_are_no_step_time():
    run = Run()
    run.steps(1, seconds=0.005)
    time.sleep(0.5)  # the evaluation
    run.reporting.on_evaluate(ARGS, run.state, CONTROL)
    run.steps(1, seconds=0.005)

    assert run.context.points[1][1]["step_seconds"] < 0.4


def test_checkpoint_has_an_evaluation_only_of_its_own_weights():
    run = Run()
    run.steps(1)
    run.reporting.on_log(ARGS, run.state, CONTROL, logs={"eval_loss": 0.5})
    run.reporting.on_evaluate(ARGS, run.state, CONTROL)

    assert run.reporting.metrics_at(1)["eval_loss"] == 0.5

    run.steps(1, loss=0.9)
    assert run.reporting.metrics_at(2)["loss"] == 0.9
    assert "eval_loss" not in run.reporting.metrics_at(2)


def test_progress_counts_the_tokens_of_earlier_attempts():
    run = Run(step=50, tokens=1000)
    run.steps(1, num_tokens=64)

    assert [p.step for p in run.context.progress] == [50, 51, 51]
    assert run.context.progress[-1].tokens == 1064
    assert run.context.progress[-1].total_steps == 100


@pytest.mark.parametrize("leaves_out", [False, True])
def test_gradients_that_overflow_spoil_the_weights_but_where_float16_leaves_their_step_out(leaves_out):
    run, args = Run(), copy(ARGS)
    args.fp16 = leaves_out
    run.steps(1)
    run.state.global_step += 1

    run.reporting.on_log(args, run.state, CONTROL, logs={"loss": 1.0, "grad_norm": math.inf})

    assert run.reporting.watch.is_suspect is not leaves_out


def test_nan_and_infinity_are_reported_and_survived_for_a_while():
    run = Run()
    for loss in (math.nan, math.inf, math.nan, -math.inf, math.nan):
        run.steps(1, loss=loss)

    assert [str(values["loss"]) for _, values in run.context.points] == ["nan", "inf", "nan", "-inf", "nan"]
    with pytest.raises(NonFiniteLoss):
        run.steps(1, loss=math.nan)
    assert len(run.context.points) == 6  # also the last one
