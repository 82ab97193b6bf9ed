"""A replica's part of its supervisor: with a real relay, a real engine's socket and a database, without ranks."""

import hashlib
import http.server
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Artifact, Job, Replica
from app.services.attempts import work_orders
from app.services.attempts.work_orders import WorkOrder
from app.storage.object_keys import artifacts_key
from app.storage.storage import Storage
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.builders.serving import make_replica, make_service
from tests.systems.system import wait_for
from trainyard.protocol.commands import AdapterAnswer, AdapterReady, AdapterRefused
from trainyard.protocol.messages import FetchAdapter
from workers.attempt_failed import AttemptFailed
from workers.run_dir.layout import RunDirectory
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.serving import adapters as adapters_module
from workers.supervisor.serving import replica as replica_module
from workers.supervisor.serving.adapters import Adapters
from workers.supervisor.serving.relay_process import RelayPlace
from workers.supervisor.serving.replica import ReplicaCalls, ServedReplica


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


class Engine(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        return super().get_request()[0], ("relay", 0)  # the handler logs an address


@pytest.fixture
def work(database: Database) -> WorkOrder:
    """The work order of a replica on a node."""
    with database.write() as session:
        job = make_replica(session, make_service(session))
        make_attempt(session, job, make_node(session, "n"))
        job.status = JobState.PREPARING
    return work_orders.load_work(database, job.id, 1)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run" / "1")
    made.make()
    return made


class Parts:
    """A replica, what it observed, and what it said."""

    def __init__(self, database: Database, work: WorkOrder, run: RunDirectory, storage: Storage) -> None:
        self.observed = Observations(custom=False, serves=True, can_save=False)
        self.failures: list[AttemptFailed] = []
        self.lost: list[str] = []
        self.answers: list[AdapterAnswer] = []
        self.adapters = Adapters(database, storage, work, run, self.answers.append)
        self.replica = ServedReplica(
            database,
            work,
            self.observed,
            self.adapters,
            place=lambda: RelayPlace(address="127.0.0.1", socket=run.path / "engine.sock", token="a" * 64),
            calls=ReplicaCalls(on_lost=self.lost.append, on_failed=self.failures.append),
            stuck_seconds=0.3,
        )

    def fetched(self, request: FetchAdapter) -> AdapterAnswer:
        before = len(self.answers)
        self.replica.fetch(request)
        wait_for(lambda: len(self.answers) > before, seconds=10, what="the adapter is answered")
        return self.answers[-1]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(f"file://{tmp_path / 'files'}")


@pytest.fixture
def parts(database: Database, work: WorkOrder, run: RunDirectory, storage: Storage) -> Iterator[Parts]:
    made = Parts(database, work, run, storage)
    yield made
    made.replica.close()


@pytest.fixture
def engine(run: RunDirectory) -> Iterator[Engine]:
    made = Engine(str(run.path / "engine.sock"), Handler)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(5)


def test_endpoint_is_recorded_once_the_engine_answers(
    database: Database, work: WorkOrder, parts: Parts, engine: Engine
) -> None:
    parts.replica.begin()
    wait_for(lambda: parts.observed.answers, seconds=20, what="the endpoint is recorded")

    with database.read() as session:
        replica, job = session.get_one(Replica, work.job_id), session.get_one(Job, work.job_id)
        assert (job.state, replica.fence, replica.attempt) == (JobState.SERVING, work.fence, 1)
        port = replica.port
    parts.replica.close()
    assert (parts.failures, parts.lost) == ([], [])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port or 0), timeout=5)


def test_holder_of_an_older_fence_records_nothing(
    database: Database, work: WorkOrder, parts: Parts, engine: Engine
) -> None:
    with database.write() as session:
        session.get_one(Job, work.job_id).fence += 1

    parts.replica.begin()
    wait_for(lambda: bool(parts.lost), seconds=20, what="the lease is found lost")

    with database.read() as session:
        replica = session.get_one(Replica, work.job_id)
        assert (replica.port, replica.answers_since) == (None, None)
    assert not parts.observed.answers


def test_engine_that_says_that_it_listens_and_does_not_is_a_fault_of_the_trainer(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "FIRST_SECONDS", 0.3)

    parts.replica.begin()
    wait_for(lambda: bool(parts.failures), seconds=20, what="the failure is found")

    (failure,) = parts.failures
    assert failure.error_type == "TRAINER_ERROR"
    assert "the engine does not listen: No such file or directory" in failure.message


