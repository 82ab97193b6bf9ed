"""Requests of a batch to a service are answered within its limits and with its defaults."""

from tests.builders.batch_runs import MODEL, BatchRun, request
from tests.builders.service_runs import ServiceRun
from tests.systems.apps import Api


def test_a_job_for_a_service_has_its_limits_and_defaults(sqlite_api: Api) -> None:
    limits = {"max_context": 512, "max_output_tokens": 64}
    ServiceRun(sqlite_api, name="support", limits=limits, defaults={"temperature": 0.2})
    run = BatchRun(sqlite_api, [request("a"), request("b", "support")])

    run.start()

    documents = {name: job.document.inference for name, job in run.jobs().items()}
    of_service, of_place = documents["support"], documents[MODEL]
    assert of_service is not None
    assert of_place is not None
    assert of_service.serving.to_json() == {"name": "support", **limits, "defaults": {"temperature": 0.2}}
    assert of_place.serving.to_json() == {}


def test_answers_name_the_time_of_the_batch(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])

    run.start()

    inference = run.jobs()[MODEL].document.inference
    assert inference is not None
    assert inference.task.created == int(run.batch().created_at.timestamp())
