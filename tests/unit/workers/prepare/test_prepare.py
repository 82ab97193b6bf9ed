"""Preparing an attempt: the inputs that it finds, its rank spec, and the paths that its sandbox hides."""

import hashlib
import json
import os
from dataclasses import replace

import pytest
from cryptography.fernet import Fernet

from app.domain.model_cards.inputs import ReadInputs, ReadModel, ReadSource
from app.domain.scheduling.resources import Device
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import BaseModel, Framework, JobDocument
from app.host.gpu_devices import GpuDevice, MigInstance, UnknownGpuFiles
from app.security.secrets import SecretBox
from app.storage.storage import Storage
from config.fetching import FetchSettings
from config.settings import load_settings
from tests.builders.factories import make_document
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.job_secrets import opened_secrets
from workers.prepare.inputs.input_library import Library
from workers.prepare.inputs.model_files import digest_of
from workers.prepare.inputs.read_inputs import read_inputs
from workers.prepare.job_devices import device_files, mig_instances
from workers.prepare.prepare import find_sources, input_fields, sources_document
from workers.prepare.private_paths import private_paths
from workers.prepare.programs.program import device_uuids, job_environment, program
from workers.run_dir.layout import run_directory


def hidden(tmp_path, storage_url, database_url):
    variables = {
        "TRAINYARD_DATA_DIR": str(tmp_path / "data"),
        "TRAINYARD_STORAGE_URL": storage_url,
        "TRAINYARD_DATABASE_URL": database_url,
    }
    settings = load_settings(variables)
    return private_paths(settings, Storage(settings.storage.url))


def test_storage_and_database_outside_the_data_directory_are_hidden(tmp_path):
    places = hidden(tmp_path, f"file://{tmp_path}/stored", f"sqlite:///{tmp_path}/db/trainyard.db")

    assert tmp_path / "stored" in places
    assert (tmp_path / "stored").is_dir()
    database = tmp_path / "db"
    assert {database, *(database / f"trainyard.db{end}" for end in ("", "-wal", "-shm"))} <= set(places)


@pytest.mark.parametrize("url", ["postgresql://u:p@db/trainyard", "postgresql:///trainyard"])
def test_database_that_is_no_file_has_nothing_to_hide(tmp_path, url):
    assert hidden(tmp_path, f"file://{tmp_path}/stored", url) == (tmp_path / "stored",)


def test_slices_are_known_to_cuda_by_what_nvml_said(monkeypatch):
    monkeypatch.setattr(
        "workers.prepare.programs.program.own_gpus",
        lambda indices: [GpuDevice(index, f"GPU-{index}") for index in indices],
    )
    whole, part = Device(index=1, type="h100"), Device(index=2000, type="h100-mig-1g.10gb", uuid="MIG-a")

    assert (device_uuids([part]), device_uuids([whole])) == (("MIG-a",), ("GPU-1",))


def gpu_spec(tmp_path, *indices, uuids=("MIG-a", "MIG-b")):
    return RunSpec(
        job_id="a",
        attempt=1,
        run_dir=tmp_path,
        framework="CUSTOM",
        training_type="",
        device_type="cuda",
        device_indices=indices,
        device_uuids=uuids,
    )


def test_slices_of_a_job_are_those_of_its_uuids(tmp_path, monkeypatch):
    asked = []

    def files(*given):
        asked.append(given)
        return [tmp_path]

    monkeypatch.setattr("workers.prepare.job_devices.mig_instances", lambda uuids: [(3, 0), (5, 1)])
    monkeypatch.setattr("workers.prepare.job_devices.gpu_files", files)
    slices = [
        MigInstance(gpu=1, gpu_instance=3, compute_instance=0),
        MigInstance(gpu=2, gpu_instance=5, compute_instance=1),
    ]

    assert device_files(gpu_spec(tmp_path, 2000, 3001), "auto") == (tmp_path,)
    assert device_files(gpu_spec(tmp_path, 1, 2), "auto") == (tmp_path,)
    assert asked == [([1, 2], slices), ([1, 2], [])]


