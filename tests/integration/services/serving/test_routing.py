"""Which service answers for a model, and services that the first request for a model makes."""

from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import Conflict, Forbidden, ModelNotServed, NamedModelNotFound
from app.domain.lifecycle.states import JobState
from app.domain.serving.document import ServiceDocument
from app.models import ApiKey, Job, RegisteredModel, Service, ServiceEvent
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.access import api_keys
from app.services.model_registry import registered
from app.services.serving import loads, routing, stepping
from app.services.serving.loads import Load
from app.services.serving.routing import Route
from tests.builders.factories import make_checkpoint, make_project
from tests.builders.inference_requests import make_trained
from tests.builders.serving import make_service, replica_document
from tests.systems.apps import Api

BASE = "/srv/models/tiny"  # of documents that tests make
ASKER = Caller(key_id="key-1", role=Role.INFERENCE, project="default")
ADMIN = Caller(key_id="key-2", role=Role.SUPER_ADMIN, project=None)


def routed(api: Api, model: str, *, caller: Caller = ASKER, task: str = "generate", auto: bool = True) -> Route:
    return routing.route(api.app.extensions["trainyard"].plane, caller, model, task=task, auto=auto)


def served(session: Session, name: str = "support", key: str = BASE, **columns: Any) -> str:
    return make_service(session, name, model_key=key, **columns).id


def lora(session: Session, **parts: Any) -> str:
    return make_trained(session, adapter=True, training_type="LORA", **parts).id


def asker(api: Api) -> Caller:
    """A key that exists: automatic services submit their replicas in its name."""
    key_id = api.get("/v1/keys")["keys"][0]["key_id"]
    return Caller(key_id=key_id, role=Role.INFERENCE, project="default")


@pytest.fixture
def base(api: Api) -> str:
    """A registered base model."""
    registered.register(api.db, ADMIN, "tiny", BASE)
    return "tiny"


def test_service_answers_by_its_name(api: Api) -> None:
    with api.db.write() as session:
        service = served(session)

    assert routed(api, "support") == Route(service_id=service, project="default", model="support")


@pytest.mark.parametrize(
    ("chosen", "auto", "makes"), [("on", False, True), ("off", True, False), ("default", False, False)]
)
def test_project_says_whether_first_requests_make_services(
    api: Api, base: str, chosen: str, *, auto: bool, makes: bool
) -> None:
    changed = api.call("PATCH", "/v1/projects/default", json={"auto_services": chosen})
    assert api.data(changed)["auto_services"] == chosen

    if makes:
        routed(api, base, caller=asker(api), auto=auto)
    else:
        with pytest.raises(ModelNotServed, match=f"trainyard serve {base}"):
            routed(api, base, caller=asker(api), auto=auto)

    with api.db.read() as session:
        assert len(session.scalars(select(Service)).all()) == makes


def test_service_answers_for_the_model_that_it_has(api: Api, base: str) -> None:
    with api.db.write() as session:
        automatic = served(session, "automatic", is_automatic=True)
        paused = served(session, "paused", status="PAUSED")
        made = served(session, "made")

    found = [routed(api, name).service_id for name in (base, BASE)]

    assert found == [made, made]
    assert {automatic, paused}.isdisjoint(found)


def test_adapter_is_answered_by_the_service_of_its_base(api: Api) -> None:
    with api.db.write() as session:
        service, job = served(session), lora(session)
        running = make_trained(session, adapter=True, state=JobState.TRAINING, training_type="LORA")
        checkpoint = make_checkpoint(session, running, step=7)
        name = "ft:tiny:default:docs:00000000"
        session.add(
            RegisteredModel(name=name, kind="fine_tune", project="default", job_id=running.id, created_by="key-1")
        )
        expected = f"{running.id}/{checkpoint.id}"

    found = routed(api, job)
    foreign = routed(api, job.replace("job-", "ftjob-"))
    step = routed(api, f"{name}:ckpt-step-7")

    assert found == Route(service_id=service, project="default", model=job, adapter=job)
    assert (foreign.service_id, foreign.adapter) == (service, job)
    assert (step.service_id, step.adapter) == (service, expected)
    with pytest.raises(Conflict, match="has no result") as early:
        routed(api, name)
    assert early.value.field == "model"


def test_adapter_with_a_service_of_its_own_is_answered_by_it(api: Api) -> None:
    with api.db.write() as session:
        served(session)
        job = lora(session)
        own = served(session, "docs", job)

    assert routed(api, job) == Route(service_id=own, project="default", model=job)