def test_engine_that_falls_silent_hangs(parts: Parts, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "PROBE_SECONDS", 0.2)
    parts.replica.begin()
    wait_for(lambda: parts.observed.answers, seconds=20, what="the endpoint is recorded")

    engine.shutdown()  # connections are accepted by the kernel still
    wait_for(lambda: bool(parts.failures), seconds=20, what="the hang is found")

    assert parts.failures[0].error_type == "HANG"


@pytest.fixture
def trained(database: Database, storage: Storage) -> Callable[..., str]:
    """Makes completed jobs with an adapter in the storage."""

    def make(digest: str = "") -> str:
        with database.write() as session:
            lora = make_document(training_config={"training_type": "LORA"})
            job = make_job(session, state=JobState.COMPLETED, document=lora)
            for path in ("adapter_config.json", "adapter_model.safetensors", "optimizer.pt"):
                storage.write(f"{artifacts_key(job.id)}/{path}", path.encode())
                sha256 = digest or hashlib.sha256(path.encode()).hexdigest()
                session.add(Artifact(job_id=job.id, path=path, size_bytes=len(path), sha256=sha256))
            return job.id

    return make


def test_adapter_is_put_where_the_rank_reads_it_and_again_when_it_is_gone(
    parts: Parts, run: RunDirectory, trained: Callable[..., str]
) -> None:
    job_id = trained()
    place = run.path / "adapters" / "mine"

    for _ in range(2):
        answer = parts.fetched(FetchAdapter(name="mine", job_id=job_id))
        assert answer == AdapterReady("mine", str(place))
        assert sorted(path.name for path in place.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
        for path in place.iterdir():
            path.unlink()
        place.rmdir()
    assert list((run.taken_over / "adapters").iterdir()) == []


def test_adapter_that_differs_from_what_was_recorded_is_refused(
    parts: Parts, run: RunDirectory, trained: Callable[..., str]
) -> None:
    answer = parts.fetched(FetchAdapter(name="mine", job_id=trained(digest="0" * 64)))

    assert isinstance(answer, AdapterRefused)
    assert "content differs from its SHA-256" in answer.message
    assert not (run.path / "adapters").exists()


@pytest.mark.parametrize("in_the_way", ["adapters", "adapters/mine"])
def test_nothing_is_written_through_what_a_rank_puts_in_the_way(
    parts: Parts, run: RunDirectory, trained: Callable[..., str], tmp_path: Path, in_the_way: str
) -> None:
    elsewhere, link = tmp_path / "elsewhere", run.path / in_the_way
    elsewhere.mkdir()
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)

    answer = parts.fetched(FetchAdapter(name="mine", job_id=trained()))

    assert isinstance(answer, AdapterRefused)
    assert "could not be fetched: NotADirectoryError" in answer.message
    assert list(elsewhere.iterdir()) == []


def test_adapters_that_were_not_asked_for_in_a_long_time_are_removed(
    parts: Parts, run: RunDirectory, trained: Callable[..., str], tmp_path: Path
) -> None:
    job_id, place, most = trained(), run.path / "adapters", parts.adapters._most
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("of another")

    for number in range(most):
        parts.fetched(FetchAdapter(name=f"a{number}", job_id=job_id))
    parts.fetched(FetchAdapter(name="a0", job_id=job_id))
    (place / "a1").rename(place / "moved")
    (place / "a1").symlink_to(elsewhere)
    for name in ("more", "evenmore"):
        assert isinstance(parts.fetched(FetchAdapter(name=name, job_id=job_id)), AdapterReady)

    there = {path.name for path in place.iterdir()}
    assert {"a1", "a2"}.isdisjoint(there)
    assert {"a0", "more", "evenmore"} <= there
    assert (elsewhere / "file").exists()
    assert list((run.taken_over / "adapters").iterdir()) == []
    assert parts.fetched(FetchAdapter(name="a2", job_id=trained())) == AdapterReady("a2", str(place / "a2"))


def test_flood_of_requests_is_refused(
    parts: Parts, trained: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_continue = threading.Event()
    monkeypatch.setattr(adapters_module, "find_result", lambda *_: may_continue.wait(10))
    job_id = trained()

    for number in range(300):
        parts.replica.fetch(FetchAdapter(name=f"a{number}", job_id=job_id))

    refused = [each for each in list(parts.answers) if isinstance(each, AdapterRefused)]
    assert len(refused) >= 300 - adapters_module.MOST_WAITING - 1
    assert "are being fetched already" in refused[-1].message
    parts.replica.close()
    may_continue.set()
