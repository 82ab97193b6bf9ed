"""OpenAI's own client through connections that are cut: what it creates is created once, and it knows the id."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from app.database.from_settings import open_database
from app.models import RegisteredModel
from app.services.operations.bootstrap import prepare
from config.settings import load_settings
from tests.builders.batches import CHAT, lines_of, request_line
from tests.faults.cutting_proxy import CuttingProxy, Moment
from tests.faults.proxy import ProxyThread
from tests.lazy_imports import lazily_imported
from tests.systems.installations import with_inputs
from tests.systems.system import System, wait_for

if TYPE_CHECKING:
    import openai
else:
    openai = lazily_imported("openai")

CLIENTS = 4
THINGS = 200
CHATS = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
MODEL = "tiny"


@dataclass
class Creator:
    """A client with a key and a line of its own, and what it was given: ids by kind of thing."""

    client: "openai.OpenAI"
    line: CuttingProxy
    training_file: str = ""
    requests_file: str = ""
    made: dict[str, list[str]] = field(default_factory=dict)

    def prepare(self) -> None:
        upload = self.client.files.create
        self.training_file = upload(file=("train.jsonl", CHATS), purpose="fine-tune").id
        self.requests_file = upload(file=("asked.jsonl", lines_of([request_line("a")])), purpose="batch").id

    def create(self, numbers: range) -> None:
        """One thing for each number: each kind is cut at each moment, and some are cut twice."""
        kinds: list[tuple[str, Callable[[str], str]]] = [
            ("files", self._file),
            ("jobs", self._job),
            ("batches", self._batch),
        ]
        moments = list(Moment)
        for number in numbers:
            name, create = kinds[number % len(kinds)]
            moment = moments[number // len(kinds) % len(moments)]
            self.line.cut(*([moment] if number % 5 else [moment, moments[number % len(moments)]]))
            # Most are equal to an earlier one. What overtakes the request that it repeats must not be: nothing tells
            # it from a repetition of the earlier one.
            label = f"number {number}" if moment is Moment.SENT else "always the same"
            self.made.setdefault(name, []).append(create(label))

    def _file(self, label: str) -> str:
        return self.client.files.create(file=(f"{label}.txt", label.encode()), purpose="user_data").id

    def _job(self, label: str) -> str:
        jobs = self.client.fine_tuning.jobs
        return jobs.create(training_file=self.training_file, model=MODEL, metadata={"label": label}).id

    def _batch(self, label: str) -> str:
        asked: Any = {"input_file_id": self.requests_file, "endpoint": CHAT, "completion_window": "24h"}
        return self.client.batches.create(**asked, metadata={"label": label}).id


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[System]:
    """An API without nodes and coordinators: what is created stays as it was created."""
    system = with_inputs(System(tmp_path_factory.mktemp("cut") / "system"))
    try:
        api_alone(system)
        owned_pids.update({system.redis.pid, system.pid("api")})
        yield system
    finally:
        system.stop()


def api_alone(system: System) -> None:
    system.redis.start()
    settings = load_settings(system.environment)
    prepare(settings)
    with closing(open_database(settings.database)) as db, db.write() as session:
        location = str(system.inputs / "model")
        session.add(RegisteredModel(name=MODEL, kind="base", location=location, created_by=""))
    system.start_api()
    wait_for(lambda: answers(system), seconds=30, what="the API")


def answers(system: System) -> bool:
    try:
        return system.call("GET", "/health")[0] == 200
    except OSError:
        return False


@pytest.fixture
def creators(served: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Creator]]:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.02)
    thread = ProxyThread()
    with ExitStack() as stack:
        stack.callback(thread.close)
        made = []
        for number in range(CLIENTS):
            line = CuttingProxy(thread, served.port)
            stack.callback(line.close)
            _, answer = served.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": f"k{number}"})
            base_url = f"http://127.0.0.1:{line.port}/v1"
            client = openai.OpenAI(base_url=base_url, api_key=answer["data"]["key"], max_retries=4)
            made.append(Creator(stack.enter_context(client), line))
        yield made


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_a_client_creates_over_cut_connections_is_there_once(creators: list[Creator]) -> None:
    client = creators[0].client
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(Creator.prepare, creators))
        before = existing(client)
        list(threads.map(lambda each: each.create(range(THINGS // CLIENTS)), creators))

    made = {name: [made_id for each in creators for made_id in each.made[name]] for name in before}
    assert sum(map(len, made.values())) == THINGS
    assert new_since(before, existing(client)) == {name: sorted(ids) for name, ids in made.items()}
    for each in creators:
        assert each.line.cuts.count(Moment.COMMITTED) >= THINGS // CLIENTS // len(Moment)
        assert not each.line.is_armed


def existing(client: "openai.OpenAI") -> dict[str, list[str]]:
    """Ids of everything there is, by kind."""
    return {
        "files": [each.id for each in client.files.list()],
        "jobs": [each.id for each in client.fine_tuning.jobs.list()],
        "batches": [each.id for each in client.batches.list()],
    }


def new_since(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: sorted(set(ids) - set(before[name])) for name, ids in after.items()}
