"""What a job's supervisor adds to its metrics, and keeps of them for TensorBoard, whatever becomes of the job."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from app.domain.lifecycle.states import JobState
from app.models import Artifact, Metric
from app.services.attempts import artifacts
from tests.systems.supervising import rows, training, try_again


def curve(folder: Path, name: str) -> list[int]:
    """The steps that TensorBoard shows of a metric."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [event.step for event in accumulator.Scalars(name)]


@pytest.mark.long
def test_event_files_outlive_failures_and_go_on_after_a_resume(world):
    job_id = world.start(training(steps=6, save_at=(3,), fail_at_end=True))
    assert world.wait_for_end(job_id).state is JobState.FAILED
    folder = world.storage.local_path(f"jobs/{job_id}/tensorboard")
    assert curve(folder, "train/loss") == [1, 2, 3, 4, 5, 6]
    (first,) = rows(world, Artifact)

    job = try_again(world, job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert curve(folder, "train/loss") == [1, 2, 3, 4, 5, 6]
    recorded = {a.path: a for a in rows(world, Artifact) if a.path.startswith("tensorboard/")}
    assert len(recorded) == 2
    assert recorded[first.path].sha256 == first.sha256
    for path, artifact in recorded.items():
        with artifacts.opened(world.storage, artifact) as stream:
            assert len(stream.read()) == artifact.size_bytes, path
    assert job.report is not None
    assert not any(path in job.report["weight_files"] for path in recorded)


@pytest.mark.long
def test_processor_and_memory_of_any_script_are_metrics_at_its_current_step(world):
    script = """
import time
from trainyard import hooks
run = hooks.init()
run.progress(7, 10)
run.log_metrics({"cpu_percent": -1.0}, step=7)  # its own of that name
kept = bytearray(b"x" * (64 << 20))
time.sleep(2.5)
raise SystemExit(1)
"""
    job_id = world.start(script)

    job = world.wait_for_end(job_id)

    assert job.state is JobState.FAILED
    (memory,) = rows(world, Metric, name="memory_mb")
    assert memory.step == 7
    assert memory.value is not None
    assert 64 < memory.value < 1024
    assert job.latest_metrics == {"cpu_percent": -1.0, "memory_mb": memory.value}
    assert curve(world.storage.local_path(f"jobs/{job_id}/tensorboard"), "system/memory_mb") == [7]


PRINTS = """
import time
for step in range(1, 6):
    print(f"step {step}/5 loss={1 / step:.3f}", flush=True)
    time.sleep(0.05)
print("accuracy: 0.75", flush=True)
"""


def test_metrics_that_a_script_prints_are_found_by_patterns(any_world):
    patterns = {
        "metric.step": r"step (\d+)/",
        "metric.total_steps": r"step \d+/(\d+)",
        "metric.loss": r"loss=([\d.]+)",
        "metric.accuracy": r"accuracy: ([\d.]+)",
    }
    job_id = any_world.start(PRINTS, ranks=2, framework_config=patterns)

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, any_world.describe(job_id)
    found = {(row.name, row.step): row.value for row in rows(any_world, Metric) if row.name in ("loss", "accuracy")}
    assert found == {("loss", step): round(1 / step, 3) for step in range(1, 6)} | {("accuracy", 5): 0.75}
    assert (job.current_step, job.total_steps) == (5, 5)
    assert job.report is not None
    assert job.report["final_metrics"]["accuracy"] == 0.75
    assert curve(any_world.storage.local_path(f"jobs/{job_id}/tensorboard"), "train/loss") == [1, 2, 3, 4, 5]


FOLLOWED = """
import json, os, time
from trainyard import hooks
run = hooks.init()
for step in (1, 2, 3):
    run.log_metrics({"loss": 1 / step}, step=step)
time.sleep(SECONDS)
with run.checkpoint(step=5) as path:
    open(os.path.join(path, "state"), "w").write("5")
run.log_metrics({"val": 1.0}, step=4)
"""


@pytest.mark.long
def test_current_step_follows_metrics_and_checkpoints_of_a_script_without_progress(world):
    job_id = world.start(FOLLOWED.replace("SECONDS", "600"))

    world.wait(lambda: world.job(job_id).current_step == 3, 10.0, job_id)
    world.request(job_id, "cancel")
    assert world.wait_for_end(job_id).state is JobState.CANCELLED


def test_end_of_a_script_without_progress_keeps_its_step(world):
    job = world.wait_for_end(job_id := world.start(FOLLOWED.replace("SECONDS", "0")))

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert job.current_step == 5


def test_a_script_that_reports_progress_is_at_that_step(world):
    script = """
from trainyard import hooks
run = hooks.init()
run.progress(2, 10)
run.log_metrics({"loss": 1.0}, step=700)
"""
    job = world.wait_for_end(job_id := world.start(script))

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert job.current_step == 2


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("", "ZeroDivisionError: division by zero (train.py:3); rank 0 ended with exit code 1"),
        ("from trainyard import hooks; hooks.init()", "ZeroDivisionError: division by zero (train.py:3)"),
    ],
)
def test_failure_of_a_script_says_what_it_raised_and_where(world, start, message):
    job = world.wait_for_end(job_id := world.start(f"{start}\n\n1 / 0\n"))

    assert job.state is JobState.FAILED, world.describe(job_id)
    assert (job.error_type, job.error_message) == ("SCRIPT_ERROR", message)
    assert "Traceback (most recent call last)" in job.error_stack
