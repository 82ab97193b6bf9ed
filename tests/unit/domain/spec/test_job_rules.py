"""Every rule of a job document: what breaks it, which field is named, and what goes together."""

from typing import Any

import pytest

from app.domain.errors import InvalidRequest
from app.domain.spec.model import JobDocument
from app.domain.spec.rules import evaluations, graders, interactive, job, packages
from tests.builders.submitted import changed, refusal, spec_of

_MODEL, _DATA, _OUTPUT = "training_config.base_model", "data_config", "output_config"
_FRAMEWORK, _SOURCE = "training_config.framework", f"{_DATA}.sources.0"
_FRACTION, _MOUNTS, _LIMITS = "resource_config.gpu_fraction", "resource_config.mounts", "resource_config.limits"
_IMAGE = "resource_config.image.reference"
VALIDATED = (f"{_DATA}.validation_split", 0.1)
STREAMED = ((f"{_DATA}.streaming", True), ("training_config.hyperparameters", {"max_steps": "9"}))
LORA, PRETRAIN = (("training_config.training_type", name) for name in ("LORA", "CONTINUED_PRETRAIN"))
_SCRIPT = ((f"{_FRAMEWORK}.type", "CUSTOM"), (f"{_FRAMEWORK}.custom_script_path", "/srv/x"))
_PLACES = (f"{_OUTPUT}.output_path", f"{_OUTPUT}.log_path")
_KEYS = (f"{_OUTPUT}.credentials", {"access_key_id": "a", "secret_access_key": "b"})
A_FILTER = {"column": "a", "op": "==", "value": 1}
# Changes to the good document, and the field that the refusal names; the first change's unless another is given.
REFUSED: list[tuple[Any, ...]] = [
    *(
        ((f"{_FRAMEWORK}.config", {name: "1"}), f"{_FRAMEWORK}.config.{name}")
        for name in ("save_steps", "report_to", "lr_scheduler_kwargs", "dataloader_prefetch_factor")
    ),
    ((f"{_FRAMEWORK}.config", {"ddp_bucket_cap_mb": "many"}), f"{_FRAMEWORK}.config.ddp_bucket_cap_mb"),
    ((f"{_FRAMEWORK}.config", {"adam_beta1": "2"}), "training_config.hyperparameters.adam_beta1"),
    (
        (f"{_FRAMEWORK}.config", {"adam_beta1": "0.8"}),
        ("training_config.hyperparameters", {"adam_beta1": "0.8"}),
        f"{_FRAMEWORK}.config.adam_beta1",
    ),
    ((_FRAMEWORK, {"type": "MEGATRON", "config": {"tensor_parallel": "2"}}), f"{_FRAMEWORK}.config.tensor_parallel"),
    (
        ("training_config.framework.type", "MEGATRON"),
        (f"{_MODEL}.model_kwargs", {"attn_implementation": "sdpa"}),
        f"{_MODEL}.model_kwargs.attn_implementation",
    ),
    ((f"{_MODEL}.model_id", " "),),
    ((f"{_MODEL}.model_id", "/etc/model"),),
    ((f"{_MODEL}.model_id", "https://example.org/model"),),
    ((f"{_MODEL}.source", "local"), (f"{_MODEL}.model_id", "s3://bucket/model")),
    ((f"{_MODEL}.source", "hub"), (f"{_MODEL}.model_id", "/srv/model")),
    ((f"{_MODEL}.source", "somewhere"),),
    ((f"{_MODEL}.revision", "main"), (f"{_MODEL}.model_id", "/srv/model")),
    ((f"{_MODEL}.revision", "main"), (f"{_MODEL}.source", "local")),
    ((f"{_MODEL}.revision", "main"), (f"{_MODEL}.model_id", "hf://org/model@main")),
    ((f"{_MODEL}.revision", "../main"),),
    ((f"{_MODEL}.tokenizer_id", "/etc"),),
    ((f"{_MODEL}.from_config", True), ("training_config.training_type", "LORA")),
    ((f"{_MODEL}.from_config", True), (f"{_FRAMEWORK}.type", "FSDP")),
    ((f"{_MODEL}.from_config", True), *_SCRIPT),
    ((f"{_MODEL}.job_id", "job-1"), *_SCRIPT),
    ((f"{_MODEL}.job_id", "job-1"), ("training_config.training_type", "DPO"), f"{_MODEL}.job_id"),
    ((f"{_MODEL}.from_config", True), (f"{_MODEL}.model_id", "none")),
    ((f"{_MODEL}.from_config", {"model_type": "llama", "auto_map": {}}), f"{_MODEL}.from_config.auto_map"),
    ((f"{_MODEL}.from_config", {"model_type": "llama"}), (f"{_MODEL}.model_id", "none"), f"{_MODEL}.tokenizer_id"),
    ((f"{_MODEL}.dtype", "float16"),),
    ((f"{_MODEL}.dtype", "double"),),
    ((f"{_MODEL}.model_kwargs", {"rope": {}}), f"{_MODEL}.model_kwargs.rope"),
    ((f"{_MODEL}.model_kwargs", {"attention_dropout": 2}), f"{_MODEL}.model_kwargs.attention_dropout"),
    ((f"{_MODEL}.model_kwargs", {"attention_dropout": True}), f"{_MODEL}.model_kwargs.attention_dropout"),
    ((f"{_MODEL}.model_kwargs", {"rope_scaling": "linear"}), f"{_MODEL}.model_kwargs.rope_scaling"),
    (
        (f"{_MODEL}.model_kwargs", {"attn_implementation": "flash_attention_2"}),
        ("resource_config.device_type", "cpu"),
        f"{_MODEL}.model_kwargs.attn_implementation",
    ),
    (
        (f"{_MODEL}.model_kwargs", {"attn_implementation": "flash_attention_2"}),
        (f"{_MODEL}.dtype", "float32"),
        f"{_MODEL}.model_kwargs.attn_implementation",
    ),
    ((f"{_FRAMEWORK}.type", "FSDP"), ("training_config.training_type", "QLORA"), "training_config.training_type"),
    ((f"{_FRAMEWORK}.type", "FSDP"), (f"{_MODEL}.dtype", "float16"), f"{_MODEL}.dtype"),
    (
        (f"{_FRAMEWORK}.type", "FSDP"),
        (f"{_FRAMEWORK}.config", {"cpu_offload": "maybe"}),
        f"{_FRAMEWORK}.config.cpu_offload",
    ),
    (
        (f"{_FRAMEWORK}.type", "FSDP"),
        (f"{_FRAMEWORK}.config", {"tensor_parallel": "2"}),
        f"{_FRAMEWORK}.config.tensor_parallel",
    ),
    (
        (f"{_FRAMEWORK}.type", "DEEPSPEED"),
        ("training_config.training_type", "QLORA"),
        (f"{_FRAMEWORK}.config", {"zero_stage": "3"}),
        f"{_FRAMEWORK}.config.zero_stage",
    ),
    ((f"{_FRAMEWORK}.type", "DEEPSPEED"), (f"{_MODEL}.dtype", "float16"), f"{_MODEL}.dtype"),
    (
        (f"{_FRAMEWORK}.type", "DEEPSPEED"),
        (f"{_FRAMEWORK}.config", {"zero_stage": "4"}),
        f"{_FRAMEWORK}.config.zero_stage",
    ),
    (
        (f"{_FRAMEWORK}.type", "DEEPSPEED"),
        (f"{_FRAMEWORK}.config", {"offload_param": "cpu"}),
        f"{_FRAMEWORK}.config.offload_param",
    ),
    ((f"{_FRAMEWORK}.type", "DEEPSPEED"), (f"{_FRAMEWORK}.config", {"stage": "3"}), f"{_FRAMEWORK}.config.stage"),
    ((f"{_FRAMEWORK}.type", "CUSTOM"), f"{_FRAMEWORK}.custom_script_path"),
    *(((_IMAGE, name), *more) for name, more in (("oci:/a", ()), ("A/b", _SCRIPT), ("debian:12", _SCRIPT))),
    ((_IMAGE, "oci:/srv/image"), (f"{_FRAMEWORK}.config", {"launcher": "mpi"}), *_SCRIPT),
    ((f"{_FRAMEWORK}.custom_command", ["true"]),),
    ((f"{_FRAMEWORK}.custom_code_dir", "/srv/x"),),
    ((f"{_FRAMEWORK}.custom_arguments", ["-x"]),),
    (*_SCRIPT, (f"{_FRAMEWORK}.custom_command", ["true"]), f"{_FRAMEWORK}.custom_command"),
    (*_SCRIPT, (f"{_FRAMEWORK}.custom_code_dir", "/srv/y"), f"{_FRAMEWORK}.custom_script_path"),
    (*_SCRIPT, (f"{_FRAMEWORK}.custom_code_dir", "/srv/x"), f"{_FRAMEWORK}.custom_script_path"),
    ((f"{_FRAMEWORK}.type", "CUSTOM"), (f"{_FRAMEWORK}.custom_command", [" ", "x"]), f"{_FRAMEWORK}.custom_command.0"),
    (
        (f"{_FRAMEWORK}.type", "CUSTOM"),
        (f"{_FRAMEWORK}.custom_command", ["true"]),
        (f"{_FRAMEWORK}.custom_arguments", ["-x"]),
        f"{_FRAMEWORK}.custom_arguments",
    ),
    (
        (f"{_FRAMEWORK}.type", "CUSTOM"),
        (f"{_FRAMEWORK}.custom_command", ["true"]),
        (f"{_FRAMEWORK}.custom_code_dir", "/etc"),
        f"{_FRAMEWORK}.custom_code_dir",
    ),
    ((f"{_FRAMEWORK}.custom_script_path", "/srv/x"),),
    *(
        (*_SCRIPT, (f"{_FRAMEWORK}.config", {"checkpoint_glob": said}), f"{_FRAMEWORK}.config.checkpoint_glob")
        for said in ("/srv/*.pt", "../*.pt", ".", "a**b/*.pt", "out/**", "x" * 501)
    ),
    (*_SCRIPT, (f"{_FRAMEWORK}.config", {"launcher": "slurm"}), f"{_FRAMEWORK}.config.launcher"),
    ((f"{_FRAMEWORK}.distributed", {"world_size": 3}), f"{_FRAMEWORK}.distributed.world_size"),
    (
        (f"{_FRAMEWORK}.distributed", {"world_size": 1}),
        ("resource_config.node_count", 2),
        f"{_FRAMEWORK}.distributed.world_size",
    ),
    ((_FRACTION, 0.5), ("resource_config.node_count", 2)),
    ((f"{_FRAMEWORK}.distributed", {"config": {"nodes": "9"}}), f"{_FRAMEWORK}.distributed.config"),
    (
        (f"{_FRAMEWORK}.distributed", {"config": {"num_proc_per_node": 3}}),
        f"{_FRAMEWORK}.distributed.config.num_proc_per_node",
    ),
    *(
        (
            *_SCRIPT,
            (f"{_FRAMEWORK}.distributed", {"config": {"num_proc_per_node": said}}),
            f"{_FRAMEWORK}.distributed.config.num_proc_per_node",
        )
        for said in ("cpu", "all", 0, -1, 1025, "1025", "99999999999", True, 1.5, None, [2])
    ),
    (
        *_SCRIPT,
        (f"{_FRAMEWORK}.distributed", {"config": {"num_proc_per_node": 3}, "world_size": 1}),
        f"{_FRAMEWORK}.distributed.world_size",
    ),
    ((f"{_FRAMEWORK}.distributed", {"backend": "mpi"}), f"{_FRAMEWORK}.distributed.backend"),
    ((f"{_FRAMEWORK}.distributed", {"strategy": "horovod"}), f"{_FRAMEWORK}.distributed.strategy"),
    (("training_config.hyperparameters", {"lr": "1"}), "training_config.hyperparameters.lr"),
    (("training_config.hyperparameters", {"lora_r": "8"}), "training_config.hyperparameters.lora_r"),
    (
        ("training_config.hyperparameters", {"early_stopping_patience": "1"}),
        "training_config.hyperparameters.early_stopping_patience",
    ),
    (
        ("training_config.hyperparameters", {"early_stopping_patience": "1"}),
        VALIDATED,
        ("training_config.evaluation", {"strategy": "no"}),
        "training_config.hyperparameters.early_stopping_patience",
    ),
    (("training_config.environment", {"LD_PRELOAD": "x"}), "training_config.environment.LD_PRELOAD"),
    (("training_config.environment", {"path": "x"}), "training_config.environment.path"),
    (("training_config.environment", {"TRAINYARD_URL": "x"}), "training_config.environment.TRAINYARD_URL"),
    (("training_config.environment", {"A_TOKEN": "***"}), "training_config.environment.A_TOKEN"),
    (("training_config.evaluation", {"strategy": "epoch"}), "training_config.evaluation.strategy"),
    (("training_config.evaluation", {"strategy": "no", "steps": 5}), "training_config.evaluation.steps"),
    (
        ("training_config.on_divergence", {"action": "stop", "max_rollbacks": 2}),
        "training_config.on_divergence.max_rollbacks",
    ),
    (
        ("training_config.on_divergence", {"action": "stop", "learning_rate_factor": 0.5}),
        "training_config.on_divergence.learning_rate_factor",
    ),
    (
        ("training_config.on_divergence", {"action": "rollback", "learning_rate_factor": 0.0}),
        "training_config.on_divergence.learning_rate_factor",
    ),
    (("training_config.halt_at", {"at": [4, 2]}), "training_config.halt_at.at"),
    ((f"{_OUTPUT}.checkpoint", {"save_at": [4, 4]}), f"{_OUTPUT}.checkpoint.save_at"),
    (("training_config.resume_from_checkpoint", "newest"),),
    (("training_config.resume_from_checkpoint", "job-1:oldest"),),
    ((f"{_DATA}.sources", []),),
    ((f"{_SOURCE}.path", ""),),
    ((f"{_SOURCE}.path", "/etc/passwd"),),
    ((f"{_SOURCE}.type", "s3"),),
    ((f"{_SOURCE}.split", "training"),),
    ((f"{_SOURCE}.split", "train[5:5]"),),
    ((f"{_SOURCE}.split", "validation"), f"{_DATA}.sources"),
    ((f"{_SOURCE}.split", "test"), f"{_DATA}.sources"),
    ((f"{_SOURCE}.columns", ["a", "b", "a"]),),
    ((f"{_SOURCE}.filters", [A_FILTER, {"column": "a", "op": "like", "value": "x"}]), f"{_SOURCE}.filters.1.op"),
    ((f"{_SOURCE}.filters", [{"column": "a", "op": "in", "value": "x"}]), f"{_SOURCE}.filters.0.value"),
    ((f"{_SOURCE}.sampling", {"seed": 1}),),
    ((f"{_SOURCE}.sampling", {"fraction": 0.5, "count": 5}),),
    ((f"{_SOURCE}.sampling", {"fraction": 0.0}), f"{_SOURCE}.sampling.fraction"),
    ((f"{_SOURCE}.weight", 0.0),),
    ((f"{_DATA}.sources", [{"path": "/srv/a", "weight": 1.0}, {"path": "/srv/b"}]), f"{_DATA}.sources.1.weight"),
    (
        (f"{_DATA}.sources", [{"path": "/srv/a"}, {"path": "/srv/b", "split": "dev", "weight": 1.0}]),
        f"{_DATA}.sources.1.weight",
    ),
    ((f"{_DATA}.validation_split", 1.0),),
    (
        (f"{_DATA}.validation_split", 0.1),
        (f"{_DATA}.sources", [{"path": "/srv/a.jsonl"}, {"path": "/srv/b.jsonl", "split": "val"}]),
    ),
    ((f"{_DATA}.shuffle_buffer", 5),),
    ((f"{_DATA}.streaming", True), "training_config.hyperparameters.max_steps"),
    (
        ("training_config.hyperparameters", {"max_steps": "9", "packing": "true"}),
        (f"{_DATA}.streaming", True),
        "training_config.hyperparameters.packing",
    ),
    ((f"{_DATA}.validation_split", 0.1), *STREAMED),
    ((f"{_SOURCE}.weight", 1.0), *STREAMED),
    ((f"{_SOURCE}.split", "train[:5]"), *STREAMED),
    ((f"{_SOURCE}.sampling", {"count": 5}), *STREAMED, f"{_SOURCE}.sampling.count"),
    ((f"{_DATA}.preprocess.tokenizer_config", {"fast": True}), f"{_DATA}.preprocess.tokenizer_config.fast"),
    (
        (f"{_DATA}.preprocess.tokenizer_config", {"padding_side": "top"}),
        f"{_DATA}.preprocess.tokenizer_config.padding_side",
    ),
    (
        (f"{_DATA}.preprocess.tokenizer_config", {"additional_special_tokens": "<x>"}),
        f"{_DATA}.preprocess.tokenizer_config.additional_special_tokens",
    ),
    ((f"{_DATA}.preprocess.field_mapping", {"question": "q"}), f"{_DATA}.preprocess.field_mapping.question"),
    ((f"{_DATA}.preprocess.field_mapping", {"prompt": ""}), f"{_DATA}.preprocess.field_mapping.prompt"),
    ((f"{_DATA}.preprocess.field_mapping", {"roles.bot": "bot"}), f"{_DATA}.preprocess.field_mapping.roles.bot"),
    (
        (f"{_DATA}.preprocess.field_mapping", {"prompt": "q"}),
        (f"{_SOURCE}.columns", ["a"]),
        f"{_DATA}.preprocess.field_mapping.prompt",
    ),
    ((f"{_DATA}.preprocess.field_mapping", {"prompt": "q"}), PRETRAIN, f"{_DATA}.preprocess.field_mapping.prompt"),
    ((f"{_DATA}.preprocess.chat_template", "{{ x }}"), PRETRAIN),
    (("resource_config.gpu_count", 0),),
    (("resource_config.ram_min_mb", 200), ("resource_config.limits", {"ram_mb": 100}), "resource_config.limits.ram_mb"),
    *(((_LIMITS, {name: value}), f"{_LIMITS}.{name}") for name, value in (("open_files", 255), ("stack_mb", 7))),
    (
        ("resource_config.storage_min_mb", 2),
        ("resource_config.limits", {"storage_mb": 1}),
        "resource_config.limits.storage_mb",
    ),
    (("resource_config.cpu_cores", 2), (_LIMITS, {"cpu_cores": 0.5}), f"{_LIMITS}.cpu_cores"),
    ((_MOUNTS, [{"path": "/x", "type": "data"}]),),
    ((_MOUNTS, [{"path": "/x", "type": "files"}]), *_SCRIPT, f"{_MOUNTS}.0.files"),
    ((_MOUNTS, [{"path": "/x", "type": "claim"}]), *_SCRIPT, f"{_MOUNTS}.0.claim"),
    *(
        ((_MOUNTS, [{"path": "/x", "type": "data", name: value}]), *_SCRIPT, f"{_MOUNTS}.0.{name}")
        for name, value in (("path", "/usr"), ("source", 1), ("size_mb", 1))
    ),
    (("resource_config.network", "gate"), ("resource_config.node_count", 2)),
    (("resource_config.gpu_type", "a100"), ("resource_config.device_type", "cpu")),
    (("resource_config.gpu_memory_min_mb", 5), ("resource_config.device_type", "cpu")),
    ((_FRACTION, 0.5), ("resource_config.device_type", "cpu")),
    (("resource_config.gpu_memory_request_mb", 5), ("resource_config.device_type", "cpu")),
    ((_FRACTION, 0.505),),
    (("resource_config.mig_profile", "1g.10gb"), ("resource_config.device_type", "cpu")),
    (("resource_config.mig_profile", "1g.10gb"), ("resource_config.gpu_count", 2)),
    ((_FRACTION, 0.5), ("resource_config.mig_profile", "1g.10gb")),
    ((_FRACTION, 0.5), ("resource_config.gpu_count", 2)),
    (("resource_config.gpu_memory_request_mb", 5), ("resource_config.gpu_count", 2)),
    ((_FRACTION, 1), ("resource_config.gpu_memory_request_mb", 5)),
    ((f"{_OUTPUT}.checkpoint.greater_is_better", True),),
    ((f"{_OUTPUT}.checkpoint.metric_for_best_model", "eval_loss"),),
    (
        (f"{_OUTPUT}.checkpoint.metric_for_best_model", "eval_loss"),
        VALIDATED,
        ("training_config.evaluation", {"strategy": "no"}),
    ),
    ((f"{_OUTPUT}.checkpoint.metric_for_best_model", "eval_los"), VALIDATED),
    ((f"{_OUTPUT}.checkpoint.metric_for_best_model", "test_loss"), VALIDATED),
    ((f"{_OUTPUT}.checkpoint.metric_for_best_model", "eval_perplexity"), VALIDATED),
    ((f"{_OUTPUT}.checkpoint.resume_from_best", True),),
    ((f"{_OUTPUT}.export_format", "exe"),),
    ((f"{_OUTPUT}.export_format", "gguf"), LORA),
    ((f"{_OUTPUT}.export_format", "pytorch"), *_SCRIPT),
    (
        (f"{_OUTPUT}.export_format", "onnx"),
        ("training_config.training_type", "RLHF"),
        ("training_config.hyperparameters", {"algorithm": "reward"}),
    ),
    ((f"{_OUTPUT}.export_format", "merged"),),
    ((f"{_OUTPUT}.export_format", "adapter"), ("training_config.training_type", "FULL_FINETUNE")),
    ((f"{_OUTPUT}.merge_lora", True),),
    ((f"{_OUTPUT}.merge_lora", True), LORA, (f"{_OUTPUT}.export_format", "adapter")),
    ((f"{_OUTPUT}.push_to_hub", True), f"{_OUTPUT}.hub_repo_id"),
    ((f"{_OUTPUT}.hub_repo_id", "model"), (f"{_OUTPUT}.push_to_hub", True)),
    ((f"{_OUTPUT}.hub_repo_id", "org/a--b"), (f"{_OUTPUT}.push_to_hub", True)),
    ((f"{_OUTPUT}.hub_repo_id", "org/model"),),
    ((f"{_OUTPUT}.hub_private", True),),
    *(((f"{_OUTPUT}.hub_token", token),) for token in ("a\nb", "***")),
    *(((each, place),) for each in _PLACES for place in ("/etc/out", "/ty/files/out", "https://example.org/out")),
    ((_PLACES[0], "s3://bucket/out"), (_PLACES[1], "/srv/logs"), _KEYS, _KEYS[0]),
    *(((_PLACES[1], f"{place}/"), (_PLACES[0], place)) for place in ("/srv/out", "out", "pvc://claim/out")),
]


