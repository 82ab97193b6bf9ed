"""Processes that open a new SQLite file at the same moment."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from app.database.engine import make_engine
from app.database.from_settings import open_database
from config.settings import DatabaseSettings

FILES, OPENERS = 40, 6
SUFFIXES = ("", "-shm", "-wal")


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Other users may read new files, unless the process that makes them sets another mode."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(engine: Engine) -> None:
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS t (a INTEGER)"))


@pytest.mark.usefixtures("usual_umask")
def test_missing_directory_and_files_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deeper" / "trainyard.db"

    db = open_database(DatabaseSettings(url=f"sqlite:///{path}"))

    write(db.engine)
    assert mode(path.parent) == 0o700
    assert [mode(Path(f"{path}{suffix}")) for suffix in SUFFIXES] == [0o600] * 3
    db.close()


@pytest.mark.usefixtures("usual_umask")
def test_files_in_a_directory_that_is_open_to_others_are_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "trainyard.db"
    engine = make_engine(f"sqlite:///{path}")

    write(engine)

    assert mode(tmp_path) == 0o755  # it existed before: its mode is left alone
    assert [mode(Path(f"{path}{suffix}")) for suffix in SUFFIXES] == [0o600] * 3
    engine.dispose()


@pytest.mark.usefixtures("usual_umask")
def test_file_that_is_there_keeps_what_its_owner_decided(tmp_path: Path) -> None:
    path = tmp_path / "trainyard.db"
    path.touch(0o640)
    engine = make_engine(f"sqlite:///{path}")

    write(engine)

    assert [mode(Path(f"{path}{suffix}")) for suffix in SUFFIXES] == [0o640] * 3
    engine.dispose()


def test_database_in_memory_and_uris_of_sqlite_make_no_files_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite://", f"sqlite:///file:{tmp_path / 'own.db'}?mode=rwc&uri=true"):
        engine = make_engine(url)
        write(engine)
        engine.dispose()

    assert [path.name for path in tmp_path.iterdir()] == ["own.db"]


@pytest.mark.long
def test_first_connections_to_a_new_file_never_find_it_locked(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def open_and_write(url: str, start: threading.Barrier) -> None:
        engine = make_engine(url)
        start.wait()
        try:
            with engine.execution_options(writes=True).begin() as connection:
                connection.execute(text("CREATE TABLE IF NOT EXISTS t (a INTEGER)"))
        except BaseException as error:  # noqa: BLE001 – a thread's failure must reach the test
            failures.append(error)
        engine.dispose()

    for number in range(FILES):
        start = threading.Barrier(OPENERS)
        arguments = (f"sqlite:///{tmp_path / f'{number}.db'}", start)
        threads = [threading.Thread(target=open_and_write, args=arguments) for _ in range(OPENERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert failures == []