def test_adapter_is_named_with_its_service(api: Api) -> None:
    with api.db.write() as session:
        service, job = served(session), lora(session)
        other = lora(session, base_model={"model_id": "/srv/models/other"})
        whole = make_trained(session).id
        alone = ServiceDocument.from_json({"name": "alone", "adapters": {"source": "none"}}).to_json()
        served(session, "alone", spec=alone)

    found = routed(api, f"support/{job}")

    assert (found.service_id, found.adapter) == (service, job)
    for model, why in (
        (f"support/{other}", "trained on /srv/models/other, and the service support has /srv/models/tiny"),
        (f"support/{whole}", "whole model"),
        (f"alone/{job}", "has no adapters"),
    ):
        with pytest.raises(Conflict, match=why):
            routed(api, model)
    with pytest.raises(NamedModelNotFound):
        routed(api, "support/nothing")


def test_first_request_makes_a_service_and_the_next_one_finds_it(api: Api, base: str) -> None:
    caller = asker(api)
    first = routed(api, base, caller=caller)
    again = routed(api, base, caller=caller)
    vectors = routed(api, base, caller=caller, task="embed")

    with api.db.read() as session:
        service = session.get_one(Service, first.service_id)
        document = ServiceDocument.from_json(service.spec)
    assert again == first
    assert vectors.service_id != first.service_id
    assert service.is_automatic
    assert (document.replicas.min, document.replicas.max, service.wanted) == (0, 1, 0)
    assert (service.model_key, service.name[:5]) == (BASE, "tiny-")


def test_first_request_for_an_adapter_makes_a_service_of_its_base(api: Api) -> None:
    with api.db.write() as session:
        job, other = lora(session), lora(session)
        whole = make_trained(session).id
    caller = asker(api)

    first, second, own = (routed(api, model, caller=caller) for model in (job, other, whole))

    with api.db.read() as session:
        keys = {row.id: row.model_key for row in session.scalars(select(Service))}
    assert keys == {first.service_id: BASE, own.service_id: whole}
    assert (first.adapter, second.adapter, own.adapter) == (job, other, None)
    assert second.service_id == first.service_id


def test_service_that_ends_is_replaced_by_another_one(api: Api, base: str) -> None:
    caller = asker(api)
    first = routed(api, base, caller=caller)
    with api.db.write() as session:
        session.get_one(Service, first.service_id).status = "ENDING"

    second = routed(api, base, caller=caller)

    with api.db.write() as session:
        row = session.get_one(Service, first.service_id)
        row.status, row.ended_at = "ENDED", utc_now()
        names = [each.name for each in session.scalars(select(Service).order_by(Service.created_at, Service.id))]
    assert second.service_id != first.service_id
    assert names[1] == f"{names[0]}-2"


def test_without_automatic_services_the_command_is_named(api: Api, base: str) -> None:
    with pytest.raises(ModelNotServed, match="trainyard serve tiny --name NAME") as refused:
        routed(api, base, auto=False)

    assert (refused.value.code, refused.value.field) == ("MODEL_NOT_SERVED", "model")


def test_places_get_no_service_by_themselves(api: Api) -> None:
    root = str(api.app.extensions["trainyard"].plane.reading.roots[0])
    for place in (f"{root}/models/other", "org/model"):
        with pytest.raises(ModelNotServed, match=f"trainyard serve {place}"):
            routed(api, place)


def test_unknown_models_are_refused_with_those_of_the_project(api: Api, base: str) -> None:
    with api.db.write() as session:
        make_project(session, "other")
        served(session)
        served(session, "secret", project="other")
        foreign = make_trained(session, project="other").id

    for model in ("nothing", foreign, "ft:tiny:other:docs:00000000", "\0", "job-none"):
        with pytest.raises(NamedModelNotFound) as refused:
            routed(api, model)
        assert (refused.value.code, refused.value.field) == ("MODEL_NOT_FOUND", "model")
        assert "there are: tiny" in refused.value.message
        assert "services: support" in refused.value.message
        assert "secret" not in refused.value.message


def test_what_could_not_be_served_gets_no_command(api: Api, base: str) -> None:
    root = str(api.app.extensions["trainyard"].plane.reading.roots[0])
    for place in (f"{root}/../other", "/nowhere/models/tiny", "../tiny"):
        with pytest.raises(NamedModelNotFound) as refused:
            routed(api, place)
        assert "trainyard serve" not in refused.value.message


