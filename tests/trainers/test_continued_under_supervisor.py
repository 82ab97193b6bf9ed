"""A training continues what another job has made, under the real supervisor and sandbox, from its very bits."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.domain.lifecycle.states import JobState
from app.domain.spec.hyperparameters.parsing import parse
from app.models import Artifact
from tests.builders.factories import make_document, make_job
from tests.systems.supervising import World
from workers.rank.run_context import RunSpec
from workers.supervisor.recording.model_export import Output, store_model
from workers.supervisor.recording.upload import Patience
from workers.trainers.hf_trainer.model.lora_adapters import adapted
from workers.trainers.hf_trainer.model.pretrained import load_model

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
PATIENCE = Patience(rest=lambda _: False, waits=lambda _: False)
FILES = {"LORA": "adapter_model.safetensors", "SFT": "model.safetensors"}
ADAPTER = {"lora_r": "4"}


@pytest.fixture
def world(tmp_path, sqlite_url, assets, forked_supervisors, forked_agents):
    """A node in miniature that has the small model."""
    made = World(tmp_path, sqlite_url, spawn=forked_supervisors.spawn)
    forked_agents.serve(made.data_dir)
    shutil.copytree(assets, tmp_path / "mine" / "demo")
    yield made
    made.close()


def made(world, tmp_path, kind):
    """A completed job with an adapter, or a whole model, whose weights are none that a seed makes."""
    model, export = tmp_path / "mine" / "demo" / "model", tmp_path / "export"
    if kind == "LORA":
        values = parse("HF_TRAINER", "LORA", ADAPTER)
        place = {"run_dir": tmp_path, "model_path": str(model), "data_paths": ()}
        spec = RunSpec(framework="HF_TRAINER", training_type="LORA", hyperparameters=values, **place)
        adapted(load_model(spec), spec, new_tokens=False).save_pretrained(str(export), save_embedding_layers=False)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(model / name, export)
    else:
        shutil.copytree(model, export)
    weights = load_file(export / FILES[kind])
    torch.manual_seed(5)
    changed = {name: each + torch.randn_like(each) for name, each in weights.items()}
    save_file(changed, export / FILES[kind], {"format": "pt"})
    with world.db.write() as session:
        job = make_job(session, state=JobState.COMPLETED)
        files = {path.name: path.name for path in export.iterdir()}
        stored = store_model(world.storage, job.id, Output(export, files), None, patience=PATIENCE)
        for each in stored.artifacts:
            session.add(Artifact(job_id=job.id, path=each.path, size_bytes=each.size_bytes, sha256=each.sha256))
        return job.id, changed


@pytest.mark.long
@pytest.mark.parametrize("kind", ["LORA", "SFT"])
def test_training_without_a_learning_rate_gives_back_what_it_continues(world, tmp_path, kind):
    source, weights = made(world, tmp_path, kind)
    base = {"model_id": "demo/model" if kind == "LORA" else "none", "job_id": source}
    hyperparameters = {"max_steps": "1", "learning_rate": "0", **(ADAPTER if kind == "LORA" else {})}
    document = make_document(
        training_config={"training_type": kind, "base_model": base, "hyperparameters": hyperparameters},
        data_config={"sources": [{"path": "demo/train.jsonl", "format": "jsonl"}], "batch_size": 2},
    )
    with world.db.write() as session:
        job_id = make_job(session, document=document).id

    world.take_up(job_id)
    job = world.wait_for_end(job_id, 90)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    result = load_file(world.storage.local_path(f"jobs/{job_id}/artifacts") / FILES[kind])
    assert result.keys() == weights.keys()
    assert all(torch.equal(result[name], weights[name]) for name in weights)
