"""Webhooks hear once how a batch has ended, in the transaction of its end."""

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.models import WebhookDelivery
from app.models.base import utc_now
from app.services.batches import rows
from tests.builders.batch_runs import BatchRun, answer, request
from tests.builders.factories import make_webhook
from tests.systems.apps import Api


def deliveries(run: BatchRun) -> list[WebhookDelivery]:
    with run.db.read() as session:
        return list(session.scalars(select(WebhookDelivery).order_by(WebhookDelivery.id)))


def hooked(api: Api, *event_types: str) -> BatchRun:
    """A batch of two requests in a project with a webhook."""
    run = BatchRun(api, [request("a"), request("b")])
    with run.db.write() as session:
        make_webhook(session, event_types=list(event_types))
    return run


@pytest.mark.both_databases
def test_a_complete_batch_is_announced_with_its_files_and_counts(api: Api) -> None:
    run = hooked(api, "batch.completed", "batch.failed")
    run.start()
    run.store([answer("a")])
    run.end()

    for _ in range(3):  # the others find that it has ended
        run.step()

    (delivery,) = deliveries(run)
    batch = run.batch()
    event = delivery.payload["event"]
    assert (delivery.event_type, event["type"], event["id"]) == (
        "batch.completed",
        "batch.completed",
        delivery.event_id,
    )
    assert (event["seq"], event["message"]) == (1, "1 of 2 requests were answered")
    assert delivery.payload["batch"] == {
        "batch_id": batch.id,
        "project": "default",
        "name": batch.id,
        "status": "completed",
        "endpoint": batch.endpoint,
        "metadata": batch.tags,
        "request_counts": {"total": 2, "completed": 1, "failed": 1},
        "input_file_id": batch.input_file_id,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
    }
    assert batch.output_file_id
    assert batch.error_file_id


def test_the_other_ends_are_announced_too_and_nothing_else(sqlite_api: Api) -> None:
    failed = hooked(sqlite_api)
    failed.start()
    failed.fail()
    cancelled, expired = (BatchRun(sqlite_api, [request(each)]) for each in "ce")
    for run in (cancelled, expired):
        run.start()
    cancelled.change(status="cancelling", cancel_requested=True)
    expired.end_window()
    expired.change(status="finalizing", finalizing_at=utc_now())
    for run in (cancelled, expired):
        run.end(JobState.CANCELLED)

    for run in (failed, cancelled, expired):
        run.step()

    of_batches = [each for each in deliveries(failed) if each.event_type.startswith("batch.")]
    assert [each.event_type for each in of_batches] == ["batch.failed", "batch.cancelled", "batch.expired"]
    assert [each.payload["batch"]["batch_id"] for each in of_batches] == [
        run.batch().id for run in (failed, cancelled, expired)
    ]
    assert "failed with" in of_batches[0].payload["event"]["message"]


def test_an_end_that_is_not_committed_is_not_announced(sqlite_api: Api) -> None:
    run = hooked(sqlite_api)

    with pytest.raises(RuntimeError, match="power"):
        fail_and_break(run)

    assert deliveries(run) == []


def fail_and_break(run: BatchRun) -> None:
    with run.db.write() as session:
        rows.fail(session, rows.locked(session, run.batch().id), [{"code": "x", "message": "x"}])
        session.flush()
        raise RuntimeError("the power is gone")
