"""Mistakes of users: each is refused with its field, the wrong value, the rule and the way out."""

from typing import Any

import pytest

from app.domain.errors import TrainyardError
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.resources import Device, GpuType, NodeCapacity, Request, normalise_gpu_type
from app.domain.spec.job_spec import JobSpec, from_document
from app.domain.spec.locations.paths import ReadingRules
from app.domain.sweeps.rules.paths import kind_of
from app.http.errors import BadShape
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from tests.builders.factories import make_document
from tests.builders.mistakes import LEFT_OUT, Mistake, says

RULES = ReadingRules(roots=("/srv", "/data"))
SECRET = "hf_AbCdEfGhIjKlMnOp"
TRAINING, MODEL = "training_config", "training_config.base_model"
VALUES, FRAMEWORK = "training_config.hyperparameters", "training_config.framework"
SOURCE, RESOURCES = "data_config.sources.0", "resource_config"

UNKNOWN_FIELDS = [
    Mistake({"training_confg": {}}, "training_confg", "unknown field (did you mean training_config?)"),
    Mistake({"Name": "x"}, "Name", "unknown field (did you mean name?)"),
    Mistake(
        {f"{TRAINING}.learning_rate": 1e-3},
        f"{TRAINING}.learning_rate",
        f"unknown field; it belongs at {VALUES}.learning_rate",
    ),
    Mistake({f"{TRAINING}.lr": 1e-3}, f"{TRAINING}.lr", f"unknown field; it belongs at {VALUES}.learning_rate"),
    Mistake({"batch_size": 8}, "batch_size", "unknown field; it belongs at data_config.batch_size"),
    Mistake({"queue": "q"}, "queue", "unknown field; it belongs at scheduling_config.queue"),
    Mistake({f"{MODEL}.name": "x"}, f"{MODEL}.name", "unknown field; known: model_id, job_id, …"),
    Mistake({f"{MODEL}.model": "x"}, f"{MODEL}.model", "unknown field (did you mean model_id?)"),
    Mistake({f"{SOURCE}.formt": "csv"}, f"{SOURCE}.formt", "unknown field (did you mean format?)"),
    Mistake({f"{SOURCE}.url": "x"}, f"{SOURCE}.url", "unknown field (did you mean path?)"),
    Mistake({"data_config.max_length": 9}, "data_config.max_length", "unknown field (did you mean max_seq_length?)"),
    Mistake({f"{RESOURCES}.gpus": 1}, f"{RESOURCES}.gpus", "unknown field (did you mean gpu_count?)"),
    Mistake({f"{RESOURCES}.memory": 1}, f"{RESOURCES}.memory", "unknown field (did you mean ram_min_mb?)"),
    Mistake(
        {"output_config.save_steps": 5},
        "output_config.save_steps",
        "unknown field; it belongs at output_config.checkpoint.save_steps",
    ),
    Mistake({"x" * 200: 1}, "x" * 200, "unknown field; known: name, labels, training_config, data_config, …"),
]
WRONG_TYPES = [
    Mistake({"name": 5}, "name", "5 must be a string, not a number"),
    Mistake(
        {f"{TRAINING}.packages": {"requirements": ["a"], "python": 3.11}},
        f"{TRAINING}.packages.python",
        '3.11 must be a string: write it in quotes, "3.11"',
    ),
    Mistake({"name": LEFT_OUT}, "name", "is required"),
    Mistake({"name": "a/b"}, "name", "'a/b' must be 1 to 128 letters, digits, dots, …"),
    Mistake({"training_config": "SFT"}, TRAINING, "'SFT' must be an object, not a string"),
    Mistake({f"{TRAINING}.training_type": LEFT_OUT}, f"{TRAINING}.training_type", "is required"),
    Mistake({"data_config.sources": {"path": "/srv/x"}}, "data_config.sources", "must be a list, not an object"),
    Mistake({"data_config.sources": "/srv/x"}, "data_config.sources", "'/srv/x' must be a list, not a string"),
    Mistake({SOURCE: "/srv/x.jsonl"}, SOURCE, "'/srv/x.jsonl' must be an object, not a string"),
    Mistake({"data_config.batch_size": 0}, "data_config.batch_size", "0 must be from 1 to 65536"),
    Mistake(
        {"data_config.batch_size": "8"}, "data_config.batch_size", "'8' must be an integer; write 8 without quotes"
    ),
    Mistake(
        {f"{RESOURCES}.gpu_count": "2"}, f"{RESOURCES}.gpu_count", "'2' must be an integer; write 2 without quotes"
    ),
    Mistake({f"{RESOURCES}.gpu_count": 1.5}, f"{RESOURCES}.gpu_count", "1.5 must be an integer"),
    Mistake({"data_config.validation_split": 2}, "data_config.validation_split", "2 must be from 0 to 1"),
    Mistake(
        {"data_config.streaming": "true"},
        "data_config.streaming",
        "'true' must be true or false; write true without quotes",
    ),
    Mistake({"scheduling_config": {"priority": 99}}, "scheduling_config.priority", "99 must be from 0 to 10"),
    Mistake({f"{TRAINING}.environment": {"N": 5}}, f"{TRAINING}.environment.N", "must be a string, not a number"),
    Mistake({"output_config": {"hub_token": 12345}}, "output_config.hub_token", "must be a string, not a number"),
    Mistake(
        {VALUES: {"optim": {"name": "x"}}},
        f"{VALUES}.optim",
        "must be a string, a number, true or false, not an object",
    ),
    Mistake(
        {VALUES: {"learning_rate": [1]}},
        f"{VALUES}.learning_rate",
        "must be a string, a number, true or false, not a list",
    ),
    Mistake({VALUES: {"learning_rate": float("nan")}}, f"{VALUES}.learning_rate", "NaN must be finite"),
]
WRONG_WORDS = [
    Mistake(
        {f"{TRAINING}.training_type": "sft"},
        f"{TRAINING}.training_type",
        "'sft' must be one of SFT, …(did you mean SFT?)",
    ),
    Mistake(
        {f"{TRAINING}.training_type": "LoRa"},
        f"{TRAINING}.training_type",
        "'LoRa' must be one of SFT, LORA, …(did you mean LORA?)",
    ),
    Mistake(
        {f"{TRAINING}.training_type": "finetune"},
        f"{TRAINING}.training_type",
        "'finetune' must be…(did you mean FULL_FINETUNE?)",
    ),
    Mistake(
        {f"{FRAMEWORK}.type": "hf"}, f"{FRAMEWORK}.type", "'hf' must be one of HF_TRAINER, …(did you mean HF_TRAINER?)"
    ),
    Mistake({f"{SOURCE}.format": "JSONL"}, f"{SOURCE}.format", "'JSONL' must be one of jsonl, …(did you mean jsonl?)"),
    Mistake(
        {f"{RESOURCES}.device_type": "gpu"},
        f"{RESOURCES}.device_type",
        "'gpu' must be one of auto, cuda, cpu (did you mean cuda?)",
    ),
    Mistake({f"{MODEL}.dtype": "bf16"}, f"{MODEL}.dtype", "unknown dtype 'bf16'; known: …(did you mean bfloat16?)"),
    Mistake(
        {"output_config": {"export_format": "safetensor"}},
        "output_config.export_format",
        "unknown export_format 'safetensor'; known: …(did you mean safetensors?)",
    ),
    Mistake(
        {f"{MODEL}.model_kwargs": {"attn_impl": "sdpa"}},
        f"{MODEL}.model_kwargs.attn_impl",
        "unknown option 'attn_impl'; known: … (did you mean attn_implementation?)",
    ),
    Mistake(
        {f"{MODEL}.model_kwargs": {"attn_implementation": "flash"}},
        f"{MODEL}.model_kwargs.attn_implementation",
        "'flash' must be one of …(did you mean flash_attention_2?)",
    ),
    Mistake(
        {f"{FRAMEWORK}.type": "MEGATRON", f"{TRAINING}.training_type": "DPO"},
        f"{TRAINING}.training_type",
        "MEGATRON does not train DPO: say framework.type …",
    ),
    Mistake(
        {f"{SOURCE}.split": "validaton"},
        f"{SOURCE}.split",
        "the split is 'validaton' (did you mean validation?), and must be train, …",
    ),
    Mistake(
        {"output_config": {"checkpoint": {"metric_for_best_model": "los"}}},
        "output_config.checkpoint.metric_for_best_model",
        "no checkpoint has a metric 'los' (did you mean loss?); known: …",
    ),
]
HYPERPARAMETERS = [
    Mistake(
        {VALUES: {"learnng_rate": "1"}},
        f"{VALUES}.learnng_rate",
        "learnng_rate is unknown to HF_TRAINER SFT (did you mean learning_rate?); known: …",
    ),
    Mistake(
        {VALUES: {"lr": 1e-4}},
        f"{VALUES}.lr",
        "lr is unknown to HF_TRAINER SFT (did you mean learning_rate?); known: …",
    ),
    Mistake(
        {VALUES: {"epochs": 3}},
        f"{VALUES}.epochs",
        "epochs is unknown to HF_TRAINER SFT (did you mean num_train_epochs?); known: …",
    ),
    Mistake(
        {VALUES: {"wd": 0.1}}, f"{VALUES}.wd", "wd is unknown to HF_TRAINER SFT (did you mean weight_decay?); known: …"
    ),
    Mistake(
        {VALUES: {"batch_size": 8}},
        f"{VALUES}.batch_size",
        "batch_size is unknown to HF_TRAINER SFT; it belongs at data_config.batch_size; known: …",
    ),
    Mistake(
        {VALUES: {"per_device_train_batch_size": 8}},
        f"{VALUES}.per_device_train_batch_size",
        "per_device_train_batch_size is unknown to HF_TRAINER SFT; it belongs at data_config.batch_size; known: …",
    ),
    Mistake(
        {VALUES: {"seq_len": 8}},
        f"{VALUES}.seq_len",
        "seq_len is unknown to HF_TRAINER SFT; it belongs at data_config.max_seq_length; known: …",
    ),
    Mistake(
        {VALUES: {"lora_r": 8}},
        f"{VALUES}.lora_r",
        "lora_r is unknown to HF_TRAINER SFT; it is a hyperparameter of LORA, QLORA, DPO, RLHF; known: …",
    ),
    Mistake({VALUES: {"learning_rate": "fast"}}, f"{VALUES}.learning_rate", "learning_rate: 'fast' is not a number …"),
    Mistake({VALUES: {"max_steps": 1.5}}, f"{VALUES}.max_steps", "max_steps: '1.5' is not a whole number …"),
    Mistake(
        {VALUES: {"lr_scheduler_type": "cosin"}},
        f"{VALUES}.lr_scheduler_type",
        "lr_scheduler_type: 'cosin' is not one of linear, …(did you mean cosine?)",
    ),
    Mistake(
        {f"{FRAMEWORK}.config": {"gradient_checkpoint": True}},
        f"{FRAMEWORK}.config.gradient_checkpoint",
        "gradient_checkpoint is not passed on to the Trainer (did you mean gradient_checkpointing?); known: …",
    ),
]
PLACES = [
    Mistake(
        {f"{SOURCE}.path": "/etc/passwd"},
        f"{SOURCE}.path",
        "'/etc/passwd' lies outside every directory that jobs may read: /srv, /data; move the files …",
    ),
    Mistake({f"{SOURCE}.path": "../x.jsonl"}, f"{SOURCE}.path", "'../x.jsonl' leads up by ..; write it without"),
    Mistake({f"{SOURCE}.path": "~/x.jsonl"}, f"{SOURCE}.path", "'~/x.jsonl' …~ is not expanded"),
    Mistake(
        {f"{SOURCE}.path": "huggingface://org/set"},
        f"{SOURCE}.path",
        "unknown scheme 'huggingface' (did you mean hf?); known: …",
    ),
    Mistake({f"{SOURCE}.path": "file://x"}, f"{SOURCE}.path", "'file://x'…a file URI names an absolute path…"),
    Mistake(
        {f"{MODEL}.model_id": "/home/me/model"}, f"{MODEL}.model_id", "'/home/me/model' lies outside …: /srv, /data; …"
    ),
    Mistake(
        {"output_config": {"output_path": "/home/me/out"}},
        "output_config.output_path",
        "'/home/me/out' is no place for results, … (/srv, /data)…",
    ),
    Mistake({f"{RESOURCES}.gpu_count": 0}, f"{RESOURCES}.gpu_count", "gpu_count is 0 and must be at least 1…"),
    Mistake(
        {"data_config.validation_split": 1},
        "data_config.validation_split",
        "a validation_split of 1.0 leaves nothing …",
    ),
    Mistake(
        {f"{TRAINING}.resume_from_checkpoint": "checkpoint-500"},
        f"{TRAINING}.resume_from_checkpoint",
        "'checkpoint-500' is no start: name a checkpoint (ckpt-…",
    ),
    Mistake(
        {f"{FRAMEWORK}.type": "CUSTOM"},
        f"{FRAMEWORK}.custom_script_path",
        "framework CUSTOM needs custom_script_path, …",
    ),
]


