"""Job documents with one value changed: the status of each, and the field that its error names."""

import json
from typing import Any

import pytest

from tests.builders.factories import make_document
from tests.systems.apps import Api

DOCUMENT = json.dumps(make_document())


# What replaces a value of a good document, by dotted path → the status it must get.
_LABELS = ("required_node_labels", "node_affinity")


CHANGES: list[tuple[str, Any, int]] = [
    *(("name", name, 422) for name in ("", " ", "x" * 129, "../x", "a/b", "a\nb", "ü", "<script>", 5, None, ["x"])),
    ("name", "Good name_1.2-3", 201),
    *(("labels", labels, 422) for labels in ({"a b": "x"}, {"": "x"}, {"k": 5}, {"k": "v" * 256}, {"k" * 64: "v"}, 1)),
    ("labels", {f"k{i}": "v" for i in range(65)}, 422),
    ("labels", {f"k{i}": "v" for i in range(64)}, 201),
    ("project_id", "x", 422),
    ("training_config.training_type", "sft", 422),
    ("training_config.training_type", "RLHF", 201),
    ("training_config.framework.type", "MEGATRON", 201),
    ("training_config.framework.type", "CUSTOM", 400),
    ("training_config.framework.custom_script_path", "/srv/train.py", 400),
    ("training_config.framework.distributed", {"world_size": 2}, 400),
    ("training_config.framework.distributed", {"world_size": 1, "backend": "gloo"}, 201),
    ("training_config.framework.distributed", {"backend": "mpi"}, 400),
    ("training_config.framework.config", {"a": "b"}, 400),
    ("training_config.framework.config", {}, 201),
    ("training_config.framework.config", {"metric.loss": "loss=("}, 422),
    ("training_config.base_model.model_id", "", 400),
    ("training_config.base_model.model_id", "org/model-8b", 201),
    ("training_config.base_model.model_id", "/etc", 400),
    ("training_config.base_model.model_id", "../../etc", 400),
    ("training_config.base_model.model_id", "file:///srv/models/x", 201),
    ("training_config.base_model.model_id", "http://169.254.169.254/x", 400),
    ("training_config.base_model.dtype", "int3", 400),
    ("training_config.base_model.dtype", "bfloat16", 201),
    ("training_config.base_model.trust_remote_code", True, 201),
    ("training_config.base_model.trust_remote_code", "yes", 422),
    ("training_config.base_model.source", None, 201),
    ("training_config.base_model.source", "local", 201),
    ("training_config.base_model.source", "hub", 400),
    ("training_config.base_model.revision", "main", 400),
    ("training_config.base_model.model_kwargs", {"attn_implementation": "sdpa"}, 201),
    ("training_config.base_model.model_kwargs", {"attn_implementation": ["sdpa"]}, 400),
    ("training_config.base_model.model_kwargs", {"use_auth_token": "x"}, 400),
    *(
        ("training_config.base_model.model_id", model, 201)
        for model in (
            "s3://bucket/models/x/",
            "hf://org/model@v1.0",
            "pvc://claim/models/x",
            "oci://bucket/x",
            "obs://bucket/x",
        )
    ),
    *(
        ("training_config.base_model.model_id", model, 400)
        for model in (
            "https://example.org/model",
            "ipfs://" + "Qm" + "x" * 44,
            "scaidrive://share/model",
            "scaiatlas://share",
            "hf://datasets/org/set",
            "hf://model",
            "s3://bucket",
            "s3://bucket/*",
            "s3://key:secret@bucket/x",
            "s3://bucket/../x",
        )
    ),
    ("training_config.hyperparameters", {"learning_rat": "1e-4"}, 400),
    ("training_config.hyperparameters", {"learning_rate": "nan"}, 400),
    ("training_config.hyperparameters", {"learning_rate": "-1"}, 400),
    ("training_config.hyperparameters", {"learning_rate": 0.1}, 201),
    ("training_config.hyperparameters", {"learning_rate": [0.1]}, 422),
    ("training_config.hyperparameters", {"num_train_epochs": "1" + "0" * 400}, 400),
    *(
        ("training_config.environment", {name: "x"}, 400)
        for name in ("LD_PRELOAD", "PYTHONPATH", "PATH", "CUDA_VISIBLE_DEVICES", "TRAINYARD_URL", "https_proxy")
    ),
    *(("training_config.environment", {name: "x"}, 422) for name in ("A=B", "", "1A", "A B", "A" * 129)),
    ("training_config.environment", {"A": "v" * 5000}, 422),
    ("training_config.environment", {f"A{i}": "v" for i in range(200)}, 422),
    ("training_config.environment", {"NCCL_DEBUG": "$(id) ${x} {{7*7}}"}, 201),
    ("training_config.max_retries", -1, 422),
    ("training_config.priority", 11, 422),
    ("training_config.priority", True, 422),
    ("training_config.evaluation", {"strategy": "steps", "steps": 5}, 400),
    *(
        ("training_config.resume_from_checkpoint", start, 400)
        for start in ("ckpt-x", "newest", "job-x:best", "job-x:worst", "ckpt-x:best", "../ckpt-x", "job-" + "0" * 36)
    ),
    ("data_config.sources", [], 400),
    ("data_config.sources", None, 422),
    ("data_config.sources", [{}], 422),
    *(
        ("data_config.sources", [{"path": path, "format": "jsonl"}], 400)
        for path in (
            "",
            "/etc/passwd",
            "file:///etc/shadow",
            "../../etc/passwd",
            "/srv/../etc/passwd",
            "~/x",
            "file://host/x",
            "file:/srv/x",
            "http://127.0.0.1/x",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://localhost:6379/",
            "http://good@10.0.0.1/x",
            "hf://org/set",
            "hf://datasets/set",
            "gopher://x/",
            "javascript:alert(1)",
            "http:///x",
            "http://exa mple/x",
            "\\\\host\\x://",
            "/proc/self/environ",
            "https://me:pass@example.org/x",
            "https://example.org/a/*.jsonl",
            "https://example.org/",
            "https://example.org/a/../b",
            "https://example.org/a/%2e%2e/b",
            "https://x.org:0/a",
            "s3://bucket",
            "s3://bucket/../x",
            "s3://bucket/a/%2E%2E/x",
            "s3:bucket/x",
            "s3://169.254.169.254/x",
            "s3:///x",
            "pvc://claim",
            "pvc://../x",
            "pvc://Claim/x",
            "ipfs://x/y",
            "scaidrive://share",
            "scaidrive://share/x",
            "scaiatlas://share/x/*",
            "s3://bucket/a//b",
            "s3://bucket/a\nb",
            "/srv/a/../b",
        )
    ),
    *(
        ("data_config.sources", [{"path": path, "format": "jsonl"}], 201)
        for path in (
            "https://example.org/x.jsonl",
            "https://example.org/x?signature=a%2Fb&y=*",
            "s3://bucket/dir/*.jsonl",
            "s3://bucket/dir/",
            "oci://bucket/a b.jsonl",
            "obs://bucket/x",
            "pvc://claim/x/[ab].jsonl",
            "/srv/x/*.jsonl",
            "/srv/x/",
            "ipfs://Qm" + "x" * 44,
            "ipfs://bafy" + "b" * 55 + "/x",
            "hf://datasets/org/set",
            "hf://datasets/org/set@v1/data/*.parquet",
            "hf://datasets/org/set@refs/convert/parquet/x",
            "file:///srv/a%20b.jsonl",
        )
    ),
    ("data_config.sources", [{"path": "train.jsonl", "format": "jsonl"}], 201),
    ("data_config.sources", [{"path": "/srv/x.csv"}], 201),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "format": "xml"}], 422),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "columns": ["a"]}], 201),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "columns": ["a", "a"]}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "columns": [""]}], 422),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "type": "file"}], 201),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "type": "s3"}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "filters": [{"column": "a", "op": "~", "value": 1}]}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "filters": [{"column": "a", "op": "in", "value": 1}]}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "filters": [{"column": "a", "op": "=="}]}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "filters": [{"column": "a", "op": "not_null"}]}], 201),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "filters": [{"op": "not_null"}]}], 422),
    ("data_config.sources", [{"path": "/srv/x", "filters": [{"column": "a", "op": "==", "value": {}}]}], 422),
    ("data_config.sources", [{"path": "/srv/x", "filters": [{"column": "a", "op": "in", "value": [[]]}]}], 422),
    ("data_config.sources", [{"path": "/srv/x", "filters": [{"column": "a", "op": "==", "value": 2**63}]}], 422),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "sampling": {}}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "sampling": {"fraction": 0.5, "count": 1}}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "sampling": {"fraction": 1.5}}], 422),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "sampling": {"count": 0}}], 422),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "sampling": {"count": 5}}], 201),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "weight": -1}], 422),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "weight": 0}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "weight": 0.5}, {"path": "/srv/y.jsonl"}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "columns": []}], 201),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "split": "test"}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "split": "train[:80%]"}], 201),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "split": "train[80%:20%]"}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "split": "training"}], 400),
    ("data_config.sources", [{"path": "/srv/x.jsonl", "split": "train"}], 201),
    ("data_config.preprocess", {"truncation": False, "padding": "max_length"}, 201),
    ("data_config.preprocess", {"padding": "some"}, 422),
    ("data_config.preprocess", {"tokenizer_config": {"padding_side": "left"}}, 201),
    ("data_config.preprocess", {"tokenizer_config": {"use_fast": True}}, 400),
    ("data_config.preprocess", {"tokenizer_config": {"model_max_length": "512"}}, 400),
    ("data_config.preprocess", {"field_mapping": {"prompt": "question"}}, 201),
    ("data_config.preprocess", {"field_mapping": {"question": "prompt"}}, 400),
    ("data_config.preprocess", {"field_mapping": {"prompt": 5}}, 422),
    ("data_config.streaming", True, 400),
    ("data_config.streaming", 1, 422),
    ("data_config.shuffle_buffer", 10, 400),
    ("data_config.shuffle_buffer", -1, 422),
    ("data_config.preprocess", {"trunkation": True}, 422),
    *(("data_config.seed", seed, 422) for seed in (-1, 2**32, 2**64, 1.0, "5", True)),
    ("data_config.seed", 2**32 - 1, 201),
    *(("data_config.batch_size", size, 422) for size in (0, -1, 1.5, "4", 10**18)),
    ("data_config.validation_split", 1.5, 422),
    ("data_config.validation_split", 1.0, 400),
    ("data_config.validation_split", 0, 201),
    *(("resource_config.gpu_count", count, 422) for count in (-1, 1.5, 10**6, True, "1", [1])),
    ("resource_config.gpu_count", 0, 400),
    *(("resource_config.gpu_type", kind, 400) for kind in ("A100", ["A100", "H100"])),
    *(
        ("resource_config.gpu_type", kind, 422)
        for kind in ([], [""], [1], 4090, {"a": 1}, "A" * 65, ["A" * 65], ["A"] * 17)
    ),
    *(("resource_config.gpu_fraction", part, 422) for part in (0, 0.001, 1.01, -0.5, "0.5", True, [0.5])),
    *(("resource_config.gpu_fraction", part, 400) for part in (0.333, 0.5)),
    *(("resource_config.gpu_memory_request_mb", mb, 422) for mb in (0, -1, 1.5, "1", True)),
    *(
        ("resource_config.mig_profile", profile, 422)
        for profile in ("", "10gb", "8g.10gb", "1g.10gb+m", "1c.3g.20gb", 1)
    ),
    ("resource_config.mig_profile", "1g.10gb+me", 400),
    ("resource_config.node_count", 2, 201),
    *((f"resource_config.{field}", good, 201) for field in _LABELS for good in (["zone-a"], ["a|b", "c"], [])),
    *(
        (f"resource_config.{field}", [expression], 422)
        for field in _LABELS
        for expression in ("", "|", "a|", "|a", "a||b", "|".join("a" * 17))
    ),
    ("resource_config.device_type", "tpu", 422),
    ("output_config", {"push_to_hub": True}, 400),
    ("output_config", {"push_to_hub": True, "hub_repo_id": "org/model"}, 201),
    ("output_config", {"push_to_hub": True, "hub_repo_id": "model"}, 400),
    ("output_config", {"push_to_hub": True, "hub_repo_id": "org/../model"}, 400),
    ("output_config.hub_repo_id", "org/model", 400),
    ("output_config.hub_private", False, 400),
    ("output_config.hub_token", "hf_x", 201),
    ("output_config.hub_token", "hf x", 400),
    ("output_config.hub_token", "***", 400),
    ("output_config.merge_lora", True, 400),
    *(
        (
            "training_config",
            {
                "training_type": "DPO",
                "base_model": {"model_id": "org/model-8b"},
                "framework": {"type": "HF_TRAINER"},
                "hyperparameters": values,
            },
            status,
        )
        for values, status in (
            ({}, 201),
            ({"use_lora": "true", "lora_r": "8"}, 201),
            ({"lora_r": "8"}, 400),
            ({"beta": "-1"}, 400),
        )
    ),
    *(
        (
            "training_config",
            {
                "training_type": "RLHF",
                "base_model": {"model_id": "org/model-8b"},
                "framework": {"type": "HF_TRAINER"},
                "hyperparameters": {"reward": said, **values},
            },
            status,
        )
        for said, values, status in (
            ("length:64", {}, 201),
            ("exact", {"algorithm": "rloo", "use_lora": "true"}, 201),
            ("regex:^a", {}, 201),
            ("regex:(", {}, 400),
            ("regex:(?=a)", {}, 400),
            ("", {}, 400),
            ("length:-1", {}, 400),
            ("judge", {}, 400),
            ("/etc/judge.py", {}, 400),
            ("file:///etc/judge.py", {}, 400),
            ("https://example.org/judge.py", {}, 400),
            ("../judge.py", {}, 400),
            ("judge.py", {}, 201),
            ("exact", {"reward_model_id": "org/judge"}, 201),
            ("exact", {"reward_model_id": "/etc/judge"}, 400),
            ("regex:a", {"reward_model_id": "org/judge"}, 400),
            ("x" * 5000 + ".py", {}, 422),
            ("exact", {"num_generations": "3"}, 400),
            ("exact", {"max_completion_length": "1024"}, 400),
            ("exact", {"max_prompt_length": "800"}, 400),
            ("exact", {"algorithm": "reward"}, 201),
            ("regex:a", {"algorithm": "reward"}, 400),
            ("exact", {"algorithm": "reward", "reward_model_id": "org/judge"}, 400),
            ("exact", {"algorithm": "reward", "num_generations": "2"}, 400),
            ("exact", {"center_rewards_coefficient": "0.1"}, 400),
            ("exact", {"loss_type": "grpo", "algorithm": "rloo"}, 400),
        )
    ),
    ("output_config.export_format", "merged", 400),
    *(
        ("output_config.output_path", path, 400)
        for path in (
            "../../etc",
            "/etc",
            "https://example.org/x",
            "hf://org/model",
            "ipfs://x",
            "s3://bucket",
            "s3://bucket/*",
            "scaidrive://share/x",
            "~/x",
        )
    ),
    *(
        ("output_config.output_path", path, 201)
        for path in ("/srv/out", "out", "file:///srv/out/x", "s3://bucket/out", "oci://bucket/out/", "pvc://claim/out")
    ),
    ("output_config.export_format", "exe", 400),
    ("output_config.export_format", "safetensors", 201),
    ("output_config.checkpoint", {"save_steps": 0}, 422),
    ("output_config.checkpoint", {"metric_for_best_model": "eval_loss"}, 400),
    ("output_config.checkpoint", {"metric_for_best_model": "los"}, 400),
    ("output_config.checkpoint", {"metric_for_best_model": "loss"}, 201),
    ("output_config.checkpoint", {"resume_from_best": True}, 400),
    ("scheduling_config.queue", "nowhere", 400),
    ("scheduling_config.priority", 0, 201),
    ("scheduling_config.preemptible", True, 201),
    ("scheduling_config.preemptible", 1, 422),
    ("scheduling_config.on_preemption", "requeue", 201),
    ("scheduling_config.max_runtime_seconds", 0, 422),
    ("scheduling_config.min_runtime_seconds", 60, 201),
    ("scheduling_config.min_runtime_seconds", -1, 422),
    ("scheduling_config.required_capabilities", ["bf16"], 201),
]


def changed(path: str, value: Any) -> dict[str, Any]:
    document = json.loads(DOCUMENT)
    node = document
    *parents, last = path.split(".")
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = value
    return dict(document)


@pytest.mark.long
def test_changed_documents_get_their_status_and_name_the_field(api: Api):
    answers = [(path, value, api.post("/v1/jobs", changed(path, value))) for path, value, _ in CHANGES]

    got = [(path, value, answer.status_code) for path, value, answer in answers]
    assert got == CHANGES
    unnamed = [
        (path, value)
        for path, value, answer in answers
        if answer.status_code != 201 and not (answer.json or {})["error"].get("details")
    ]
    assert unnamed == []
