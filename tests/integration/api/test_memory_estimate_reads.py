"""When and how the API reads a config.json for the memory estimate: after the transaction, and along no link."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.memory.known_models import known_config
from app.http.context import EXTENSION
from app.models import Attempt, Job, Node
from app.models.base import utc_now
from app.services.jobs import fit
from tests.builders.factories import make_attempt, make_job, make_node
from tests.integration.api.test_memory_estimate import DRY, LLAMA, planned, training
from tests.systems.apps import Api

_MIXTURE = {
    "model_type": "mixtral",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}


@pytest.fixture
def gpus(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpus", devices=8, device_type="h100", memory_mb=80 * 1024)


@pytest.fixture
def model(api: Api) -> Path:
    directory = api.inputs / "own"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(dict(known_config(LLAMA) or {})))
    return directory


def submitted(api: Api, document: dict[str, Any]) -> str:
    return str(api.data(api.post("/v1/jobs", document), 201)["job_id"])


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    "changed",
    [{"mlp_only_layers": [[1]]}, {"mlp_only_layers": [{}]}, {"num_hidden_layers": 2**39}, {"hidden_size": "x"}],
)
def test_job_is_shown_whatever_its_configuration_becomes(api: Api, model: Path, changed: dict[str, Any]):
    job_id = submitted(api, training(str(model), "QLORA"))
    (model / "config.json").write_text(json.dumps(_MIXTURE | changed))

    memory = api.get(f"/v1/jobs/{job_id}")["memory_estimate"]

    assert (memory["verdict"], memory["total_bytes"], memory["device_type"]) == ("unknown", 0, "h100")
    assert next(iter(changed)) in memory["reason"]


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("error", [TypeError, OverflowError, KeyError, OSError, RecursionError])
def test_error_of_the_estimate_fails_no_answer(api: Api, monkeypatch: pytest.MonkeyPatch, error: type[Exception]):
    job_id = submitted(api, training(training_type="QLORA"))

    def broken(*_: Any) -> None:
        raise error("unforeseen")

    monkeypatch.setattr(fit, "fit_of", broken)

    assert "not understood" in api.get(f"/v1/jobs/{job_id}")["memory_estimate"]["reason"]
    assert planned(api, training(training_type="QLORA"))["verdict"] == "unknown"


@pytest.mark.usefixtures("gpus")
def test_jobs_that_ended_have_none_and_read_no_file(api: Api, model: Path, monkeypatch: pytest.MonkeyPatch):
    job_id = submitted(api, training(str(model), "QLORA"))
    assert api.get(f"/v1/jobs/{job_id}")["memory_estimate"]["verdict"] == "fits"
    read = _counted(monkeypatch)

    for state in sorted(TERMINAL):
        with api.db.write() as session:
            job = make_job(session, state=JobState(state))
            job.spec = training(str(model), "QLORA")
            ended = job.id
        assert api.get(f"/v1/jobs/{ended}")["memory_estimate"] is None

    assert read == []


@pytest.mark.usefixtures("gpus")
def test_files_are_read_while_no_connection_is_held(api: Api, model: Path, monkeypatch: pytest.MonkeyPatch):
    held: list[object] = []
    pool: Pool = api.db.engine.pool

    def taken(*_: object) -> None:
        held.append(None)

    def returned(*_: object) -> None:
        held.pop()

    event.listen(pool, "checkout", taken)
    event.listen(pool, "checkin", returned)
    read = _counted(monkeypatch, lambda: len(held))
    try:
        planned(api, training(str(model), "QLORA"))
        job_id = submitted(api, training(str(model), "QLORA"))
        api.get(f"/v1/jobs/{job_id}")
    finally:
        event.remove(pool, "checkout", taken)
        event.remove(pool, "checkin", returned)

    assert read == [0, 0, 0]


def test_refusal_is_never_based_on_nodes_seen_a_moment_ago(api: Api):
    with api.db.write() as session:
        make_node(session, "small", devices=8, device_type="a100-40gb", memory_mb=40 * 1024)
    api.problem(api.post(DRY, training(gpu_count=1)), 400)
    with api.db.write() as session:
        make_node(session, "large", devices=8, device_type="b300", memory_mb=280 * 1024)

    memory = planned(api, training(gpu_count=1))

    assert (memory["verdict"], memory["device_type"]) == ("fits", "b300")


def test_job_that_no_node_can_hold_keeps_the_cached_inventory(api: Api, monkeypatch: pytest.MonkeyPatch):
    with api.db.write() as session:
        make_node(session, "gone", devices=8, device_type="h100", memory_mb=80 * 1024)
    job_id = submitted(api, training(training_type="QLORA"))
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "resource_config": {**job.spec["resource_config"], "gpu_count": 64}}
    inventory = api.app.extensions[EXTENSION].plane.inventory
    seen = inventory._seen
    monkeypatch.setattr(inventory, "_clock", lambda: seen.at)

    memory = api.get(f"/v1/jobs/{job_id}")["memory_estimate"]

    assert (memory["verdict"], memory["device_type"], memory["devices"]) == ("unknown", None, 64)
    assert inventory._seen is seen


@pytest.mark.usefixtures("gpus")
class TestLinksThatAppearAfterTheCheck:
    """The path is resolved and checked, then opened part by part: a link in it now was put there meanwhile."""

    def test_directory_that_becomes_a_link_is_not_followed(self, api: Api, model: Path, tmp_path_factory: Any):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        (elsewhere / "config.json").write_text((model / "config.json").read_text())
        real = str(model / "config.json")
        assert fit._json_object(real)
        model.rename(api.inputs / "aside")
        model.symlink_to(elsewhere)

        assert fit._json_object(real) is None

    def test_checked_directory_is_swapped(
        self, api: Api, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
    ):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        (elsewhere / "config.json").write_text((model / "config.json").read_text())
        opened = fit._json_object

        def swapped(path: str) -> Mapping[str, Any] | None:
            model.rename(api.inputs / "aside")
            model.symlink_to(elsewhere)
            return opened(path)

        monkeypatch.setattr(fit, "_json_object", swapped)

        assert planned(api, training(str(model), "QLORA"))["verdict"] == "unknown"


def test_job_that_began_on_gpus_that_are_lost_keeps_their_estimate(api: Api):
    with api.db.write() as session:
        make_node(session, "cpu", devices=2)
        make_node(session, "gpus", devices=8, device_type="h100", memory_mb=80 * 1024)
    job_id = submitted(api, training(training_type="QLORA", device_type="auto"))
    before = api.get(f"/v1/jobs/{job_id}")["memory_estimate"]
    with api.db.write() as session:
        node = session.get_one(Node, "gpus")
        node.state, node.lost_at = "lost", utc_now() - timedelta(hours=1)
        make_attempt(session, session.get_one(Job, job_id), node)
        session.flush()
        session.get_one(Attempt, (job_id, 1)).started_at = utc_now()
    api.app.extensions[EXTENSION].plane.inventory._seen = None

    assert before["parts"]["overhead"] > 0
    assert api.get(f"/v1/jobs/{job_id}")["memory_estimate"]["parts"] == before["parts"]


def _counted(monkeypatch: pytest.MonkeyPatch, note: Callable[[], object] = lambda: None) -> list[object]:
    """One entry for each config.json that is opened from here on."""
    found: list[object] = []
    opened = fit._json_object

    def counted(path: str) -> Mapping[str, Any] | None:
        found.append(note())
        return opened(path)

    monkeypatch.setattr(fit, "_json_object", counted)
    return found
