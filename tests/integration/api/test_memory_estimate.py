"""Will it fit? The memory estimate in dry runs, submissions and jobs, and what of it is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.memory.known_models import known_config
from app.models import Job
from tests.builders.factories import make_document, make_job, make_node
from tests.systems.apps import Api

DRY = "/v1/jobs?dry_run=true"
LLAMA = "meta-llama/Llama-3.1-8B"


@pytest.fixture
def gpus(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpus", devices=8, device_type="a100-40gb", memory_mb=40 * 1024)


def training(model: str = LLAMA, training_type: str = "SFT", **resources: Any) -> dict[str, Any]:
    document = make_document(resource_config={"gpu_count": 2, "device_type": "cuda", **resources})
    document["training_config"] |= {"training_type": training_type, "base_model": {"model_id": model}}
    document["data_config"] |= {"batch_size": 1}
    return document


def planned(api: Api, document: dict[str, Any]) -> dict[str, Any]:
    memory: dict[str, Any] = api.data(api.post(DRY, document))["plan"]["memory"]
    return memory


@pytest.mark.usefixtures("gpus")
def test_dry_run_shows_what_a_job_needs(api: Api):
    memory = planned(api, training(training_type="QLORA"))

    assert memory["verdict"] == "fits"
    assert (memory["devices"], memory["device_type"], memory["device_bytes"]) == (2, "a100-40gb", 40 * 2**30)
    assert memory["parameters"] == 8_030_261_248
    assert sum(memory["parts"].values()) == memory["total_bytes"]
    assert memory["message"].endswith("GB on each of 2 devices; a100-40gb has 40")
    assert memory["reason"] == ""


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("path", ["/v1/jobs", DRY])
def test_job_that_cannot_fit_is_refused_with_ways_out(api: Api, path: str):
    problem = api.problem(api.post(path, training()), 400)

    assert problem["details"][0]["field"] == "resource_config"
    assert "needs about " in problem["message"]
    assert "a100-40gb has 40: " in problem["message"]
    assert "QLORA" in problem["message"]
    assert "resource_config.force_fit: true submits it anyway" in problem["message"]
    with api.db.read() as session:
        assert session.query(Job).count() == 0


@pytest.mark.usefixtures("gpus")
def test_forced_job_is_accepted_with_a_warning(api: Api):
    answer = api.data(api.post("/v1/jobs", training(force_fit=True)), 201)

    assert any(each.startswith("resource_config: needs about ") for each in answer["warnings"])
    job = api.get(f"/v1/jobs/{answer['job_id']}")
    assert job["memory_estimate"]["verdict"] == "does_not_fit"
    assert {way["change"].partition(" ")[0] for way in job["memory_estimate"]["ways_out"]} >= {"QLORA", "FSDP"}
    assert all(way["set"] for way in job["memory_estimate"]["ways_out"])
    assert job["resource_config"]["force_fit"] is True


@pytest.mark.usefixtures("gpus")
def test_job_that_some_nodes_cannot_hold_is_accepted_with_a_warning_and_its_way_out_removes_it(api: Api):
    with api.db.write() as session:
        make_node(session, "small", devices=8, device_type="l4", memory_mb=24 * 1024)
    document = training(training_type="LORA")
    document["training_config"]["hyperparameters"] |= {"gradient_checkpointing": "true"}

    (warning,) = [each for each in api.data(api.post(DRY, document))["warnings"] if "needs about" in each]

    assert "; a100-40gb has 40, but it may be placed where l4 has 24: resource_config.gpu_memory_min_mb " in warning
    least_mb = int(warning.removesuffix(" prevents that").rpartition(" ")[2])
    document["resource_config"]["gpu_memory_min_mb"] = least_mb
    assert not [each for each in api.data(api.post(DRY, document))["warnings"] if "needs about" in each]


@pytest.mark.usefixtures("gpus")
def test_way_out_of_the_answer_is_accepted(api: Api):
    document = training(force_fit=True)
    (way, *_) = [each for each in planned(api, document)["ways_out"] if each["change"].startswith("FSDP")]
    for path, value in {**way["set"], "resource_config.force_fit": False}.items():
        *sections, name = path.split(".")
        at = document
        for section in sections:
            at = at.setdefault(section, {})
        at[name] = value

    memory = planned(api, document)

    assert (memory["verdict"], memory["total_bytes"]) == ("fits", way["bytes"])


def test_cpu_slots_refuse_nothing(api: Api):
    with api.db.write() as session:
        make_node(session, "slots", devices=8)

    memory = planned(api, training(device_type="cpu"))

    assert memory["verdict"] == "unknown"
    assert memory["total_bytes"] > 0


@pytest.mark.usefixtures("gpus")
def test_unheard_of_model_has_no_estimate_and_is_accepted(api: Api):
    job_id = api.data(api.post("/v1/jobs", training("someone/unheard-of")), 201)["job_id"]

    memory = api.get(f"/v1/jobs/{job_id}")["memory_estimate"]

    assert (memory["verdict"], memory["total_bytes"], memory["parts"]) == ("unknown", 0, {})
    assert "someone/unheard-of" in memory["reason"]


def test_lists_and_jobs_that_train_nothing_have_none(api: Api):
    with api.db.write() as session:
        job = make_job(session, state=JobState.QUEUED)
        job_id = job.id

    assert [each["memory_estimate"] for each in api.get("/v1/jobs")["jobs"]] == [None]
    assert api.get(f"/v1/jobs/{job_id}")["memory_estimate"]["verdict"] == "unknown"


@pytest.mark.usefixtures("gpus")
class TestConfigurationsOfDirectories:
    """A config.json is read below the roots alone, if it is small and regular."""

    @pytest.fixture
    def model(self, api: Api) -> Path:
        directory = api.inputs / "own"
        directory.mkdir(parents=True)
        self._write(directory)
        return directory

    def test_of_a_root_is_read(self, api: Api, model: Path):
        assert planned(api, training(str(model), "QLORA"))["parameters"] == 8_030_261_248

    def test_link_within_the_roots_is_followed(self, api: Api, model: Path):
        (model / "config.json").rename(model / "blob")
        (model / "config.json").symlink_to("blob")

        assert planned(api, training(str(model), "QLORA"))["parameters"] == 8_030_261_248

    def test_link_out_of_the_roots_is_not_followed(self, api: Api, model: Path, tmp_path_factory: Any):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        self._write(elsewhere)
        (model / "config.json").unlink()
        (model / "config.json").symlink_to(elsewhere / "config.json")

        assert planned(api, training(str(model)))["verdict"] == "unknown"

    @pytest.mark.parametrize("content", ["[" * 100_000, "[]", "{", "\udcff", '{"model_type": "llama"}', "7" * 5000])
    def test_what_is_no_configuration_is_unknown(self, api: Api, model: Path, content: str):
        (model / "config.json").write_text(content, errors="surrogateescape")

        assert planned(api, training(str(model)))["verdict"] == "unknown"

    def test_large_files_are_not_read(self, api: Api, model: Path):
        (model / "config.json").write_text(" " * 2**20 + (model / "config.json").read_text())

        assert planned(api, training(str(model)))["verdict"] == "unknown"

    def test_pipes_do_not_block(self, api: Api, model: Path):
        (model / "config.json").unlink()
        os.mkfifo(model / "config.json")

        assert planned(api, training(str(model)))["verdict"] == "unknown"

    @staticmethod
    def _write(directory: Path) -> None:
        (directory / "config.json").write_text(json.dumps(dict(known_config(LLAMA) or {})))
