"""How each database is opened."""

import socket
import time

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.database.engine import IDLE_IN_TRANSACTION_SECONDS, make_engine


def test_postgresql_connection_notices_a_server_that_vanished(postgres_url):
    engine = make_engine(postgres_url)

    with engine.connect() as connection:
        fd = connection.connection.driver_connection.fileno()  # type: ignore[union-attr]
        with socket.socket(fileno=fd) as sock:
            said = [sock.getsockopt(socket.IPPROTO_TCP, option) for option in LIVENESS]
            sock.detach()
    engine.dispose()

    assert said == [2, 1, 3, 4000]


def test_connection_that_the_server_has_ended_is_replaced_within_the_pool(postgres_url):
    engine, other = make_engine(postgres_url), make_engine(postgres_url)
    with engine.connect() as connection:
        ended = connection.scalar(text("SELECT pg_backend_pid()"))
    with other.connect() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": ended})

    with engine.connect() as connection:
        assert connection.scalar(text("SELECT pg_backend_pid()")) != ended

    engine.dispose()
    other.dispose()


IDLE = "idle_in_transaction_session_timeout"
LIVENESS = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)


def test_statement_timeout_is_set_only_on_request(postgres_url):
    said = []
    lasts = f"{IDLE_IN_TRANSACTION_SECONDS:g}s"
    for seconds in (None, 8.0):
        engine = make_engine(f"{postgres_url}?options=-c%20application_name%3Dours", statement_seconds=seconds)
        with engine.connect() as connection:
            said += [
                connection.scalar(text(f"SHOW {name}")) for name in ("statement_timeout", "application_name", IDLE)
            ]
        engine.dispose()

    assert said == ["0", "ours", lasts, "8s", "ours", lasts]


@pytest.mark.long
def test_an_idle_transaction_is_ended_and_releases_its_rows(postgres_url):
    # As by default, only sooner: what the URL says wins.
    engine = make_engine(f"{postgres_url}?options=-c%20idle_in_transaction_session_timeout%3D1500")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE leadership (holder text)"))
        connection.execute(text("INSERT INTO leadership VALUES ('none')"))

    stopped = engine.connect()
    stopped.execute(text("UPDATE leadership SET holder = 'first'"))
    asked = time.monotonic()
    with engine.begin() as other:
        other.execute(text("UPDATE leadership SET holder = 'second' WHERE holder = 'none'"))
    waited = time.monotonic() - asked
    with pytest.raises(DBAPIError, match="idle-in-transaction") as failed:
        stopped.execute(text("SELECT 1"))
    stopped.close()

    with engine.connect() as connection:
        assert connection.scalar(text("SELECT holder FROM leadership")) == "second"
    assert failed.value.connection_invalidated  # which counts as transient
    assert waited > 1
    engine.dispose()
