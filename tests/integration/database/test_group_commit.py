"""Writers of one process share a transaction of SQLite, which changes nothing but the time that a write takes."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from sqlalchemy import Connection, event, select, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from app.database import group_commit
from app.database.engine import Database, make_engine
from app.models import Project
from app.services.access.projects import ensure

LONG = 30.0


@pytest.fixture
def db(sqlite_url: str) -> Iterator[Database]:
    bound = Database().bind(make_engine(sqlite_url))
    yield bound
    bound.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group admits every writer that waits, however slow this machine is."""
    monkeypatch.setattr(group_commit, "LONGEST_SECONDS", LONG)


class Crowd:
    """Writers that arrive while the first one is writing, in the given order."""

    def __init__(self, db: Database, writing: Callable[[], AbstractContextManager[Any]] | None = None) -> None:
        self._db, self._writing = db, writing or db.write

    def write(self, *blocks: Callable[[Any], object]) -> list[BaseException | None]:
        """What each of them raised."""
        with ThreadPoolExecutor(len(blocks)) as pool:
            started = threading.Event()
            first = pool.submit(self._first, blocks[0], started, len(blocks) - 1)
            started.wait(LONG)
            others = []
            for number, block in enumerate(blocks[1:], start=1):
                others.append(pool.submit(self._one, block))
                if number < len(blocks) - 1:  # the last one lets the first continue: it may be past waiting
                    self._until_waiting(number)
            return [future.exception(LONG) for future in (first, *others)]

    def _first(self, block: Callable[[Any], object], started: threading.Event, others: int) -> None:
        with self._writing() as writer:
            started.set()
            self._until_waiting(others)
            block(writer)

    def _one(self, block: Callable[[Any], object]) -> None:
        with self._writing() as writer:
            block(writer)

    def _until_waiting(self, count: int) -> None:
        group = self._db._group
        assert group is not None
        moment = threading.Event()
        while group._waiting < count:
            moment.wait(0.001)


def make(name: str) -> Callable[[Session], object]:
    return lambda session: ensure(session, name, actor="test")


def fail(session: Session) -> None:
    make("failed")(session)
    raise ValueError("no")


def break_a_rule(session: Session) -> None:
    make("broken")(session)
    session.execute(text("INSERT INTO project (name, description, created_at) SELECT name, '', 0 FROM project"))


def lose_everything(session: Session) -> None:
    """What SQLite does by itself when the disk is full."""
    make("lost")(session)
    session.connection().connection.driver_connection.execute("ROLLBACK")  # type: ignore[union-attr]
    raise sqlite3.OperationalError("disk I/O error")


def names(db: Database) -> set[str]:
    with db.read() as session:
        return set(session.scalars(select(Project.name)))


def commits(db: Database) -> list[str]:
    seen: list[str] = []
    event.listen(db.engine, "commit", lambda _: seen.append("commit"))
    return seen


@pytest.mark.usefixtures("patient")
def test_writers_that_wait_share_one_commit(db: Database) -> None:
    seen = commits(db)

    raised = Crowd(db).write(*(make(f"p{number}") for number in range(8)))

    assert raised == [None] * 8
    assert names(db) >= {f"p{number}" for number in range(8)}
    assert seen == ["commit"]


def test_writers_one_after_the_other_commit_each(db: Database) -> None:
    seen = commits(db)

    for number in range(3):
        with db.write() as session:
            make(f"p{number}")(session)

    assert len(seen) == 3


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("failing", "error"), [(fail, ValueError), (break_a_rule, IntegrityError)])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_failing_writer_does_not_fail_the_others(
    db: Database, failing: Callable[[Session], object], error: type[Exception], place: int
) -> None:
    blocks = [make("a"), make("b"), make("c")]
    blocks.insert(place, failing)

    raised = Crowd(db).write(*blocks)

    assert isinstance(raised.pop(place), error)
    assert raised == [None] * 3
    assert names(db) >= {"a", "b", "c"}
    assert not names(db) & {"failed", "broken"}


def inserted(name: str) -> Callable[[Connection], object]:
    """Two statements, so that one of them may be done when the other fails."""

    def statements(connection: Connection) -> None:
        connection.execute(_INSERT, {"name": f"{name}1"})
        connection.execute(_INSERT, {"name": "1" if name == "broken" else f"{name}2"})

    return statements


