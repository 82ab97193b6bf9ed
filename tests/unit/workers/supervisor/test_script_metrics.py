"""Metrics and progress, matched by patterns in the output of a script that does not know the platform."""

import math

import pytest

from trainyard.protocol.messages import MetricPoint, Progress
from workers.supervisor.ranks.script_metrics import ScriptMetrics

STEPS = {"metric.step": r"step (\d+)", "metric.loss": r"loss[ =]([-+.\deE]+|nan)"}


def points(read):
    return [(each.step, dict(each.values)) for each in read if isinstance(each, MetricPoint)]


def places(read):
    return [(each.step, each.total_steps, each.epoch) for each in read if isinstance(each, Progress)]


def test_values_belong_to_the_step_that_was_said_last():
    found = list(ScriptMetrics(STEPS, 0).read(["step 1 loss=2.5", "step 2", "nothing", "loss 0.0", "loss=1e-3"]))

    assert points(found) == [(1, {"loss": 2.5}), (2, {"loss": 0.0}), (2, {"loss": 1e-3})]
    assert places(found)[-1] == (2, None, 0.0)


def test_without_a_pattern_for_steps_the_values_of_each_metric_are_counted():
    patterns = {"metric.loss": r"loss (\S+)", "metric.accuracy": r"accuracy (\S+)"}
    lines = ["loss 3 accuracy 0.1", "loss 2", "loss 1 accuracy 0.5"]

    found = list(ScriptMetrics(patterns, 10).read(lines))

    assert points(found) == [
        (11, {"loss": 3.0}),
        (11, {"accuracy": 0.1}),
        (12, {"loss": 2.0}),
        (13, {"loss": 1.0}),
        (12, {"accuracy": 0.5}),
    ]
    assert places(found)[-1] == (13, None, 0.0)


def test_progress_comes_from_steps_of_all_and_epochs_and_never_goes_back():
    patterns = {"metric.step": r"(\d+)/\d+", "metric.total_steps": r"\d+/(\d+)", "metric.epoch": r"epoch ([\d.]+)"}

    found = places(ScriptMetrics(patterns, 0).read(["epoch 0.5 10/40", "9/40", "epoch 1.0", "20/40"]))

    assert found == [(10, 40, 0.5), (10, 40, 1.0), (20, 40, 1.0)]


@pytest.mark.parametrize("said", ["-3", "99999999999", "nan", "inf", "many"])
def test_invalid_step_is_skipped(said):
    read = ScriptMetrics({"metric.step": r"step (\S+)", "metric.epoch": r"step (\S+)"}, 4).read([f"step {said}"])

    assert [place[0] for place in places(read)] in ([], [4])


def test_loss_of_nan_is_recorded_and_text_is_not():
    read = points(ScriptMetrics(STEPS, 0).read(["step 1 loss=nan", "step 2 loss=e"]))

    assert [step for step, _ in read] == [1]
    assert math.isnan(read[0][1]["loss"])


def test_options_that_are_no_patterns_are_the_scripts_own():
    assert not ScriptMetrics({"speed": "(", "metrics": "("}, 0).wants_lines
    assert ScriptMetrics(STEPS, 0).wants_lines