def test_job_whose_gpus_can_not_be_told_from_others_does_not_start(tmp_path, monkeypatch):
    def unknown(*given):
        raise UnknownGpuFiles("no file")

    monkeypatch.setattr("workers.prepare.job_devices.gpu_files", unknown)

    assert device_files(gpu_spec(tmp_path, 0), "process") == ()
    with pytest.raises(AttemptFailed, match="its GPUs alone: no file"):
        device_files(gpu_spec(tmp_path, 0), "auto")
    with pytest.raises(AttemptFailed, match="UUID of a MIG slice is not known"):
        device_files(gpu_spec(tmp_path, 2000, uuids=()), "auto")


def test_slices_that_the_driver_does_not_know_are_none():
    with pytest.raises(UnknownGpuFiles, match="which MIG slices these are"):
        mig_instances(["MIG-there-is-none"])


LINES = b'{"text": "hello"}\n'


@pytest.fixture
def library(tmp_path):
    """A project that may read ``mine``, where a model and data lie."""
    mine = tmp_path / "mine"
    (mine / "model").mkdir(parents=True)
    (mine / "model/config.json").write_text("{}")
    (mine / "tokenizer").mkdir()
    (mine / "tokenizer/tokenizer.json").write_text("{}")
    for name in ("a.jsonl", "b.jsonl"):
        (mine / name).write_bytes(LINES)
    (mine / "train.py").touch()
    rules = ReadingRules(roots=(str(mine),), real_path=os.path.realpath)
    library = Library(rules=rules, cache_dir=tmp_path / "cache", project="p", project_of_job=lambda _: None)
    yield library
    library.close()


def document(model_id="model", paths=("*.jsonl", "a.jsonl"), **base):
    return make_document(
        training_config={"base_model": {"model_id": model_id, **base}},
        data_config={"sources": [{"path": path} for path in paths]},
    )


def test_spec_names_the_files_of_each_source(library, tmp_path):
    sources = find_sources(library, "HF_TRAINER", JobDocument.from_json(document(tokenizer_id="tokenizer")))

    said = sources_document(sources.data)

    digest = hashlib.sha256(LINES).hexdigest()
    file = {"path": str(tmp_path / "mine/a.jsonl"), "name": "a.jsonl", "size_bytes": len(LINES), "sha256": digest}
    assert [each["location"] for each in said] == ["*.jsonl", "a.jsonl"]
    assert [[each["name"] for each in source["files"]] for source in said] == [["a.jsonl", "b.jsonl"], ["a.jsonl"]]
    assert said[1]["files"] == [file]
    assert said[1]["sha256"] == hashlib.sha256(digest.encode()).hexdigest()
    assert said[0]["sha256"] == hashlib.sha256(f"{digest}\n{digest}".encode()).hexdigest()
    assert sources.tokenizer is not None
    assert sources.tokenizer.path == tmp_path / "mine/tokenizer"
    assert {tmp_path / "mine" / name for name in ("model", "tokenizer", "a.jsonl", "b.jsonl")} == set(sources.readable)


def test_digests_of_inputs_are_those_of_their_content(library, tmp_path):
    spec = JobDocument.from_json(document())
    base = spec.training_config.base_model

    read = read_inputs(library, base, find_sources(library, "HF_TRAINER", spec))

    digest = hashlib.sha256(LINES).hexdigest()
    several = hashlib.sha256(f"{digest}\n{digest}".encode()).hexdigest()
    assert [(each.index, each.sha256, each.commit) for each in read.data] == [(0, several, None), (1, digest, None)]
    assert read.base is not None
    assert (read.base.commit, read.base.sampled_sha256) == (None, digest_of([tmp_path / "mine/model"]))
    (tmp_path / "mine/model/config.json").write_text('{"a": 1}')
    assert read_inputs(library, base, find_sources(library, "HF_TRAINER", spec)).base != read.base
    assert ReadInputs.from_json(json.loads(json.dumps(read.to_json()))) == read


