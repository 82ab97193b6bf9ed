"""Requests that arrive at the same moment."""

import threading
from collections.abc import Callable

from app.models import JobEvent
from tests.builders.factories import make_document
from tests.systems.apps import Api


def test_parallel_requests_with_one_key_make_one_job(api: Api):
    answers: list[str] = []
    barrier = threading.Barrier(8)

    def post() -> None:
        barrier.wait()
        answer = api.app.test_client().post(
            "/v1/jobs", json=make_document(), headers={"Authorization": f"Bearer {api.key}", "Idempotency-Key": "race"}
        )
        answers.append(api.data(answer, 201)["job_id"])

    run_at_once([post] * 8)

    assert len(answers) == 8
    assert len(set(answers)) == 1
    assert api.get("/v1/jobs")["total_count"] == 1


def test_parallel_cancels_make_one_event(api: Api):
    job_id = api.submit()
    statuses: list[int] = []
    barrier = threading.Barrier(6)

    def cancel() -> None:
        barrier.wait()
        client = api.app.test_client()
        answer = client.post(f"/v1/jobs/{job_id}/cancel", headers={"Authorization": f"Bearer {api.key}"})
        statuses.append(answer.status_code)

    run_at_once([cancel] * 6)

    assert statuses == [200] * 6
    with api.db.read() as session:
        events = session.query(JobEvent).where(JobEvent.job_id == job_id, JobEvent.to_status == "CANCELLED").all()
    assert len(events) == 1


def run_at_once(actions: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
