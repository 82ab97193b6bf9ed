"""Processes that open a new SQLite file at the same moment."""

import threading
from pathlib import Path

from sqlalchemy import text

from app.extensions import make_engine

FILES, OPENERS = 40, 6


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
