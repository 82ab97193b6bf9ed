"""The databases and servers that other tests stand on."""

import pytest
from sqlalchemy import inspect, text

from app.models import Project

pytestmark = pytest.mark.both_databases


def test_database_is_migrated_and_empty_of_jobs(database):
    with database.read() as session:
        tables = inspect(session.connection()).get_table_names()

        assert {"job", "attempt", "lease", "node"} <= set(tables)
        assert session.execute(text("SELECT count(*) FROM job")).scalar() == 0


def test_what_one_test_writes_a_clone_does_not_share(database, migrated_sqlite):
    with database.write() as session:
        session.add(Project(name="only-here"))

    with database.read() as session:
        assert session.get(Project, "only-here") is not None
    assert b"only-here" not in migrated_sqlite.read_bytes()


def test_redis_comes_empty(redis_url, redis_server):
    with redis_server.client() as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


def test_redis_comes_empty_again(redis_url, redis_server):
    with redis_server.client() as client:
        assert client.dbsize() == 0
        client.set("left", "behind")