@pytest.mark.parametrize(
    "mistake",
    [*UNKNOWN_FIELDS, *WRONG_TYPES, *WRONG_WORDS, *HYPERPARAMETERS, *PLACES],
    ids=lambda mistake: str(mistake)[:60],
)
def test_mistake_in_a_document_is_named_with_its_way_out(mistake: Mistake) -> None:
    found = problems(mistake.document())

    assert [field for field, _ in found] == [mistake.field]
    assert says(found[0][1], mistake.message), found[0][1]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("a100-xl", "no node ever had a GPU of type 'a100-xl'; known: a100, h100 (did you mean a100?)…"),
        ("A10", "no node ever had a GPU of type 'a10'; known: a100, h100; the largest that would fit …"),
        ("A100-160GB", "no node ever had a GPU with the memory that gpu_type names; the largest a100 has 81920 MB"),
    ],
)
def test_gpu_type_that_no_node_has_is_told_which_there_are(asked: str, message: str) -> None:
    devices = (Device(index=0, type="a100", memory_mb=81920), Device(index=1, type="h100", memory_mb=81559))
    node = NodeCapacity(name="n1", devices=devices, free=frozenset((0, 1)))

    with pytest.raises(TrainyardError) as refused:
        refuse_unfitting(Request(device_kind="cuda", gpu_types=(GpuType(*normalise_gpu_type(asked)),)), [node])

    assert refused.value.field == "resource_config.gpu_type"
    assert says(refused.value.message, message), refused.value.message


