"""How each database is opened."""

import socket

from sqlalchemy import text

from app.extensions import make_engine


def test_postgresql_connection_notices_a_server_that_vanished(postgres_url):
    engine = make_engine(postgres_url)

    with engine.connect() as connection:
        fd = connection.connection.driver_connection.fileno()  # type: ignore[union-attr]
        with socket.socket(fileno=fd) as sock:
            said = [sock.getsockopt(socket.IPPROTO_TCP, option) for option in LIVENESS]
            sock.detach()
    engine.dispose()

    assert said == [2, 1, 3, 4000]


LIVENESS = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)


def test_statements_end_in_time_for_those_who_ask(postgres_url):
    said = []
    for seconds in (None, 8.0):
        engine = make_engine(f"{postgres_url}?options=-c%20application_name%3Dours", statement_seconds=seconds)
        with engine.connect() as connection:
            said += [connection.scalar(text(f"SHOW {name}")) for name in ("statement_timeout", "application_name")]
        engine.dispose()

    assert said == ["0", "ours", "8s", "ours"]