def test_adapter_of_a_name_that_is_no_service_is_asked_for_in_other_ways(api: Api, base: str) -> None:
    with api.db.write() as session:
        job = lora(session)

    for name in (job, job.replace("job-", "ftjob-")):
        with pytest.raises(NamedModelNotFound, match="no service tiny; ask for SERVICE/JOB, or for the job's id alone"):
            routed(api, f"{base}/{name}")


def test_service_that_ends_is_not_offered(api: Api) -> None:
    with api.db.write() as session:
        served(session)
        served(session, "leaving", status="ENDING")

    for model in ("leaving", "leaving/job-none"):
        with pytest.raises(NamedModelNotFound, match="the service leaving is being deleted") as refused:
            routed(api, model)
        assert refused.value.message.endswith("; services: support")


def test_checkpoint_that_never_was_is_missing_and_a_deleted_one_is_named(api: Api) -> None:
    name = "ft:tiny:default:docs:00000000"
    with api.db.write() as session:
        job = make_trained(session, adapter=True, training_type="LORA")
        make_checkpoint(session, job, step=7).deleted_at = utc_now()
        session.add(RegisteredModel(name=name, kind="fine_tune", project="default", job_id=job.id, created_by="key-1"))

    with pytest.raises(Conflict, match="no checkpoint of step 7 any more"):
        routed(api, f"{name}:ckpt-step-7")
    with pytest.raises(NamedModelNotFound):
        routed(api, f"{name}:ckpt-step-99999")


def test_service_of_another_task_says_what_it_answers(api: Api) -> None:
    with api.db.write() as session:
        served(session)
        served(session, "vectors", task="embed")

    with pytest.raises(Conflict, match="vectors makes vectors: ask for embeddings"):
        routed(api, "vectors")
    with pytest.raises(Conflict, match="support makes text"):
        routed(api, "support", task="embed")


def test_models_are_asked_with_the_permission_alone(api: Api) -> None:
    with pytest.raises(Forbidden):
        routed(api, "support", caller=Caller(key_id="key-1", role=Role.VIEWER, project="default"))


def test_quantized_service_is_asked_by_its_own_name_alone(api: Api, base: str) -> None:
    with api.db.write() as session:
        document = replica_document("small")
        document["inference"]["model"] = {"quantization": "bnb-4bit"}
        small, job = served(session, "small", base=document), lora(session)

    for model in (BASE, base, job):
        with pytest.raises(ModelNotServed):
            routed(api, model, auto=False)
    assert routed(api, "small").service_id == small
    assert routed(api, f"small/{job}").adapter == job


@pytest.mark.both_databases
def test_automatic_service_takes_a_key_that_asks_when_its_own_has_ended(api: Api, base: str) -> None:
    first, other = (api_keys.authenticate(api.db, api.make_key(Role.INFERENCE)) for _ in range(2))
    service = routed(api, base, caller=first).service_id
    routed(api, base, caller=other)
    assert submits_as(api, service) == first.key_id, "as long as its key is good"
    with api.db.write() as session:
        session.get_one(ApiKey, first.key_id).revoked_at = utc_now()

    routed(api, base, caller=ASKER)
    assert submits_as(api, service) == first.key_id, "a key that is no good helps nothing"
    routed(api, base, caller=other)
    routed(api, base, caller=other)

    assert submits_as(api, service) == other.key_id
    with api.db.read() as session:
        messages = [row.message for row in session.scalars(select(ServiceEvent).order_by(ServiceEvent.seq))]
    assert len(messages) == 2
    assert other.key_id in messages[-1]
    loads.report(api.db, "g", {service: Load(waiting=1)})
    stepping.step(api.app.extensions["trainyard"].plane, service)
    with api.db.read() as session:
        job = session.scalars(select(Job)).one()
    assert (job.kind, job.created_by) == ("replica", other.key_id)


def test_service_that_a_user_made_keeps_its_key(api: Api) -> None:
    with api.db.write() as session:
        service = served(session, submits_as="key-gone")

    routed(api, "support", caller=asker(api))

    assert submits_as(api, service) == "key-gone"


def submits_as(api: Api, service_id: str) -> str:
    with api.db.read() as session:
        return session.get_one(Service, service_id).submits_as