def test_training_does_not_fail_for_a_digest_that_only_tells_what_it_has_read(library, tmp_path, caplog):
    spec = JobDocument.from_json(document())
    sources = find_sources(library, "HF_TRAINER", spec)
    (tmp_path / "mine/model/vocab.json").symlink_to("v" * 300)  # no file system can look there

    read = read_inputs(library, spec.training_config.base_model, sources)

    assert (read.base, len(read.data)) == (None, 2)
    assert "without a digest: " in caplog.text


def test_newer_nodes_may_record_more_of_what_they_have_read():
    read = ReadInputs(base=ReadModel(commit="c"), data=(ReadSource(index=0, sha256="d"),))
    recorded = read.to_json()
    recorded["base"]["license"] = recorded["data"][0]["license"] = recorded["license"] = "mit"

    assert ReadInputs.from_json(recorded) == read


def test_result_of_a_job_has_no_digest_of_samples(library):
    sources = find_sources(library, "HF_TRAINER", JobDocument.from_json(document()))

    assert read_inputs(library, BaseModel(model_id="none", job_id="job-1"), sources).base is None


def test_script_may_bring_its_own_model(library, tmp_path):
    spec = document("none", tokenizer_id="tokenizer")
    spec["training_config"]["framework"] = {"type": "CUSTOM", "custom_script_path": "train.py"}

    sources = find_sources(library, "CUSTOM", JobDocument.from_json(spec))

    assert sources.model is None
    assert sources.tokenizer is not None
    assert sources.tokenizer.path == tmp_path / "mine/tokenizer"
    assert sources.script == tmp_path / "mine/train.py"
    assert [path.name for path in sorted(sources.data[0].path.iterdir())] == ["a.jsonl", "b.jsonl"]


def test_code_directory_has_the_script_deep_within(library, tmp_path):
    spec = document("none")
    deep = tmp_path / "mine/deep"
    deep.mkdir()
    (deep / "train.py").touch()
    framework = {"type": "CUSTOM", "custom_script_path": "deep/train.py", "custom_code_dir": str(tmp_path / "mine")}
    spec["training_config"]["framework"] = framework
    spec["data_config"]["sources"] = []

    sources = find_sources(library, "CUSTOM", JobDocument.from_json(spec))

    assert (sources.code, sources.script) == (tmp_path / "mine", deep / "train.py")
    assert sources.data == ()
    found = program(Framework.from_json(framework), run_directory(tmp_path / "data", "job-1", 1), sources)
    assert found["script"].endswith("/code/deep/train.py")
    assert found["directory"].endswith("/work")


def test_command_starts_where_the_code_is_and_else_among_its_own_files(library, tmp_path):
    spec = document("none")
    framework = {"type": "CUSTOM", "custom_command": ["bash", "-c", "true"], "custom_code_dir": str(tmp_path / "mine")}
    spec["training_config"]["framework"] = framework
    run = run_directory(tmp_path / "data", "job-1", 1)

    beside = program(Framework.from_json(framework), run, find_sources(library, "CUSTOM", JobDocument.from_json(spec)))
    del framework["custom_code_dir"]
    alone = program(Framework.from_json(framework), run, find_sources(library, "CUSTOM", JobDocument.from_json(spec)))

    assert (beside["command"], beside["directory"][-5:]) == (("bash", "-c", "true"), "/code")
    assert alone["directory"].endswith("/work")


def test_code_lies_in_a_bucket_that_is_a_directory(library, tmp_path):
    spec = document("none")
    source = tmp_path / "buckets/team/src"
    source.mkdir(parents=True)
    (source / "train.py").touch()
    framework = {
        "type": "CUSTOM",
        "custom_script_path": "obs://team/src/train.py",
        "custom_code_dir": "obs://team/src/",
    }
    spec["training_config"]["framework"] = framework
    library = replace(library, fetch=FetchSettings(obs_dir=tmp_path / "buckets"))

    sources = find_sources(library, "CUSTOM", JobDocument.from_json(spec))
    (source / "train.py").unlink()
    (source / "train.py").symlink_to("/etc/hostname")

    assert (sources.code, sources.script) == (source, source / "train.py")
    with pytest.raises(AttemptFailed, match="does not lie below obs://team/src/ on this node"):
        find_sources(library, "CUSTOM", JobDocument.from_json(spec))


