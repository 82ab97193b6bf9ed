"""Services by real processes: from zero and back, replaced, and their processes killed."""

import http.client
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.lazy_imports import lazily_imported
from tests.systems.children import child_that_runs
from tests.systems.forked_agents import ForkedAgents
from tests.systems.installations import running_system
from tests.systems.system import TRAINYARD, System, wait_for
from tests.systems.with_gateway import answers as listens
from tests.systems.with_gateway import gateway_of, requests_counted

if TYPE_CHECKING:
    import openai
else:
    openai = lazily_imported("openai")

pytestmark = pytest.mark.long

MESSAGES: Any = [{"role": "user", "content": "def f(x):"}]
REPLICAS = {"min": 0, "max": 1, "target_in_flight": 4, "idle_seconds": 5}


@pytest.fixture(scope="module")
def started(
    tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int], forked_agents: ForkedAgents, assets: dict[str, str]
) -> Iterator[System]:
    """With two nodes, and the registered model `tiny`."""
    with running_system(tmp_path_factory.mktemp("services") / "system", owned_pids, "n1", "n2") as system:
        forked_agents.serve_system(system)
        model = shutil.copytree(assets["model"], system.inputs / "model-of-services")
        subprocess.run(
            [TRAINYARD, "models", "add", "tiny", str(model), "--local"], env=system.environment, check=True, timeout=60
        )
        yield system


@pytest.fixture
def system(started: System) -> Iterator[System]:
    """The same with a gateway; its services are ended."""
    with gateway_of(started):
        yield started


def client_of(system: System, role: str = "inference") -> "openai.OpenAI":
    _, made = system.call("POST", "/v1/keys", {"role": role, "project": "default", "name": role})
    return openai.OpenAI(base_url=f"http://127.0.0.1:{system.port}/v1", api_key=made["data"]["key"], timeout=90)


def create(system: System, name: str, **changes: Any) -> str:
    document = {
        "name": name,
        "model": {"model_uri": "tiny"},
        "replicas": REPLICAS,
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        **changes,
    }
    status, body = system.call("POST", "/v1/services", document)
    assert status == 201, body
    return str(body["data"]["service_id"])


def replicas_of(system: System, service_id: str, *states: str) -> list[dict[str, Any]]:
    """In the order of their numbers; those in one of the states if any is named."""
    found = system.get(f"/v1/services/{service_id}/replicas")["replicas"]
    chosen = [each for each in found if not states or each["status"] in states]
    return sorted(chosen, key=lambda each: int(each["number"]))


def ask(client: "openai.OpenAI", model: str, **changes: Any) -> str:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0, **changes}
    answer = client.chat.completions.create(model=model, messages=MESSAGES, **options)
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 12
    return str(answer.choices[0].message.content)


@pytest.mark.timeout(300)
def test_a_service_answers_from_zero_and_goes_back_to_it(system: System) -> None:
    service_id = create(system, "support")
    with client_of(system) as client:
        assert replicas_of(system, service_id) == []
        first = ask(client, "support")
        streamed = client.chat.completions.create(
            model="support",
            messages=MESSAGES,
            max_tokens=12,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(streamed)
        [replica] = replicas_of(system, service_id, "SERVING")
        text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)

        assert text == first
        assert chunks[-1].usage is not None
        assert system.statuses(replica["job_id"])[-1] == "SERVING"
        with pytest.raises(openai.NotFoundError):
            ask(client, "no-such-service")
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, "support", max_tokens=12, temperature=3)
        assert refused.value.param == "temperature"

        system.wait_for_status(replica["job_id"], "COMPLETED", seconds=60)
        assert ask(client, "support") == first
    wait_for(lambda: requests_counted(system, "support") == 3, seconds=20, what="all of its requests are counted")


