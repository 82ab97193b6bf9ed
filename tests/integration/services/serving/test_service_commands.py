"""Creating, changing, pausing, deleting and finding services."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.errors import (
    BadSpec,
    Conflict,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    NotSupportedYet,
    UnknownQueue,
)
from app.domain.ids import new_id
from app.domain.spec.model import BaseModel
from app.models import File, Service, WebhookDelivery
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.inference.models import WantedModel
from app.services.model_registry import registered
from app.services.requests.pagination import PageRequest
from app.services.serving import commands, creation, history, listing, lookup, stepping
from app.services.serving.creation import CreatedService
from tests.builders.factories import make_webhook
from tests.builders.service_runs import CALLER, MODEL, ServiceRun, new_service
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

OTHER = Caller(key_id="cli", role=Role.ADMIN, project="other")
NEWEST = PageRequest(size=50, order="-created_at")


def test_a_new_service_is_stored_with_the_document_of_its_replicas(api: Api) -> None:
    run = ServiceRun(api, limits={"max_context": 512}, defaults={"temperature": 0.5}, replicas={"max": 3})
    service = run.service()
    assert (service.status, service.revision, service.wanted) == ("ACTIVE", 1, 0)
    assert (service.model_key, service.task, service.is_automatic) == (MODEL, "generate", False)
    assert service.spec["model"] == {"model_uri": MODEL, "quantization": "none"}
    serving = service.base["inference"]["serving"]
    assert (serving["service_id"], serving["name"]) == (run.id, "support")
    assert (serving["max_context"], serving["max_loaded"]) == (512, 32)
    assert serving["defaults"] == {"temperature": 0.5}
    assert run.events() == ["service.created"]


def test_file_that_the_project_does_not_have_is_no_model_and_an_expired_one_stays_that_of_its_service(api: Api) -> None:
    file = {"filename": "m.tar", "purpose": "directory", "size_bytes": 1, "sha256": "0" * 64, "status": "processed"}
    file_id = new_id("file")
    with api.db.write() as session:
        session.add(File(id=file_id, project="default", created_by="key-1", **file))
    model = WantedModel(base=BaseModel().changed(model_id=file_id))
    run = ServiceRun(api, model=model, replicas={"min": 1})
    missing = WantedModel(base=BaseModel().changed(model_id=new_id("file")))
    with pytest.raises(BadSpec, match="has no file") as refused:
        creation.create(run.plane, CALLER, new_service(name="other", model=missing))
    assert refused.value.field == "model.model_uri"
    with pytest.raises(BadSpec, match="has no file"):
        commands.change(run.plane, CALLER, run.id, {"model": missing})

    with api.db.write() as session:
        session.get_one(File, file_id).expires_at = utc_now() - timedelta(seconds=1)
    run.step()
    assert run.states() == ["PENDING"]
    commands.change(run.plane, CALLER, run.id, {"limits": {"max_context": 256}})
    with pytest.raises(BadSpec, match="has no file"):
        creation.create(run.plane, CALLER, new_service(name="late", model=model))


def test_what_created_it_is_given_the_service_and_its_warnings(api: Api) -> None:
    run = ServiceRun(api)
    made: list[CreatedService] = []
    creation.create(run.plane, CALLER, new_service(name="other"), on_written=lambda _session, found: made.append(found))
    assert [found.service.name for found in made] == ["other"]


def test_webhooks_receive_the_events_that_they_name(api: Api) -> None:
    run = ServiceRun(api, name="another")
    with run.plane.db.write() as session:
        for event_types in (["service.created"], ["COMPLETED"], []):
            make_webhook(session, event_types=event_types)
    ServiceRun(api)
    with run.plane.db.read() as session:
        sent = session.scalars(select(WebhookDelivery).order_by(WebhookDelivery.id)).all()
    assert [each.event_type for each in sent] == ["service.created"] * 2
    assert sent[0].payload["service"]["name"] == "support"
    assert sent[0].payload["event"]["actor"] == CALLER.actor


def test_a_name_is_free_again_only_when_its_service_has_ended(api: Api) -> None:
    run = ServiceRun(api)
    for attempt in (creation.create, creation.plan):
        with pytest.raises(Conflict, match="has a service support already") as found:
            attempt(run.plane, CALLER, new_service())
        assert found.value.field == "name"
    commands.delete(run.plane, CALLER, "support")
    with pytest.raises(Conflict):
        creation.create(run.plane, CALLER, new_service())
    run.step()
    assert creation.create(run.plane, CALLER, new_service()).name == "support"


def test_a_name_of_a_registered_model_is_for_services_of_that_model(api: Api) -> None:
    run = ServiceRun(api, name="another")
    admin = Caller(key_id="cli", role=Role.SUPER_ADMIN, project=None)
    registered.register(api.db, admin, "tiny", MODEL)
    registered.register(api.db, admin, "large", "org/large")
    for attempt in (creation.plan, creation.create):
        with pytest.raises(Conflict, match=r"large is the name of a registered model \(org/large\)") as found:
            attempt(run.plane, CALLER, new_service(name="large"))
        assert found.value.field == "name"
    assert creation.create(run.plane, CALLER, new_service(name="tiny")).name == "tiny"
    with pytest.raises(Conflict, match="tiny is the name of a registered model") as changed:
        commands.change(run.plane, CALLER, "tiny", {"model": WantedModel(base=BaseModel().changed(model_id="org/x"))})
    assert changed.value.field == "model"
    registered.remove(api.db, admin, "large")
    assert creation.create(run.plane, CALLER, new_service(name="large")).name == "large"


def test_of_several_at_once_with_one_name_one_is_made(api: Api) -> None:
    run = ServiceRun(api, name="another")

    def create(_number: int) -> str:
        try:
            return creation.create(run.plane, CALLER, new_service()).id
        except Conflict:
            return "taken"

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(create, range(4)))
    assert made.count("taken") == 3


@pytest.mark.parametrize(
    ("document", "error", "field"),
    [
        ({"replicas": {"min": 3, "max": 2}}, BadSpec, "replicas.min"),
        ({"engine": "vllm"}, NotSupportedYet, "engine"),
        ({"resource_config": {"gpu_count": 1, "node_count": 2}}, BadSpec, "resource_config.node_count"),
        ({"scheduling_config": {"queue": "nowhere"}}, InvalidRequest, "scheduling_config.queue"),
    ],
)
def test_what_no_replica_could_do_is_refused(
    api: Api, document: dict[str, Any], error: type[InvalidRequest], field: str
) -> None:
    run = ServiceRun(api, name="another")
    with pytest.raises(error) as found:
        creation.create(run.plane, CALLER, new_service(**document))
    assert found.value.field == field


def test_a_model_that_the_project_does_not_have_is_refused_by_the_field_of_the_request(api: Api) -> None:
    run = ServiceRun(api, name="another")
    with pytest.raises(NotFound) as found:
        creation.create(run.plane, CALLER, new_service(WantedModel(job_id="job-0")))
    assert found.value.field == "model.job_id"


def test_secrets_are_sealed_shown_masked_and_given_to_replicas(api: Api) -> None:
    place = BaseModel().changed(
        model_id="s3://models/tiny", credentials={"access_key_id": "AKIA", "secret_access_key": "hidden"}
    )
    run = ServiceRun(
        api,
        model=WantedModel(base=place),
        replicas={"min": 1},
        environment={"API_TOKEN": "hidden-token", "PLAIN": "shown"},
    )
    service = run.service()
    assert "hidden" not in str(service.spec) + str(service.base)
    assert service.spec["environment"] == {"API_TOKEN": "***", "PLAIN": "shown"}
    commands.change(run.plane, CALLER, "support", {"limits": {"max_context": 128}})
    assert run.service().revision == 2
    run.step()
    job = run.job(0)
    assert "hidden" not in str(job.spec)
    opened = run.plane.box.open(job.sealed_secrets)
    assert opened["training_config.environment.API_TOKEN"] == "hidden-token"
    assert opened["training_config.base_model.credentials.secret_access_key"] == "hidden"


def test_a_changed_environment_keeps_the_values_that_it_masks(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1}, environment={"API_TOKEN": "hidden-token", "OTHER_TOKEN": "gone"})
    commands.change(run.plane, CALLER, "support", {"environment": {"API_TOKEN": "***", "MODE": "fast"}})
    assert run.service().spec["environment"] == {"API_TOKEN": "***", "MODE": "fast"}
    run.step()
    opened = run.plane.box.open(run.job(0).sealed_secrets)
    assert opened == {"training_config.environment.API_TOKEN": "hidden-token"}
    with pytest.raises(BadSpec, match="the service has no NEW_TOKEN") as found:
        commands.change(run.plane, CALLER, "support", {"environment": {"NEW_TOKEN": "***"}})
    assert found.value.field == "environment.NEW_TOKEN"


def test_samples_of_requests_begin_and_end_without_new_replicas(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    for log in ("sample:0.5", "none"):
        commands.change(run.plane, CALLER, "support", {"log": log})
        assert (run.service().spec["log"], run.service().revision) == (log, 1)


def test_a_changed_queue_has_to_exist(api: Api) -> None:
    run = ServiceRun(api)
    with pytest.raises(UnknownQueue) as found:
        commands.change(run.plane, CALLER, "support", {"scheduling_config": {"queue": "none"}})
    assert found.value.field == "scheduling_config.queue"


@pytest.mark.parametrize(
    ("changes", "revision"),
    [
        ({"replicas": {"max": 7}}, 1),
        ({"limits": {"cold_start_seconds": 10}}, 1),
        ({"limits": {"max_output_tokens": 64}}, 2),
        ({"defaults": {"temperature": 0.1}}, 2),
        ({"adapters": {"source": "none"}}, 2),
        ({"resource_config": {"gpu_count": 2, "device_type": "cpu"}}, 2),
        ({"scheduling_config": {"priority": 8}}, 2),
        ({"environment": {"MODE": "fast"}}, 2),
        ({"environment": {}}, 1),
        ({"model": WantedModel(base=BaseModel().changed(model_id="org/base", revision="v2"))}, 2),
        ({"model": WantedModel(base=BaseModel().changed(model_id=MODEL))}, 1),
    ],
)
def test_only_what_concerns_the_replicas_themselves_makes_a_revision(
    api: Api, changes: dict[str, Any], revision: int
) -> None:
    run = ServiceRun(api, limits={"max_waiting": 5})
    changed = commands.change(run.plane, CALLER, "support", changes)
    assert changed.revision == revision
    assert run.service().spec["limits"]["max_waiting"] == 5, "only what is given changes"
    assert run.events() == ["service.created", "service.changed"]


def test_more_replicas_that_always_run_are_started_at_once(api: Api) -> None:
    run = ServiceRun(api)
    run.step()
    commands.change(run.plane, CALLER, "support", {"replicas": {"min": 2, "max": 2}})
    assert list(stepping.active(run.db)) == [run.id]
    run.step()
    assert run.states() == ["PENDING", "PENDING"]


def test_a_change_that_breaks_a_rule_or_says_nothing_is_refused(api: Api) -> None:
    run = ServiceRun(api)
    with pytest.raises(BadSpec, match="contradict"):
        commands.change(run.plane, CALLER, "support", {"replicas": {"min": 5}})
    with pytest.raises(InvalidRequest, match="names nothing to change"):
        commands.change(run.plane, CALLER, "support", {})
    assert "replicas" not in run.service().spec


def test_commands_are_idempotent_and_refused_after_a_deletion(api: Api) -> None:
    run = ServiceRun(api)
    for command in (commands.pause, commands.pause, commands.resume, commands.resume):
        command(run.plane, CALLER, "support")
    assert run.events() == ["service.created", "service.status", "service.status"]
    commands.delete(run.plane, CALLER, "support")
    commands.delete(run.plane, CALLER, run.id)
    for command in (commands.pause, commands.resume):
        with pytest.raises(IllegalTransition, match="was deleted and is ENDING"):
            command(run.plane, CALLER, run.id)
    run.step()
    with pytest.raises(IllegalTransition, match="was deleted and is ENDED"):
        commands.delete(run.plane, CALLER, run.id)
    with pytest.raises(NotFound):
        commands.delete(run.plane, CALLER, "support")


def test_services_of_other_projects_are_not_found(api: Api) -> None:
    run = ServiceRun(api)
    with run.db.read() as session:
        for handle in (run.id, "support"):
            with pytest.raises(NotFound, match="no service"):
                lookup.service(session, OTHER, handle)
            assert lookup.service(session, CALLER, handle).id == run.id
        assert list(listing.page(session, OTHER, {}, NEWEST).items) == []


def test_a_service_is_shown_with_its_counts(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 2, "max": 2})
    run.step()
    run.answer(0)
    run.load(in_flight=3, waiting=1, requests=9)
    with run.db.read() as session:
        (shown,) = listing.page(session, CALLER, {}, NEWEST).items
        assert (shown.answering, shown.starting, shown.fleet.draining) == (1, 1, 0)
        assert (shown.load.in_flight, shown.load.waiting) == (3, 1)
        found = listing.replicas(session, shown.service, {"status": ["SERVING"]}, PageRequest(size=5, order="number"))
        assert [(each.replica.number, each.answers) for each in found.items] == [(0, True)]
        newest = history.events(session, run.id, NEWEST).items
        assert [event.seq for event in newest] == [3, 2, 1]


def test_ended_services_are_listed_when_they_are_asked_for(api: Api) -> None:
    run = ServiceRun(api)
    commands.delete(run.plane, CALLER, "support")
    run.step()
    with run.db.read() as session:
        assert list(listing.page(session, CALLER, {}, NEWEST).items) == []
        assert len(listing.page(session, CALLER, {"status": ["ENDED"]}, NEWEST).items) == 1


def test_services_at_rest_are_not_stepped(api: Api) -> None:
    run = ServiceRun(api)
    assert list(stepping.active(run.db)) == []
    assert stepping.any_live(run.db)
    run.load(requests=1, waiting=1)
    assert list(stepping.active(run.db)) == [run.id]
    commands.delete(run.plane, CALLER, "support")
    run.step()
    assert not stepping.any_live(run.db)


def test_loads_of_services_that_are_gone_are_left_out(api: Api) -> None:
    run = ServiceRun(api)
    with run.db.write() as session:
        session.delete(session.get_one(Service, run.id))
    run.load(requests=1, waiting=1)
    assert list(stepping.active(run.db)) == []
