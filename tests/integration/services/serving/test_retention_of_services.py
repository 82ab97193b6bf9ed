"""Retention of services that have ended, and of what keys have used of models."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import ModelUsage, Service
from app.models.base import utc_now
from app.services.operations.retention import rules
from config.settings import load_settings
from tests.builders.serving import make_replica, make_service

pytestmark = pytest.mark.both_databases

NOW = utc_now()
OLD, YOUNG = NOW - timedelta(days=40), NOW - timedelta(days=2)


@pytest.fixture
def pruned(database: Database, database_url: str, tmp_path):
    """What → how many rows a rule with this setting deletes."""

    def prune(**retention: int) -> dict[str, int]:
        variables = {f"TRAINYARD_RETENTION_{name.upper()}": str(value) for name, value in retention.items()}
        places = {"TRAINYARD_DATA_DIR": str(tmp_path / "data"), "TRAINYARD_DATABASE_URL": database_url}
        settings = load_settings({**places, "TRAINYARD_SECURITY_SECRET_KEY": "x" * 43 + "=", **variables})
        return {rule.what: one.count for rule, one in rules.prune(database, settings, actor="test", now=NOW)}

    return prune


def test_ended_services_go_once_their_replicas_are_gone(database: Database, pruned) -> None:
    with database.write() as session:
        gone = make_service(session, "gone", ended_at=OLD)
        make_replica(session, gone, state=JobState.COMPLETED, finished_at=OLD)
        kept = make_service(session, "kept", ended_at=OLD)
        make_replica(session, kept, state=JobState.COMPLETED, finished_at=YOUNG)
        make_service(session, "young", ended_at=YOUNG)
        make_service(session, "live")

    assert pruned(jobs_days=30)["services"] == 1
    with database.read() as session:
        assert set(session.scalars(select(Service.name))) == {"kept", "young", "live"}


def test_old_model_usage_goes(database: Database, pruned) -> None:
    with database.write() as session:
        for at in (OLD, YOUNG, NOW):
            usage = {"day": at.date(), "key_id": "k", "model": "m", "project": "p"}
            session.add(ModelUsage(**usage, service_id="svc-1"))

    assert pruned(usage_days=30)["model usage"] == 1
    with database.read() as session:
        assert len(session.scalars(select(ModelUsage.day)).all()) == 2