_INSERT = text(
    "INSERT INTO project (name, number, created_at) "
    "SELECT :name, coalesce(max(number), 0) + 1, '2026-01-01' FROM project"
)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("place", [0, 1, 3])
def test_failing_statement_undoes_its_writer_alone(db: Database, place: int) -> None:
    with db.at_once() as connection:
        connection.execute(_INSERT, {"name": "1"})
    blocks = [inserted("a"), inserted("b"), inserted("c")]
    blocks.insert(place, inserted("broken"))

    raised = Crowd(db, db.at_once).write(*blocks)

    assert isinstance(raised.pop(place), IntegrityError)
    assert raised == [None] * 3
    assert names(db) >= {"1", "a1", "a2", "b1", "b2", "c1", "c2"}
    assert "broken1" not in names(db)


@pytest.mark.usefixtures("patient")
def test_sessions_and_statements_share_a_commit(db: Database) -> None:
    seen = commits(db)

    class MixedCrowd(Crowd):
        def _one(self, block: Callable[[Any], object]) -> None:
            with self._db.at_once() as connection:
                block(connection)

    raised = MixedCrowd(db).write(make("a"), inserted("b"), inserted("c"))

    assert raised == [None] * 3
    assert names(db) >= {"a", "b1", "c2"}
    assert seen == ["commit"]


@pytest.mark.usefixtures("patient")
def test_failing_writer_is_repeated_after_the_others_have_committed(db: Database) -> None:
    looked, found = threading.Event(), []

    class ReadingCrowd(Crowd):
        def _one(self, block: Callable[[Any], object]) -> None:
            try:
                super()._one(block)
            except IntegrityError:
                found.append(names(db))
                looked.set()

    # The last one gives the second all the time to read too early.
    raised = ReadingCrowd(db).write(make("a"), break_a_rule, lambda _: looked.wait(0.5))

    assert raised == [None] * 3
    assert "a" in found[0]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("place", [0, 1])
def test_writer_may_roll_back_what_it_wrote(db: Database, place: int) -> None:
    def think_again(session: Session) -> None:
        make("regretted")(session)
        session.rollback()

    blocks = [make("a"), make("b")]
    blocks.insert(place, think_again)

    assert Crowd(db).write(*blocks) == [None] * 3
    assert names(db) >= {"a", "b"}
    assert "regretted" not in names(db)


@pytest.mark.usefixtures("patient")
def test_lost_transaction_is_an_error_of_all_its_writers(db: Database) -> None:
    blocks = {"before": make("before"), "lost": lose_everything, "after": make("after")}
    wrote: list[str] = []  # who waits first need not write first

    def noting(name: str) -> Callable[[Session], object]:
        def write(session: Session) -> None:
            wrote.append(name)
            blocks[name](session)

        return write

    raised = Crowd(db).write(*map(noting, blocks))

    lost = wrote[: wrote.index("lost") + 1]
    failed = {name: type(error) for name, error in zip(blocks, raised, strict=True)}
    assert failed == {name: OperationalError if name in lost else type(None) for name in blocks}
    assert names(db) & {*blocks} == {*blocks} - {*lost}


@pytest.mark.usefixtures("patient")
def test_failing_commit_is_an_error_of_all_writers(db: Database) -> None:
    def refuse(_connection: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    event.listen(db.engine, "commit", refuse)
    raised = Crowd(db).write(make("a"), make("b"))
    event.remove(db.engine, "commit", refuse)

    assert [type(error) for error in raised] == [OperationalError, OperationalError]
    assert not names(db) & {"a", "b"}
    with db.write() as session:
        make("later")(session)
    assert "later" in names(db)


def test_no_writer_continues_before_the_commit(db: Database, sqlite_url: str) -> None:
    seen_by_another: list[bool] = []

    def write(name: str) -> None:
        with db.write() as session:
            make(name)(session)
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as other:
            seen_by_another.append(bool(other.execute("SELECT 1 FROM project WHERE name = ?", (name,)).fetchone()))
        other.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, [f"p{number}" for number in range(64)]))

    assert seen_by_another == [True] * 64


def test_group_is_ended_though_its_next_writer_gave_up(db: Database) -> None:
    group = db._group
    assert group is not None

    group._waiting += 1  # a writer that was interrupted while it waited
    with db.write() as session:
        make("a")(session)
    group._waiting -= 1

    assert "a" in names(db)
