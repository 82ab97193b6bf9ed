"""The run specification, as one end writes it and the other reads it."""

import json
from pathlib import Path

import pytest

from tests.builders.run_specs import make_run_spec
from trainyard.protocol.run_spec import Gang, RunSpec

# As it was written before there was a type for it: supervisors of an earlier version may still run.
WRITTEN = (
    '{"job_id": "job_1", "attempt": 2, "node": "n1", "name": "mine", "run_dir": "/run", "channel": "/run/channel", '
    '"framework": "CUSTOM", "training_type": "SFT", "training_config": {"framework": {"type": "CUSTOM"}}, '
    '"data_config": {"sources": [{"path": "a"}]}, "output_config": {}, "hyperparameters": {"lr": 0.1}, '
    '"model_path": "/m", "tokenizer_path": "", "data_paths": ["/a"], "reward_path": "", "reward_sha256": "", '
    '"reward_model_path": "", "sources": [{"location": "a", "files": [{"path": "/a"}], "sha256": "f"}], '
    '"script": "/run/code/train.py", "arguments": ["--x"], "command": [], "directory": "/run/work", '
    '"device_type": "cuda", "device_indices": [2, 3], "device_uuids": ["GPU-c", "GPU-d"], "gpu_memory_fraction": 0.5, '
    '"world_size": 4, "threads_per_rank": 3, "launcher": "mpi", "checkpoint_glob": "*.pt", "gpu_memory_percent": 80, '
    '"resume_checkpoint": "/run/resume", "resume_step": 7, "adjustments": {"batch_halvings": 1}, '
    '"gang": {"node_rank": 1, "nodes": 2, "local_ranks": 2, "address": "10.0.0.1", "port": 20001, "interface": ""}}'
)
ADDED_SINCE = {
    "tokens_path": "",
    "inference": {},
    "weights_path": "",
    "weights_sha256": "",
    "ram_mb": 0,
    "finished_shards": (),
    "max_output_files": 0,
    "benchmark_files": {},
    "locked": False,
    "proxy_port": 0,
    "packages_path": "",
    "resource_limits": {},
    "keep_seconds": 0,
    "terminal": False,
}


def test_what_one_end_writes_the_other_reads():
    spec = RunSpec.from_document(json.loads(WRITTEN))

    written = spec.to_document()
    assert {name: written.pop(name) for name in ADDED_SINCE} == ADDED_SINCE
    assert json.dumps(written) == WRITTEN
    assert spec.run_dir == Path("/run")
    assert spec.gang == Gang(node_rank=1, nodes=2, local_ranks=2, address="10.0.0.1", port=20001, interface="")
    assert (spec.local_ranks, spec.first_rank, spec.nodes) == (2, 2, 2)
    assert (spec.data_paths, spec.device_indices, spec.command) == (("/a",), (2, 3), ())


def test_unknown_keys_are_ignored_and_null_is_the_default():
    document = make_run_spec().to_document() | {"of_a_newer_version": 1, "threads_per_rank": None}

    assert RunSpec.from_document(document) == make_run_spec()


def test_required_key_that_is_missing_is_named():
    document = make_run_spec().to_document()
    del document["framework"]

    with pytest.raises(TypeError, match="framework"):
        RunSpec.from_document(document)


def test_each_file_is_a_source_where_none_is_named():
    spec = make_run_spec(data_paths=("/d/a.jsonl",))

    assert spec.sources == ({"location": "/d/a.jsonl", "files": [{"path": "/d/a.jsonl", "name": "a.jsonl"}]},)