def test_size_of_a_gpu_may_be_written_without_its_b() -> None:
    assert normalise_gpu_type("A100-80G") == normalise_gpu_type("A100-80GB") == ("a100", 81920)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("data_config.batchsize", "'batchsize' is no field here; known: … (did you mean batch_size?)"),
        ("data_config", "is a section; name a field of it: …"),
        ("scheduling_config.queue", "may not vary: …"),
    ],
)
def test_path_that_no_sweep_can_vary_is_told_what_can(path: str, message: str) -> None:
    with pytest.raises(TrainyardError) as refused:
        kind_of(path, make_document())

    assert refused.value.field == f"parameters.{path}"
    assert says(refused.value.message, message), refused.value.message


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (3e-3, "0.003"),
        (1e-5, "1e-05"),
        (2e-4, "0.0002"),
        (3, "3"),
        ("1e-5", "1e-5"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_numbers_are_stored_as_the_text_that_means_them(given: object, stored: str) -> None:
    values = checked(
        make_document(training_config={"hyperparameters": {"learning_rate": given}})
    ).document.training_config

    assert values.hyperparameters["learning_rate"] == stored
    assert float(stored) == float(str(given))


def test_true_and_false_are_stored_as_text_in_options_of_frameworks_too() -> None:
    training = {
        "hyperparameters": {"gradient_checkpointing": True},
        "framework": {"config": {"ddp_bucket_cap_mb": 50, "ddp_broadcast_buffers": False}},
    }
    stored = checked(make_document(training_config=training)).document.training_config

    assert stored.hyperparameters["gradient_checkpointing"] == "true"
    assert stored.framework.config == {"ddp_bucket_cap_mb": "50", "ddp_broadcast_buffers": "false"}


@pytest.mark.parametrize(
    "given",
    [
        {"output_config.hub_token": [SECRET]},
        {"output_config.hub_token": f"{SECRET} and more", "output_config.push_to_hub": True},
        {f"{MODEL}.credentials": {"token": SECRET * 1000}},
        {f"{MODEL}.credentials": SECRET},
        {f"{TRAINING}.environment": {"HF_TOKEN": [SECRET]}},
        {f"{TRAINING}.environment": [SECRET]},
        {f"{SOURCE}.path": f"https://user:{SECRET}@host/x.jsonl"},
        {f"{SOURCE}.path": f"/etc/x?X-Amz-Signature={SECRET}"},
        {f"{SOURCE}.api_key": SECRET},
        {f"{FRAMEWORK}.type": f"https://user:{SECRET}@host"},
    ],
    ids=str,
)
def test_secrets_are_not_quoted(given: dict[str, Any]) -> None:
    found = problems(Mistake(given, "", "").document(output_config={}))

    assert found
    assert SECRET not in str(found)


def test_wrong_value_is_quoted_up_to_100_characters() -> None:
    ((_, message),) = problems(make_document(name="/" * 5000))

    assert message.startswith(f"'{'/' * 100}…' must be 1 to 128 letters")


def problems(document: dict[str, Any]) -> list[tuple[str, str]]:
    """(field, message) of everything that the schema refuses, or of the first rule that the document breaks."""
    try:
        checked(document)
    except BadShape as error:
        return error.details
    except TrainyardError as error:
        return [(error.field or "", error.message)]
    return []


def checked(document: dict[str, Any]) -> JobSpec:
    return from_document(validated(SubmitJobSchema(), document), RULES)
