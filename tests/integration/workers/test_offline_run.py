"""The file of an offline run at an attempt's end: which end it tells, and whose file it replaces."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.services.attempts.work_orders import WorkOrder
from app.storage.object_keys import run_file_key, wandb_file
from tests.builders.factories import make_document
from tests.builders.recovering import training
from tests.builders.wandb_reading import read_records
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.supervisor.offline_run import store_offline_run

EXIT = 18


class Files:
    """A storage with one file."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    @contextmanager
    def create(self, key: str) -> Iterator[Any]:
        parts: list[bytes] = []
        yield SimpleNamespace(write=parts.append)
        self.stored[key] = b"".join(parts)


def begun(db: Database) -> WorkOrder:
    return training(db, document=make_document(tracking=[{"kind": "wandb", "mode": "offline"}]))


def store(db: Database, files: Files, work: WorkOrder, kind: str) -> None:
    context = SimpleNamespace(storage=files)
    attempt = SimpleNamespace(work=work, db=db, context=context, reporter=SimpleNamespace(add=pytest.fail))
    store_offline_run(cast("FinishedAttempt", attempt), Outcome(kind=cast("Any", kind)))


def test_completed_node_of_a_gang_says_no_end_since_others_may_fail(db: Database) -> None:
    alone, files = begun(db), Files()
    key = run_file_key(alone.job_id, wandb_file(alone.job_id))
    ends = []

    for work, kind in (
        (alone, "completed"),
        (replace(alone, node_names=("a", "b")), "completed"),
        (replace(alone, node_names=("a", "b")), "failed"),
    ):
        store(db, files, work, kind)
        ends.append(any(EXIT in each for each in read_records(files.stored[key])))

    assert ends == [True, False, True]


def test_attempt_that_lost_its_lease_replaces_no_file(db: Database) -> None:
    work, files = begun(db), Files()
    store(db, files, work, "completed")
    before = dict(files.stored)

    with pytest.raises(LeaseLost):
        store(db, files, replace(work, fence=work.fence - 1), "failed")

    assert files.stored == before
