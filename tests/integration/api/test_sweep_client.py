"""The client's calls about sweeps against the real API over real HTTP: each route has one, and answers are typed."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from werkzeug.routing import MapAdapter

from app.domain.sweeps.states import SweepState, TrialState
from app.models import Sweep
from app.services.sweeps import history
from tests.builders.sweeps import make_sweep, make_sweep_document, make_trial
from tests.systems.apps import Api
from tests.systems.served import Served, serving
from trainyard import records
from trainyard._client.http import Transport
from trainyard.client import Client, Conflict, InvalidRequest, NotFound


@pytest.fixture
def served(api: Api) -> Iterator[Served]:
    with serving(api) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Client:
    return served.client()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Method and path of each request."""
    found, opened = [], Transport.open

    def recording(self: Transport, method: str, path: str, **request: Any) -> Any:
        found.append((method, path))
        return opened(self, method, path, **request)

    monkeypatch.setattr(Transport, "open", recording)
    return found


def assert_is(record: Mapping[str, Any], kind: Any) -> None:
    """The answer has every promised field, and no other."""
    assert kind.__required_keys__ == set(record)


def stored(api: Api, **columns: Any) -> str:
    """A sweep with a completed and a running trial."""
    with api.db.write() as session:
        sweep = make_sweep(session, **columns)
        make_trial(session, sweep)
        make_trial(session, sweep, state=TrialState.RUNNING)
        sweep.best_number = 0
        return str(sweep.id)


def ended(api: Api, sweep_id: str) -> None:
    with api.db.write() as session:
        history.move(session, session.get_one(Sweep, sweep_id), SweepState.CANCELLED, actor="test")


@pytest.mark.long
def test_every_route_of_sweeps_has_a_call(client: Client, served: Served, asked: list[tuple[str, str]]) -> None:
    sweep_id = stored(served.api)
    sweeps = client.sweeps

    plan = sweeps.dry_run(make_sweep_document())
    created = sweeps.create(make_sweep_document(name="mine"), idempotency_key="once", tokens={"user": "token"})
    assert sweeps.create(make_sweep_document(name="mine"), idempotency_key="once", tokens={"user": "token"}) == created
    added = sweeps.add_trial(created["sweep_id"], {"learning_rate": 1e-4, "weight_decay": 0.1})
    forked = sweeps.fork(created["sweep_id"], name="other", budget={"max_trials": 9})
    shown = sweeps.get(sweep_id)
    [best] = sweeps.best(sweep_id, document=True)

    for record, kind in (
        (plan, records.SweepPlan),
        (created, records.CreatedSweep),
        (forked, records.CreatedSweep),
        (added, records.Trial),
        (shown, records.Sweep),
        (best, records.BestTrial),
        (sweeps.replay(sweep_id), records.Replay),
        (next(sweeps.events(created["sweep_id"])), records.Event),
    ):
        assert_is(record, kind)
    assert [each["number"] for each in sweeps.trials(sweep_id, order_by="-number")] == [1, 0]
    assert [each["number"] for each in sweeps.trials(sweep_id, state=["COMPLETED"])] == [0]
    assert sweeps.promote_trial(sweep_id, 1)["promoted"] is True
    assert sweeps.stop_trial(sweep_id, 1)["state"] == "RUNNING"
    assert sweeps.trial(sweep_id, 1)["number"] == 1
    assert sweeps.change(sweep_id, budget={"max_trials": 9}, labels={"a": "b"})["labels"] == {"a": "b"}
    assert [each["sweep_id"] for each in sweeps.list(name="mine")] == [created["sweep_id"]]
    assert sweeps.pause(sweep_id, trials="finish")["status"] == "PAUSED"
    assert [each["sweep_id"] for each in sweeps.list(status=["PAUSED"], project="default")] == [sweep_id]
    assert sweeps.resume(sweep_id)["status"] == "RUNNING"
    assert sweeps.stop(sweep_id)["status"] == "FINISHING"
    assert sweeps.cancel(sweep_id, reason="enough")["status"] == "FINISHING"
    ended(served.api, sweep_id)
    assert sweeps.wait(sweep_id)["status"] == "CANCELLED"
    types = [event.data["type"] for event in sweeps.follow_events(sweep_id)]
    assert types[-1] == "sweep.status"
    sweeps.delete(sweep_id)
    with pytest.raises(NotFound):
        sweeps.get(sweep_id)
    assert routes_of_sweeps(served.api) - endpoints(served.api, asked) == set()


def routes_of_sweeps(api: Api) -> set[str]:
    return {rule.endpoint for rule in api.app.url_map.iter_rules() if rule.endpoint.startswith("sweeps.")}


def endpoints(api: Api, asked: list[tuple[str, str]]) -> set[str]:
    urls: MapAdapter = api.app.url_map.bind("127.0.0.1")
    return {urls.match(path, method=method)[0] for method, path in asked}


def test_best_of_a_sweep_is_a_document_that_can_be_submitted(client: Client, served: Served) -> None:
    created = client.sweeps.create(make_sweep_document())
    sweep_id = created["sweep_id"]
    with served.api.db.write() as session:
        sweep = session.get_one(Sweep, sweep_id)
        make_trial(session, sweep, values={"learning_rate": 2e-4, "weight_decay": 0.1})

    [best] = client.sweeps.best(sweep_id, document=True)
    job = client.get(client.submit(best["document"] or {}).job_id)

    hyperparameters = job.data["training_config"]["hyperparameters"]
    assert (hyperparameters["learning_rate"], hyperparameters["weight_decay"]) == ("0.0002", "0.1")
    assert job.name == "search-best-0"


def test_refusals_are_typed_and_name_the_field(client: Client, served: Served) -> None:
    sweep_id = stored(served.api, status=SweepState.COMPLETED)

    with pytest.raises(InvalidRequest) as caught:
        client.sweeps.create(make_sweep_document(parameters={"learning_rat": {"type": "double", "min": 1, "max": 2}}))
    with pytest.raises(Conflict, match="cannot be paused"):
        client.sweeps.pause(sweep_id)

    assert caught.value.details[0]["field"] == "parameters.learning_rat"


def test_waiting_has_an_end(client: Client, served: Served) -> None:
    sweep_id = stored(served.api)

    with pytest.raises(TimeoutError, match=f"sweep {sweep_id} has not ended within 0.05 s"):
        client.sweeps.wait(sweep_id, timeout_seconds=0.05, poll_seconds=0.01)