@pytest.mark.parametrize("code", ["missing", "train.py"])
def test_code_that_is_no_directory_is_refused(library, code):
    spec = document("none")
    framework = {"type": "CUSTOM", "custom_command": ["true"], "custom_code_dir": code}
    spec["training_config"]["framework"] = framework

    with pytest.raises(AttemptFailed, match="code directory"):
        find_sources(library, "CUSTOM", JobDocument.from_json(spec))


def test_file_that_judges_completions_is_readable_and_known_by_its_digest(library, tmp_path):
    spec = document()
    spec["training_config"]["hyperparameters"] = {"reward": " train.py "}

    sources = find_sources(library, "HF_TRAINER", JobDocument.from_json(spec))

    assert sources.reward == tmp_path / "mine/train.py"
    assert sources.reward in sources.readable
    assert {name: value for name, value in input_fields(sources).items() if name.startswith("reward")} == {
        "reward_path": str(tmp_path / "mine/train.py"),
        "reward_sha256": hashlib.sha256(b"").hexdigest(),
        "reward_model_path": "",
    }


def test_model_that_judges_is_found_beside_the_others(library, tmp_path):
    spec = document(tokenizer_id="tokenizer")
    (tmp_path / "mine/judge").mkdir()
    (tmp_path / "mine/judge/config.json").write_text("{}")
    spec["training_config"]["hyperparameters"] = {"reward_model_id": "judge"}

    sources = find_sources(library, "HF_TRAINER", JobDocument.from_json(spec))

    assert sources.model is not None
    assert sources.model.path.name == "model"
    assert sources.tokenizer is not None
    assert sources.tokenizer.path.name == "tokenizer"
    assert input_fields(sources)["reward_model_path"] == str(tmp_path / "mine/judge")
    assert tmp_path / "mine/judge" in sources.readable


def test_model_that_judges_in_a_benchmark_is_found_beside_the_measured_one(library, tmp_path):
    (tmp_path / "mine/judge").mkdir()
    (tmp_path / "mine/judge/config.json").write_text("{}")
    judged = [{"name": "f1"}, {"name": "reward", "parameters": {"reward_model_id": "judge"}}]
    spec = {**document(), "kind": "evaluation", "inference": {"benchmarks": judged}}

    sources = find_sources(library, "TRANSFORMERS", JobDocument.from_json(spec))

    assert sources.model is not None
    assert sources.model.path.name == "model"
    assert input_fields(sources)["reward_model_path"] == str(tmp_path / "mine/judge")


@pytest.mark.parametrize(
    ("reward", "why"), [("none.py", "reward none.py is not a file"), ("/etc/judge.py", "it lies outside")]
)
def test_file_that_judges_completions_lies_where_jobs_may_read(library, reward, why):
    spec = document()
    spec["training_config"]["hyperparameters"] = {"reward": reward}

    with pytest.raises(AttemptFailed, match=why) as failed:
        find_sources(library, "HF_TRAINER", JobDocument.from_json(spec))

    assert failed.value.error_type == "INVALID_CONFIG"


def test_secrets_are_opened_for_hub_and_job(tmp_path):
    key = Fernet.generate_key().decode()
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_SECURITY_SECRET_KEY": key})
    sealed = SecretBox(key).seal({"training_config.environment.WANDB_KEY": "a", "output_config.hub_token": "b"})

    secrets = opened_secrets(settings, sealed)
    environment = {"MODE": "fast", "WANDB_KEY": "***"}

    assert secrets["output_config.hub_token"] == "b"
    assert job_environment(environment, secrets) == {"MODE": "fast", "WANDB_KEY": "a"}
    assert opened_secrets(settings, "") == {}