def parts(case: tuple[Any, ...]) -> tuple[dict[str, Any], str]:
    """(document, field that its refusal names)."""
    changes = [part for part in case if isinstance(part, tuple)]
    return changed(*changes), case[-1] if isinstance(case[-1], str) else changes[0][0]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_broken_rule_names_its_field_and_a_remedy(case: tuple[Any, ...]) -> None:
    document, field = parts(case)

    error = refusal(document)

    assert error.field == field
    assert 20 < len(error.message) < 1200


TAKEN: list[tuple[tuple[str, Any], ...]] = [
    ((f"{_MODEL}.source", "hub"),),
    ((f"{_MODEL}.source", "local"),),
    ((f"{_MODEL}.source", "hub"), (f"{_MODEL}.model_id", "hf://org/model")),
    ((f"{_MODEL}.source", "s3"), (f"{_MODEL}.model_id", "s3://bucket/model")),
    ((f"{_MODEL}.revision", "refs/pr/1"),),
    ((f"{_MODEL}.trust_remote_code", True),),
    (
        (
            f"{_MODEL}.model_kwargs",
            {
                "attn_implementation": "eager",
                "attention_dropout": 0.1,
                "max_position_embeddings": 4096,
                "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            },
        ),
    ),
    ((f"{_SOURCE}.type", "file"),),
    ((f"{_SOURCE}.split", "train[10%:]"),),
    ((f"{_SOURCE}.columns", ["a"]), (f"{_SOURCE}.filters", [{"column": "b", "op": "ge", "value": 5}])),
    ((f"{_SOURCE}.columns", ["q"]), (f"{_DATA}.preprocess.field_mapping", {"prompt": "q", "roles.bot": "assistant"})),
    ((f"{_SOURCE}.weight", 2.5),),
    ((f"{_DATA}.sources", [{"path": "/srv/a"}, {"path": "/srv/b", "split": "test"}]),),
    (
        *STREAMED,
        (f"{_DATA}.sources", [{"path": "/srv/a", "sampling": {"fraction": 0.5}}, {"path": "/srv/b", "split": "eval"}]),
    ),
    (*STREAMED, (f"{_DATA}.shuffle_buffer", 0)),
    (PRETRAIN, (f"{_DATA}.preprocess.field_mapping", {"text": "content"})),
    (PRETRAIN, VALIDATED, (f"{_OUTPUT}.checkpoint", {"metric_for_best_model": "eval_perplexity", "save_steps": 5})),
    (("training_config.on_divergence", {"action": "stop"}),),
    (("training_config.on_divergence", {"action": "rollback", "learning_rate_factor": 1.0, "max_rollbacks": 1}),),
    (("training_config.resume_from_checkpoint", "job-01900000-0000-7000-8000-000000000000:best"),),
    (("training_config.hyperparameters", {"early_stopping_patience": "2"}), VALIDATED),
    ((f"{_OUTPUT}.checkpoint", {"metric_for_best_model": "loss", "resume_from_best": True, "save_steps": 5}),),
    ((f"{_OUTPUT}.checkpoint", {"metric_for_best_model": "eval_loss", "save_steps": 5}), VALIDATED),
    ((f"{_OUTPUT}.checkpoint", {"resume_from_best": True, "save_steps": 5}), VALIDATED),
    (LORA, (f"{_OUTPUT}.export_format", "merged"), (f"{_OUTPUT}.merge_lora", True)),
    (LORA, (f"{_OUTPUT}.export_format", "adapter"), (f"{_OUTPUT}.merge_lora", False)),
    *(((f"{_OUTPUT}.export_format", form),) for form in ("pytorch", "gguf", "onnx")),
    (LORA, (f"{_OUTPUT}.export_format", "gguf"), (f"{_OUTPUT}.merge_lora", True)),
    (("training_config.training_type", "FULL_FINETUNE"), (f"{_OUTPUT}.export_format", "safetensors")),
    ((f"{_OUTPUT}.push_to_hub", True), (f"{_OUTPUT}.hub_repo_id", "org/model"), (f"{_OUTPUT}.hub_private", False)),
    *(((f"{_FRAMEWORK}.type", name), ("resource_config.node_count", 2)) for name in ("FSDP", "DEEPSPEED", "MEGATRON")),
    (*_SCRIPT, (f"{_FRAMEWORK}.config", {"launcher": "mpi"}), ("resource_config.node_count", 2)),
    *(((each, place),) for each in _PLACES for place in ("/srv/out", "s3://bucket/models/out")),
    ((_PLACES[1], "s3://bucket/logs"), _KEYS),
    ((_PLACES[0], "/srv/out"), (_PLACES[1], "/srv/out/logs")),
]


@pytest.mark.parametrize("changes", TAKEN, ids=str)
def test_what_goes_together_is_taken(changes: tuple[tuple[str, Any], ...]) -> None:
    assert spec_of(changed(*changes)).document.name == "a"


def test_every_rule_is_broken_by_some_case() -> None:
    broken = set()
    for case in REFUSED:
        for rule in job.RULES:
            try:
                rule(JobDocument.from_json(parts(case)[0]))
            except InvalidRequest:
                broken.add(rule)
                break

    # What scripts hand on in the open is only looked at for them; the others have tests of their own.
    elsewhere = {*evaluations.RULES, *graders.RULES, *interactive.RULES, *packages.RULES}
    unbroken = {rule.__name__ for rule in job.RULES if rule not in {*broken, *elsewhere}}
    assert unbroken == {"credentials_are_in_the_environment"}
