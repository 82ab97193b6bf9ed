"""The supervisors of a gang's nodes settle where its ranks meet, while the database is away now and then."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.models import Attempt
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings, load_settings
from tests.builders.walks import make_gang, start_gang
from tests.unit.workers.rank.launching import JOB, make_plan, write_script
from workers.attempt_failed import AttemptFailed
from workers.job_secrets import launch_secret
from workers.prepare.inputs.resume_point import StartPoint
from workers.prepare.prepare import PreparedAttempt
from workers.rank.mpi import MPI
from workers.sandbox.sandbox import ProcessGroup
from workers.supervisor.rendezvous.meeting import meet

pytestmark = pytest.mark.both_databases

SPEC = f"data/run/jobs/{JOB}/1/spec.json"


class OftenAway(Database):
    """A database that can't be written to the first times."""

    def __init__(self, db: Database, failures: int) -> None:
        super().__init__()
        self.bind(db.engine)
        self.failures = failures

    @contextmanager
    def write(self) -> Iterator[Session]:
        if self.failures:
            self.failures -= 1
            raise OperationalError("", {}, Exception("the server is shutting down"))
        with super().write() as session:
            yield session


@pytest.fixture
def gang(database: Database) -> list[WorkOrder]:
    return start_gang(database, make_gang(database), "n1", "n2")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    own = {"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_NODE_ADDRESS": "127.0.0.1"}
    return load_settings({**own, "TRAINYARD_SECURITY_SECRET_KEY": "k" * 43})


def prepared(folder: Path) -> PreparedAttempt:
    plan = make_plan(folder, write_script(folder / "mine", ""), ProcessGroup(), world_size=2)
    return PreparedAttempt(plan=plan, start=StartPoint(path=None, step=0, checkpoint_id=None, rejected=()))


@pytest.mark.long
def test_nodes_meet_although_their_first_reports_fail(
    database: Database, gang: list[WorkOrder], settings: Settings, tmp_path: Path
) -> None:
    away, until = [OftenAway(database, failures=1) for _ in gang], time.monotonic() + 15

    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(
                meet,
                settings,
                db,
                work,
                prepared(tmp_path / work.node),
                warn=print,
                is_over=lambda: time.monotonic() > until,
            )
            for db, work in zip(away, gang, strict=True)
        ]
        met = [each.result(20) for each in asked]

    specs = [each.plan.spec.gang for each in met if each is not None]
    assert [spec.node_rank for spec in specs if spec is not None] == [0, 1]
    assert len({spec.port for spec in specs if spec is not None}) == 1
    assert [db.failures for db in away] == [0, 0]


def test_ranks_that_must_be_alone_do_not_meet_where_they_have_the_worker_s_user(
    database: Database, gang: list[WorkOrder], settings: Settings, tmp_path: Path
) -> None:
    until = time.monotonic() + 15
    ready = [prepared(tmp_path / work.node) for work in gang]
    confinement = replace(ready[1].plan.confinement, must_be_guarded=True)
    ready[1] = replace(ready[1], plan=replace(ready[1].plan, confinement=confinement))

    with ThreadPoolExecutor(2) as pool:
        first, second = (
            pool.submit(meet, settings, database, work, each, warn=print, is_over=lambda: time.monotonic() > until)
            for work, each in zip(gang, ready, strict=True)
        )

        with pytest.raises(AttemptFailed, match=r"sandbox:peers.*no user of its own here"):
            second.result(20)
        assert first.result(20) is not None  # no part guards its ports, so it waits for none


def by_mpi(folder: Path) -> PreparedAttempt:
    plan = make_plan(folder, write_script(folder / "mine", ""), ProcessGroup(), world_size=2, launcher=MPI)
    return PreparedAttempt(plan=plan, start=StartPoint(path=None, step=0, checkpoint_id=None, rejected=()))


def test_nodes_of_mpi_know_where_each_waits_and_one_secret_of_the_attempt(
    database: Database, gang: list[WorkOrder], settings: Settings, tmp_path: Path
) -> None:
    until = time.monotonic() + 15
    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(
                meet,
                settings,
                database,
                work,
                by_mpi(tmp_path / work.node),
                warn=print,
                is_over=lambda: time.monotonic() > until,
            )
            for work in gang
        ]
        met = [each.result(20) for each in asked]

    first, second = (each.plan.mpi for each in met if each is not None)
    assert first is not None
    assert first == second
    assert [address for address, _ in first.places] == ["127.0.0.1"] * 2
    assert len({port for _, port in first.places}) == 2
    later = launch_secret(settings, job_id=gang[0].job_id, attempt=2, fence=gang[0].fence + 1)
    assert first.secret not in {"", later}
    with database.read() as session:
        attempt = session.get_one(Attempt, (gang[0].job_id, gang[0].attempt))
        assert first.secret not in str(attempt.rendezvous)
    assert all(first.secret not in (tmp_path / work.node).joinpath(SPEC).read_text() for work in gang)


def test_nodes_without_the_installation_s_key_start_nothing_by_mpi(gang: list[WorkOrder], tmp_path: Path) -> None:
    without = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path)})
    with pytest.raises(AttemptFailed, match="set TRAINYARD_SECURITY_SECRET_KEY"):
        launch_secret(without, job_id=gang[0].job_id, attempt=1, fence=gang[0].fence)


@pytest.mark.parametrize("address", ["::1", "localhost"])
def test_nodes_of_mpi_need_addresses_of_ipv4(
    database: Database, gang: list[WorkOrder], tmp_path: Path, address: str
) -> None:
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_NODE_ADDRESS": address})

    with pytest.raises(AttemptFailed, match="TRAINYARD_NODE_ADDRESS"):
        meet(settings, database, gang[1], by_mpi(tmp_path / "n2"), warn=print, is_over=lambda: False)


def test_a_stop_while_the_others_are_awaited_is_no_failure(
    database: Database, gang: list[WorkOrder], settings: Settings, tmp_path: Path
) -> None:
    for work in gang:
        assert meet(settings, database, work, prepared(tmp_path / work.node), warn=print, is_over=lambda: True) is None
