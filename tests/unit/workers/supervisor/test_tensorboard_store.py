"""Event files as TensorBoard itself reads them, written while a storage stumbles and a job is resumed."""

import hashlib
import math
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from app.domain.errors import LeaseLost, TransientStorageError
from app.domain.lifecycle.outcomes import NewArtifact
from app.storage.storage import Storage
from workers.supervisor.recording import tensorboard_store
from workers.supervisor.recording.tensorboard_store import TensorboardStore

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)


class World:
    """A storage, and what was recorded of it."""

    def __init__(self, folder):
        self.folder = folder
        self.storage = Storage(f"file://{folder}")
        self.recorded: dict[str, NewArtifact] = {}

    def store(self, attempt: int = 1, *, start_step: int = 0) -> TensorboardStore:
        store = TensorboardStore(self.storage, "job-1", attempt, record=self.record)
        store.start_from(start_step)
        return store

    def record(self, new: NewArtifact) -> None:
        self.recorded[new.path] = new

    def read(self) -> EventAccumulator:
        accumulator = EventAccumulator(str(self.folder / "jobs/job-1/tensorboard"), size_guidance={"scalars": 0})
        return accumulator.Reload()

    def curve(self, name: str) -> list[tuple[int, float]]:
        return [(event.step, round(event.value, 4)) for event in self.read().Scalars(name)]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_tensorboard_reads_every_value_with_its_time(world):
    store = world.store()
    for step in range(300):
        store.add(step, NOW + timedelta(seconds=step), {"loss": 1 / (step + 1), "ä/λ": -float(step)})
    store.close(5)

    assert world.curve("train/loss") == [(step, round(1 / (step + 1), 4)) for step in range(300)]
    assert world.curve("train/ä/λ")[299] == (299, -299.0)
    assert world.read().Scalars("train/loss")[2].wall_time == (NOW + timedelta(seconds=2)).timestamp()


def test_what_is_no_number_or_too_large_is_kept_as_far_as_32_bits_go(world):
    store = world.store()
    for step, value in enumerate([math.nan, math.inf, -math.inf, 1e300, 3.4e38]):
        store.add(step, NOW, {"loss": value})
    store.close(5)

    values = [event.value for event in world.read().Scalars("train/loss")]
    assert math.isnan(values[0])
    assert values[1:4] == [math.inf, -math.inf, math.inf]
    assert values[4] == pytest.approx(3.4e38)


def test_files_are_recorded_with_what_they_hold(world):
    store = world.store()
    store.add(1, NOW, {"loss": 1.0})
    store.close(5)

    (recorded,) = world.recorded.values()
    content = world.storage.read(f"jobs/job-1/{recorded.path}")
    assert recorded.path == "tensorboard/events.out.tfevents.000001.000001"
    assert (recorded.size_bytes, recorded.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_later_attempt_takes_back_the_steps_that_it_does_again(world):
    first = world.store()
    for step in range(1, 11):
        first.add(step, NOW, {"loss": float(step)})
    first.close(5)
    second = world.store(attempt=2, start_step=6)
    for step in range(7, 9):
        second.add(step, NOW + timedelta(hours=1), {"loss": 100.0 + step})
    second.close(5)

    assert world.curve("train/loss") == [*((n, float(n)) for n in range(1, 7)), (7, 107.0), (8, 108.0)]
    assert sorted(world.recorded) == [f"tensorboard/events.out.tfevents.00000{n}.000001" for n in (1, 2)]


def test_files_stay_small_and_are_read_as_one_curve(world, monkeypatch):
    monkeypatch.setattr(tensorboard_store, "LOCAL_BYTES", 2000)
    store = world.store()
    for step in range(200):
        store.add(step, NOW, {"loss": float(step)})
    store.close(5)

    assert len(world.recorded) > 3
    assert all(recorded.size_bytes < 2200 for recorded in world.recorded.values())
    assert world.curve("train/loss") == [(step, float(step)) for step in range(200)]


def test_event_files_exist_while_the_job_runs(world, monkeypatch):
    monkeypatch.setattr(tensorboard_store, "LOCAL_SECONDS", 0.02)
    seen = threading.Event()

    def record(new):
        world.record(new)
        seen.set()

    store = TensorboardStore(world.storage, "job-1", 1, record=record)
    store.add(1, NOW, {"loss": 1.0})

    assert seen.wait(5)
    assert world.curve("train/loss") == [(1, 1.0)]
    store.close(5)


def test_a_storage_that_stumbles_loses_nothing(world, monkeypatch):
    class Stumbling(Storage):
        left = 2

        def grow(self, key, **more):
            if self.left:
                self.left -= 1
                raise TransientStorageError("away")
            super().grow(key, **more)

    monkeypatch.setattr(tensorboard_store, "RETRY_SECONDS", 0.01)
    world.storage = Stumbling(f"file://{world.folder}")
    store = world.store()
    store.add(1, NOW, {"loss": 1.0})
    store.close(5)

    assert world.curve("train/loss") == [(1, 1.0)]


def test_remote_storage_gets_the_whole_file_each_time(world):
    world.storage = Storage("memory://event-store-test")
    store = world.store()
    store.add(1, NOW, {"loss": 1.0})
    store.close(5)

    (recorded,) = world.recorded.values()
    assert len(world.storage.read(f"jobs/job-1/{recorded.path}")) == recorded.size_bytes


@pytest.mark.parametrize("error", [LeaseLost("gone"), ZeroDivisionError("a bug")])
def test_lost_lease_or_a_bug_ends_storing_without_failing_the_job(world, error):
    refused = []

    def refuse(new):
        refused.append(new.path)
        raise error

    store = TensorboardStore(world.storage, "job-1", 1, record=refuse)
    store.add(1, NOW, {"loss": 1.0})
    store.close(5)
    store.add(2, NOW, {"loss": 1.0})

    assert len(refused) == 1
    assert world.curve("train/loss") == [(1, 1.0)]


def test_without_metrics_nothing_is_stored(world):
    world.store().close(5)

    assert not (world.folder / "jobs").exists()
