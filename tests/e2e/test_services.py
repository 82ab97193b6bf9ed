"""Services by real processes: from zero and back, replaced, and their processes killed."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.lazy_imports import lazily_imported
from tests.systems.children import child_that_runs
from tests.systems.forked_agents import ForkedAgents
from tests.systems.installations import running_system
from tests.systems.system import TRAINYARD, System, wait_for
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
