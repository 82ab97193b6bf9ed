"""What is trained, by which method, with which framework."""

import re
from typing import Any

from marshmallow import fields, validate

from app.domain.spec.divergence_policy import ACTIONS, STOP, OnDivergence
from app.domain.spec.hyperparameters.trainer_arguments import ARGUMENTS
from app.domain.spec.rules.model import DTYPES, known_model_kwargs
from app.schemas.documents import DocumentSchema
from app.schemas.spec.credentials import Credentials, StorageOptions
from app.schemas.strict_fields import (
    Choice,
    Flag,
    FreeObject,
    ModelDefinition,
    Number,
    ScriptOptions,
    Section,
    Text,
    TextMap,
    Whole,
    says,
)

TRAINING_TYPES = ("SFT", "LORA", "QLORA", "DPO", "RLHF", "CONTINUED_PRETRAIN", "FULL_FINETUNE")
FRAMEWORKS = ("HF_TRAINER", "DEEPSPEED", "FSDP", "MEGATRON", "CUSTOM")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MOST_WORDS, LONGEST_WORD = 256, 4096  # of a command line
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


class BaseModelSchema(DocumentSchema):
    model_id = Text(
        required=True,
        **says(
            "A hub id, a local directory, or the URI of a directory (file, s3, oci, obs, pvc, hf, scaidrive, "
            "scaiatlas); CUSTOM, from_config: or none"
        ),
    )
    revision = Text(longest=255, **says("Branch, tag or commit of a hub model; default its main branch"))
    source = Text(
        longest=255,
        **says("hub, local or a URI's scheme: settles where model_id is looked for, and must fit it"),
    )
    credentials = Credentials()
    storage_options = StorageOptions()
    tokenizer_id = Text(**says("Like model_id; default the tokenizer in the model's directory"))
    dtype = Text(
        longest=32,
        **says(f"One of {', '.join(DTYPES)}; auto: float32, computed in bfloat16 on GPUs that can", default="auto"),
    )
    trust_remote_code = Flag(**says("Run code that comes with the model, in the job's sandbox", default=False))
    from_config = ModelDefinition(
        **says(
            "Train from scratch, from weights drawn by data_config.seed: true, with the config.json of model_id; or a "
            "transformers configuration as an object with model_type, then model_id may be none if tokenizer_id is "
            "given. HF_TRAINER with SFT, FULL_FINETUNE or CONTINUED_PRETRAIN",
        )
    )
    model_kwargs = FreeObject(**says(f"Changes to the model's configuration: {known_model_kwargs()}"))


class DistributedSchema(DocumentSchema):
    world_size = Whole(
        1,
        65536,
        **says("Must equal gpu_count × node_count, which is the default: one rank per device (see config)"),
    )
    backend = Text(
        longest=32,
        **says("nccl on GPUs, gloo on CPU slots, where nccl has no effect; custom scripts choose", default="nccl"),
    )
    strategy = Text(
        longest=64,
        **says(
            "The framework decides it: ddp with HF_TRAINER, fsdp with FSDP, deepspeed or zero with DEEPSPEED, megatron "
            "with MEGATRON; custom scripts may read any"
        ),
    )
    config = FreeObject(
        **says(
            "num_proc_per_node: auto, gpu (one rank for each device), and for CUSTOM cpu (one for each of cpu_cores) "
            "or a number; what else CUSTOM's script reads"
        )
    )


def _words(**kwargs: Any) -> fields.List[str]:
    return fields.List(Text(longest=LONGEST_WORD), validate=validate.Length(max=MOST_WORDS), **kwargs)


class FrameworkSchema(DocumentSchema):
    type = Choice(
        FRAMEWORKS,
        required=True,
        **says("HF_TRAINER, DEEPSPEED, FSDP, MEGATRON, or CUSTOM for a script of one's own"),
    )
    config = ScriptOptions(
        keys=PARAMETER,
        rule="must be the name of an option",
        **says(
            f"HF_TRAINER: hyperparameters, and {', '.join(ARGUMENTS)}; "
            "DEEPSPEED: zero_stage, default 2, offload_optimizer and offload_param, default none; "
            "FSDP: reshard_after_forward, default true, and cpu_offload, default false; "
            "MEGATRON: tensor_parallel and pipeline_parallel, default 1; CUSTOM: launcher (mpi), checkpoint_glob, "
            "metric.NAME (a pattern of lines), and the script's own options"
        ),
    )
    distributed = Section(DistributedSchema, **says("How the ranks work together"))
    custom_script_path = Text(**says("CUSTOM: the script to run, a local file or one below custom_code_dir"))
    custom_arguments = _words(**says("CUSTOM: what the script is called with"))
    custom_command = _words(**says("CUSTOM: a program and what it is called with, instead of custom_script_path"))
    custom_code_dir = Text(
        **says(
            "CUSTOM: a directory, or the URI of one (s3, oci, obs, pvc), that ranks may read: the script lies in it, "
            "and custom_command starts there"
        )
    )
    custom_retry_on_error = Flag(
        **says("CUSTOM: true: what ends with an error is tried again, up to max_retries; else it fails at once")
    )


class EvaluationSchema(DocumentSchema):
    strategy = Choice(("no", "steps", "epoch"), required=True, **says("When validation data is measured"))
    steps = Whole(1, 2**31 - 1, **says("Optimizer steps between evaluations; default as often as checkpoints"))


class OnDivergenceSchema(DocumentSchema):
    action = Choice(
        ACTIONS,
        load_default=STOP,
        **says(
            "stop: the job fails and names the step; rollback: it goes back to its last checkpoint with a finite loss"
        ),
    )
    learning_rate_factor = Number(
        0.0,
        1.0,
        **says(
            "rollback: what the learning rate is multiplied by each time, above 0 and up to 1",
            default=OnDivergence.learning_rate_factor,
        ),
    )
    max_rollbacks = Whole(
        1, 10, **says("rollback: how often, before the job fails", default=OnDivergence.max_rollbacks)
    )


class TrainingConfigSchema(DocumentSchema):
    training_type = Choice(
        TRAINING_TYPES, required=True, **says("The method; GET /v1/training-types lists which framework knows which")
    )
    base_model = Section(BaseModelSchema, required=True, **says("What the training begins with"))
    framework = Section(FrameworkSchema, required=True, **says("What runs it"))
    hyperparameters = TextMap(
        keys=PARAMETER,
        rule="must be the name of a hyperparameter",
        load_default=dict,
        **says("Texts; GET /v1/training-types has the table of each training type, CUSTOM takes any"),
    )
    environment = TextMap(
        keys=_VARIABLE,
        rule="must be a name of letters, digits and _ that begins with no digit",
        load_default=dict,
        **says("Environment variables of the ranks; secrets are stored encrypted and shown as ***"),
    )
    resume_from_checkpoint = Text(
        longest=128,
        **says(
            "ckpt-… | job-… (its newest, with resume_from_best its best one) | job-…:latest | job-…:best, of the same "
            "model, type and data"
        ),
    )
    max_retries = Whole(0, 100, **says("Further attempts after a failure that may pass", default=3))
    priority = Whole(0, 10, **says("As scheduling_config.priority, which wins", default=5))
    evaluation = Section(EvaluationSchema, **says("Default: at every checkpoint if there is validation data"))
    on_divergence = Section(
        OnDivergenceSchema, **says("What to do when the loss explodes, or becomes NaN or infinite; default stop")
    )
