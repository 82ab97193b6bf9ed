"""How a replica serves: what it reports, how it ends, and what becomes of requests whose client has left."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.engine_specs import engine_spec
from tests.unit.workers.trainers.inference.server.socket_client import COMPLETIONS, Answer, Replica
from trainyard._hooks.local_session import LocalSession
from trainyard.protocol.session import Identity
from workers.rank.run_context import RunContext
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.serving.openai.choices import Part, TextChoice
from workers.trainers.inference.serving.paged_schedule import PagedSchedule
from workers.trainers.inference.serving.schedule import After
from workers.trainers.inference.serving.server import EngineServer
from workers.trainers.inference.serving.trainer import ReplicaTrainer
from workers.trainers.registry import load

RunReplica = Callable[..., Replica]
LONG = {"model": "tiny", "prompt": "Return", "max_tokens": 64, "temperature": 1.5, "seed": 1, "logit_bias": {"2": -100}}


def state(replica: Replica) -> dict[str, Any]:
    with replica.connect() as connection:
        client = http.client.HTTPConnection("engine")
        client.sock = connection
        client.request("GET", "/health")
        found = client.getresponse()
        assert found.status == 200
        return dict(json.loads(found.read()))


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


class Asked:
    """A request that a thread waits for."""

    def __init__(self, replica: Replica, **values: Any) -> None:
        self.answers: list[Answer] = []
        body = {**LONG, **values}
        self._thread = threading.Thread(target=lambda: self.answers.append(replica.ask(COMPLETIONS, body)))
        self._thread.start()

    def answer(self) -> Answer:
        self._thread.join(60)
        return self.answers[0]


def test_registry_knows_replicas() -> None:
    assert load("TRANSFORMERS", "REPLICA") is ReplicaTrainer


def test_replica_runs_on_one_device(tmp_path: Path) -> None:
    spec = engine_spec(tmp_path, run_dir=tmp_path, world_size=2)

    with pytest.raises(InvalidConfig, match="gpu_count"):
        ReplicaTrainer(RunContext(spec, LocalSession(Identity.of(spec))))


@pytest.mark.long
def test_replica_reports_that_it_serves_and_that_it_is_idle(run_replica: RunReplica, llama: Path) -> None:
    replica = run_replica(llama)

    assert replica.session.phases == ["SERVING"]
    wait_for(lambda: "idle" in replica.session.sections)
    assert state(replica) == {"status": "serving", "in_flight": 0, "waiting": 0}
    assert replica.socket.stat().st_mode & 0o777 == 0o600
    wait_for(lambda: bool(replica.session.values))
    assert replica.session.values[0].keys() == {"step", "in_flight", "waiting", "adapters", "tokens_per_second"}
    assert replica.stop().stopped == "cancel"


def test_drained_replica_finishes_its_answers_and_takes_no_more(run_replica: RunReplica, llama: Path) -> None:
    replica = run_replica(llama)
    expected = replica.ask(COMPLETIONS, LONG).json["choices"]
    asked = Asked(replica, n=1)
    wait_for(lambda: state(replica)["in_flight"] == 1)

    with replica.connect() as connection:
        client = http.client.HTTPConnection("engine")
        client.sock = connection
        client.request("GET", "/health")
        client.getresponse().read()
        replica.request_stop("drain")
        wait_for(lambda: replica.result is not None or state(replica)["status"] == "draining")
        client.request("POST", COMPLETIONS, json.dumps(LONG))
        refused = client.getresponse()
        assert (refused.status, refused.getheader("Retry-After")) == (503, "1")
        assert json.loads(refused.read())["error"]["code"] == "replica_is_ending"

    assert asked.answer().json["choices"] == expected
    result = replica.stop("drain")
    assert result.stopped is None
    assert (result.step or 0) > 0
    assert result.tokens >= 64


@pytest.mark.parametrize("kind", ["requeue", "pause"])
def test_other_stops_leave_time_for_answers(run_replica: RunReplica, llama: Path, kind: str) -> None:
    replica = run_replica(llama)
    asked = Asked(replica)
    wait_for(lambda: state(replica)["in_flight"] == 1)

    assert replica.stop(kind).stopped == kind

    assert asked.answer().status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_cancelled_replica_says_that_an_answer_is_cut_off(
    run_replica: RunReplica, llama: Path, *, stream: bool
) -> None:
    replica = run_replica(llama)
    asked = Asked(replica, n=40, stream=stream)
    wait_for(lambda: state(replica)["in_flight"] > 0)

    replica.stop("cancel")

    answer = asked.answer()
    assert answer.status == 503 or (stream and answer.status == 200)
    last = [each for each in answer.text.split("\n\n") if each][-1].removeprefix("data: ")
    assert json.loads(last)["error"]["code"] == "replica_is_ending"


def test_request_whose_client_hangs_up_is_dropped(run_replica: RunReplica, llama: Path) -> None:
    replica = run_replica(llama)
    connection = replica.connect()
    client = http.client.HTTPConnection("engine")
    client.sock = connection
    client.request("POST", COMPLETIONS, json.dumps({**LONG, "n": 60, "stream": True}))
    assert client.getresponse().read(20)
    assert state(replica)["in_flight"] > 0

    client.close()
    connection.close()

    since = replica.session.commands  # the trainer is not stopped by it
    wait_for(lambda: state(replica)["in_flight"] + state(replica)["waiting"] == 0)
    assert since.stop is None
    assert replica.ask(COMPLETIONS, LONG).status == 200


@pytest.mark.parametrize("leaves", [True, False])
def test_usage_of_a_whole_answer_that_is_not_awaited(
    run_replica: RunReplica, llama: Path, monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    steps: list[float] = []
    run = PagedSchedule.run

    def slowly(self: PagedSchedule, after: After) -> None:
        time.sleep(0.01)
        run(self, after)
        steps.append(time.monotonic())

    monkeypatch.setattr(PagedSchedule, "run", slowly)
    replica = run_replica(llama)
    connection = replica.connect()
    client = http.client.HTTPConnection("engine")
    client.sock = connection
    client.request("POST", COMPLETIONS, json.dumps({**LONG, "n": 60}), {"X-Request-ID": "req_1"})
    wait_for(lambda: len(steps) > 5)

    if leaves:
        client.close()
        connection.close()
        wait_for(lambda: state(replica)["in_flight"] + state(replica)["waiting"] == 0)
    usage = replica.ask("/usage", {"request_id": "req_1"}).json["usage"]

    assert usage["prompt_tokens"] > 0
    assert 0 < usage["completion_tokens"] < 60 * 64
    wait_for(lambda: state(replica)["in_flight"] + state(replica)["waiting"] == 0)
    assert replica.ask("/usage", {"request_id": "req_2"}).json == {"usage": {}}
    connection.close()


def test_request_beyond_those_that_may_wait_is_refused_at_once(run_replica: RunReplica, llama: Path) -> None:
    replica = run_replica(llama, max_waiting=1)

    first = Asked(replica, n=20)
    wait_for(lambda: state(replica)["in_flight"] == 20)

    answer = replica.ask(COMPLETIONS, {**LONG, "n": 20})

    assert (answer.status, answer.error["code"], answer.headers["Retry-After"]) == (503, "overloaded", "1")
    assert first.answer().status == 200
    wait_for(lambda: state(replica)["in_flight"] + state(replica)["waiting"] == 0)


def test_answers_that_never_fit_at_once_are_refused_as_such(run_replica: RunReplica, llama: Path) -> None:
    answer = run_replica(llama, max_waiting=1).ask(COMPLETIONS, {**LONG, "n": 34})

    assert (answer.status, answer.error["param"]) == (400, "n")


@pytest.mark.parametrize("values", [{"temperature": 1e-38}, {"repetition_penalty": 1e-40}])
def test_options_that_leave_no_token_are_refused(run_replica: RunReplica, llama: Path, values: dict[str, Any]) -> None:
    answer = run_replica(llama).ask(COMPLETIONS, {**LONG, **values})

    assert (answer.status, answer.error["param"]) == (400, *values)


@pytest.mark.parametrize("stream", [False, True])
def test_fault_of_the_server_is_an_answer(replica: Replica, monkeypatch: pytest.MonkeyPatch, *, stream: bool) -> None:
    def fail(*_: object) -> Iterator[Part]:
        raise ZeroDivisionError

    monkeypatch.setattr(TextChoice, "add", fail)

    answer = replica.ask(COMPLETIONS, {**LONG, "echo": True, "stream": stream})

    assert answer.status == (200 if stream else 500)
    assert answer.text.count("server_error") == 1


def test_service_defaults_apply_to_what_a_request_leaves_out(run_replica: RunReplica, llama: Path) -> None:
    replica = run_replica(llama, defaults={"temperature": 0}, max_output_tokens=5)

    found = [replica.ask(COMPLETIONS, {"model": "tiny", "prompt": "Return"}).json for _ in range(2)]

    assert found[0]["choices"] == found[1]["choices"]
    assert found[0]["usage"]["completion_tokens"] <= 5


def test_context_of_the_service_is_the_smaller_one(run_replica: RunReplica, llama: Path) -> None:
    replica = run_replica(llama, max_context=16)

    answer = replica.ask(COMPLETIONS, {**LONG, "max_tokens": 16})

    assert answer.status == 400
    assert "context holds 16 tokens" in answer.error["message"]


def test_whatever_keeps_a_replica_from_listening_ends_it(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_server: EngineServer) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(EngineServer, "_bound", fail)
    spec = engine_spec(llama, training_type="REPLICA", inference={"serving": {"name": "tiny"}}, run_dir=tmp_path)

    with pytest.raises(ZeroDivisionError):
        ReplicaTrainer(RunContext(spec, LocalSession(Identity.of(spec)))).run()