@pytest.mark.timeout(300)
def test_answers_survive_kills_and_a_change_of_the_service(system: System, assets: dict[str, str]) -> None:
    """Requests come in all the time: none is lost while the replica's supervisor is killed, then all is replaced."""
    service_id = create(system, "steady", replicas={"min": 1, "max": 2, "target_in_flight": 64, "idle_seconds": 600})
    ends, answers, failures = threading.Event(), [], []

    def ask_all_the_time() -> None:
        with client_of(system) as client:
            while not ends.is_set():
                try:
                    answers.append(ask(client, "steady"))
                except Exception as error:  # noqa: BLE001  all of them are what the test is about
                    failures.append(f"{type(error).__name__}: {error}")

    asking = threading.Thread(target=ask_all_the_time)
    asking.start()
    try:
        wait_for(lambda: len(answers) > 3, seconds=90, what="it answers")
        [first] = replicas_of(system, service_id, "SERVING")
        supervisor = system.supervisor_of(first["job_id"])
        relay = child_that_runs("workers.relay", supervisor.pid)
        supervisor.kill()
        wait_for(lambda: not relay.is_running(), seconds=10, what="the relay dies with it")
        before = len(answers)
        wait_for(lambda: len(answers) > before + 3, seconds=120, what="it answers again")

        copy = shutil.copytree(assets["model"], system.inputs / "another-model")
        status, body = system.call("PATCH", f"/v1/services/{service_id}", {"model": {"model_uri": str(copy)}})
        assert status == 200, body
        wait_for(
            lambda: [each["revision"] for each in replicas_of(system, service_id, "SERVING")] == [2],
            seconds=120,
            what="all replicas are of the new revision",
        )
        before = len(answers)
        wait_for(lambda: len(answers) > before + 3, seconds=60, what="it answers with the new model")
    finally:
        ends.set()
        asking.join()

    assert failures == []
    assert len(set(answers)) == 1
    assert system.call("DELETE", f"/v1/services/{service_id}")[0] in (200, 202, 204)
    wait_for(lambda: not replicas_of(system, service_id, "SERVING"), seconds=60, what="its replicas are drained")


def end_of_request(system: System, key: str, *, streams: bool) -> str:
    """How a request to the service `kept` ended: answered, refused, error (within a stream), cut, or silent."""
    body = {"model": "kept", "messages": MESSAGES, "max_tokens": 200, "temperature": 0, "stream": streams}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", system.port, timeout=150)) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
    except (OSError, http.client.HTTPException):
        return "cut"
    if answer.status != 200:
        return "refused" if json.loads(content)["error"]["message"] else "silent"
    if not streams:
        return "answered" if json.loads(content)["choices"] else "silent"
    *_, last = (event for event in content.decode().split("\n\n") if event)
    if last == "data: [DONE]":
        return "answered"
    return "error" if last.startswith('data: {"error"') else "silent"


@pytest.mark.timeout(300)
def test_no_request_is_forgotten_when_the_engine_and_the_gateway_are_killed(system: System) -> None:
    """Some are answered by the next replica; each of the others ends with the reason, or a cut that clients notice."""
    service_id = create(system, "kept", replicas={"min": 1, "max": 1, "target_in_flight": 64, "idle_seconds": 600})
    _, made = system.call("POST", "/v1/keys", {"role": "inference", "project": "default", "name": "kept"})
    stops = threading.Event()
    ends: dict[str, list[str]] = {"whole": [], "streams": []}

    def ask_all_the_time(kind: str) -> None:
        while not stops.is_set():
            ends[kind].append(end_of_request(system, made["data"]["key"], streams=kind == "streams"))
            if ends[kind][-1] == "refused":
                stops.wait(0.2)

    def answered() -> int:
        return min(each.count("answered") for each in ends.values())

    asking = [threading.Thread(target=ask_all_the_time, args=[kind]) for kind in ("whole", "streams") * 3]
    for thread in asking:
        thread.start()
    try:
        wait_for(lambda: answered() > 2, seconds=120, what="it answers")
        [replica] = replicas_of(system, service_id, "SERVING")
        for rank in system.ranks_of(replica["job_id"]):
            rank.kill()
        before = answered()
        wait_for(lambda: answered() > before + 3, seconds=120, what="another replica answers")
        of_engine = set(ends["whole"])

        system.kill("gateway")
        wait_for(lambda: "refused" in ends["whole"], seconds=30, what="the API says that no gateway answers")
        system.start_gateway()
        wait_for(lambda: listens(system.gateway_port), seconds=60, what="the gateway listens")
        before = answered()
        wait_for(lambda: answered() > before + 3, seconds=120, what="it answers again")
    finally:
        stops.set()
        for thread in asking:
            thread.join()

    assert of_engine == {"answered"}  # what had not begun to be answered went to the next replica
    assert set(ends["whole"]) <= {"answered", "refused", "cut"}
    assert set(ends["streams"]) == {"answered", "refused", "error"}
