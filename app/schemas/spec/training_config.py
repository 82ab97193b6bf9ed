"""The training section of a job document: method, model, framework and hyperparameters."""

import re
from typing import Any, ClassVar

from marshmallow import ValidationError, fields, validate, validates_schema

from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.hyperparameters.trainer_arguments import ARGUMENTS
from app.domain.spec.inference import ENGINES, TYPES
from app.domain.spec.model import EPOCHS, ROLLBACK, STEPS, STOP, BaseModel, HaltAt, OnDivergence, TrainingConfig
from app.domain.spec.rules.model import DTYPES, known_model_kwargs
from app.schemas.documents import JobPartSchema
from app.schemas.spec.benchmarks import planned_evaluations
from app.schemas.spec.credentials import OF_CODE, CredentialsField, StorageOptions
from app.schemas.spec.locations import Location
from app.schemas.spec.packages import PackagesSchema
from app.schemas.strict_fields import (
    Amounts,
    Choice,
    Flag,
    FreeObject,
    ModelDefinition,
    Number,
    ScalarMap,
    ScriptOptions,
    SectionField,
    Text,
    TextMap,
    Whole,
    says,
)

TRAINING_TYPES = ("SFT", "LORA", "QLORA", "DPO", "RLHF", "CONTINUED_PRETRAIN", "FULL_FINETUNE")
FRAMEWORKS = ("HF_TRAINER", "DEEPSPEED", "FSDP", "MEGATRON", CUSTOM)
IS_CUSTOM = {
    "required": ["framework"],
    "properties": {"framework": {"required": ["type"], "properties": {"type": {"const": CUSTOM}}}},
}
MISSING = "Missing data for required field."  # as marshmallow says it
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MAX_ARGUMENTS, MAX_ARGUMENT_LENGTH = 256, 4096  # of a command line
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


class BaseModelSchema(JobPartSchema):
    model_id = Location(
        required=True,
        **says(
            "A hub id, a local directory, or the URI of a directory (file, s3, oci, obs, pvc, hf, scaidrive, "
            "scaiatlas); file-… is an uploaded directory of the project; none is allowed with CUSTOM, from_config "
            "and job_id"
        ),
    )
    job_id = Text(
        longest=64,
        shortest=1,
        **says(
            "A job of the project whose result the training continues; model_id is none then. An adapter is continued "
            "as the same adapter, with HF_TRAINER and LORA"
        ),
    )
    revision = Text(longest=255, **says("Branch, tag or commit of a hub model; default its main branch"))
    source = Text(longest=255, **says("hub, local or a URI scheme: where to look for model_id, which it must match"))
    credentials = CredentialsField()
    storage_options = StorageOptions()
    tokenizer_id = Location(**says("Like model_id; default the tokenizer in the model's directory"))
    dtype = Text(
        longest=32,
        **says(
            f"One of {', '.join(DTYPES)}; auto: float32, with bfloat16 compute on GPUs that support it",
            default=BaseModel.dtype,
        ),
    )
    trust_remote_code = Flag(
        **says("Run code shipped with the model, in the job's sandbox", default=BaseModel.trust_remote_code)
    )
    from_config = ModelDefinition(
        **says(
            "Train from scratch, with weights initialized by data_config.seed: true uses the config.json of model_id; "
            "an object is a transformers configuration with model_type, and model_id may be none if tokenizer_id is "
            "set. HF_TRAINER with SFT, FULL_FINETUNE or CONTINUED_PRETRAIN"
        )
    )
    model_kwargs = FreeObject(**says(f"Changes to the model's configuration: {known_model_kwargs()}"))


class DistributedSchema(JobPartSchema):
    world_size = Whole(
        1, 65536, **says("Must equal gpu_count × node_count (the default): one rank per device; see config")
    )
    backend = Text(
        longest=32,
        **says(
            "nccl on GPUs, gloo on CPU slots, where nccl has no effect; any value for custom scripts", default="nccl"
        ),
    )
    strategy = Text(
        longest=64,
        **says(
            "Implied by the framework: ddp with HF_TRAINER, fsdp with FSDP, deepspeed or zero with DEEPSPEED, megatron "
            "with MEGATRON; any value for custom scripts"
        ),
    )
    config = FreeObject(
        **says(
            "num_proc_per_node: auto, gpu (one rank per device), and for CUSTOM cpu (one per core of cpu_cores) or a "
            "number; any other options of a CUSTOM script"
        )
    )


def script_arguments(**kwargs: Any) -> fields.List[str]:
    return fields.List(Text(longest=MAX_ARGUMENT_LENGTH), validate=validate.Length(max=MAX_ARGUMENTS), **kwargs)


class FrameworkSchema(JobPartSchema):
    type = Choice(
        FRAMEWORKS, required=True, **says("HF_TRAINER, DEEPSPEED, FSDP, MEGATRON, or CUSTOM for your own script")
    )
    config = ScriptOptions(
        keys=PARAMETER,
        rule="must be an option name",
        **says(
            f"HF_TRAINER: hyperparameters, and {', '.join(ARGUMENTS)}; "
            "DEEPSPEED: zero_stage, default 2, offload_optimizer and offload_param, default none; "
            "FSDP: reshard_after_forward, default true, and cpu_offload, default false; "
            "MEGATRON: tensor_parallel and pipeline_parallel, default 1; CUSTOM: launcher (mpi), checkpoint_glob, "
            "metric.NAME (a pattern of log lines), and the script's own options"
        ),
    )
    distributed = SectionField(DistributedSchema, **says("Distributed training options"))
    custom_script_path = Text(
        **says(
            "CUSTOM: the script to run, a local file or one below custom_code_dir; in uploaded or cloned code its path "
            "there, such as train.py"
        )
    )
    custom_arguments = script_arguments(**says("CUSTOM: the script's arguments"))
    custom_command = script_arguments(**says("CUSTOM: a program with its arguments, instead of custom_script_path"))
    custom_code_dir = Location(
        **says(
            "CUSTOM: a code directory, or its URI (s3, oci, obs, pvc), readable by the ranks: it contains the script "
            "and is the working directory of custom_command. file-… is an uploaded directory of the project, "
            "git+https://host/repository.git@<commit> one commit of a repository, #subdirectory=path a part of it"
        )
    )
    custom_code_credentials = CredentialsField(OF_CODE)
    custom_retry_on_error = Flag(
        **says("CUSTOM: true: a failed script is retried, up to max_retries; otherwise it fails the job at once")
    )


class EvaluationSchema(JobPartSchema):
    strategy = Choice(("no", "steps", "epoch"), required=True, **says("When to evaluate on validation data"))
    steps = Whole(1, 2**31 - 1, **says("Optimizer steps between evaluations; default the checkpoint interval"))


class OnDivergenceSchema(JobPartSchema):
    action = Choice(
        (STOP, ROLLBACK),
        load_default=OnDivergence.action,
        **says(
            "stop: the job fails and names the step; rollback: it returns to its last checkpoint with a finite loss"
        ),
    )
    learning_rate_factor = Number(
        0.0,
        1.0,
        **says(
            "rollback: factor on the learning rate for each rollback, above 0 and up to 1",
            default=OnDivergence.learning_rate_factor,
        ),
    )
    max_rollbacks = Whole(
        1, 10, **says("rollback: maximum number before the job fails", default=OnDivergence.max_rollbacks)
    )


class HaltAtSchema(JobPartSchema):
    unit = Choice((STEPS, EPOCHS), load_default=HaltAt.unit, **says("What at counts: optimizer steps, or epochs"))
    at = Amounts(
        required=True,
        shortest=1,
        **says("Ascending amounts, each once; the run ignores those up to where it starts, and from its end on"),
    )


def environment(load_default: object = dict) -> TextMap:
    return TextMap(
        keys=_VARIABLE,
        rule="must be letters, digits and _, not starting with a digit",
        load_default=load_default,
        **says("Environment variables of the ranks; secrets are stored encrypted and shown as ***"),
    )


def required_unless_custom(framework: dict[str, Any], *names: str) -> dict[str, Any]:
    """JSON Schema of fields that only a CUSTOM job may leave out; ``framework`` is where it says so."""
    given = {name: {"not": {"type": "null"}} for name in names}
    return {"anyOf": [framework, {"required": list(names), "properties": given}]}


def missing_unless_custom(values: dict[str, Any], framework: object, *names: str) -> None:
    """Raise ValidationError for those of the fields that are left out, where the framework is not CUSTOM."""
    if isinstance(framework, dict) and framework.get("type") == CUSTOM:
        return
    if missing := [name for name in names if name not in values]:
        raise ValidationError({name: [MISSING] for name in missing})


class TrainingConfigSchema(JobPartSchema):
    needed: ClassVar[tuple[str, ...]] = ("training_type", "base_model")  # of every framework but CUSTOM
    conditions: ClassVar[dict[str, Any]] = required_unless_custom(IS_CUSTOM, *needed)
    training_type = Choice(
        (*TRAINING_TYPES, CUSTOM),
        **says(
            "The training method; GET /v1/training-types lists the supported frameworks. Framework CUSTOM does not "
            "need it: default CUSTOM"
        ),
    )
    base_model = SectionField(
        BaseModelSchema, **says("The model to start from; framework CUSTOM does not need it: default none")
    )
    framework = SectionField(FrameworkSchema, required=True, **says("The training framework"))
    hyperparameters = ScalarMap(
        keys=PARAMETER,
        rule="must be a hyperparameter name",
        load_default=dict,
        **says(
            "Strings, numbers, true and false, stored as text; GET /v1/training-types lists them by training type, "
            "CUSTOM accepts any"
        ),
    )
    environment = environment()
    resume_from_checkpoint = Text(
        longest=128,
        **says(
            "ckpt-… | job-… (its newest, or its best with resume_from_best) | job-…:latest | job-…:best, with the same "
            "model, type and data"
        ),
    )
    max_retries = Whole(0, 100, **says("Maximum retries after transient failures", default=TrainingConfig.max_retries))
    retry_on_hang = Flag(
        **says(
            "false: the job fails at once when its ranks hang, whatever max_retries allows",
            default=TrainingConfig.retry_on_hang,
        )
    )
    priority = Whole(
        0, 10, **says("As scheduling_config.priority, which takes precedence", default=TrainingConfig.priority)
    )
    evaluation = SectionField(EvaluationSchema, **says("Default: at every checkpoint if there is validation data"))
    evaluations = planned_evaluations()
    on_divergence = SectionField(
        OnDivergenceSchema, **says("Action when the loss explodes or becomes NaN or infinite; default stop")
    )
    halt_at = SectionField(
        HaltAtSchema,
        **says(
            "Amounts of training at which the run evaluates (if it has validation data), saves a checkpoint and stops: "
            "the job is PAUSED, and continues from there when it is resumed; of CUSTOM in steps, by trainyard.hooks"
        ),
    )
    grader = FreeObject(
        **says(
            "RLHF: what a completion is worth, in place of the hyperparameter reward: string_check, text_similarity, "
            "score_model, label_model, python or multi, in the form of OpenAI's API"
        )
    )
    warm = Flag(
        **says(
            "false: agent and ranks are started as new processes; by default they are forked, where possible, from a "
            "process that has imported the training libraries, which is seconds faster",
            default=TrainingConfig.warm,
        )
    )
    packages = SectionField(
        PackagesSchema, **says("CUSTOM: the packages of a virtual environment in which the ranks run")
    )

    @validates_schema(skip_on_field_errors=False, pass_original=True)
    def has_method_and_model(self, values: dict[str, Any], original: object, **_: Any) -> None:
        if not isinstance(original, dict):
            return
        given = original
        # What was given and refused is not missing, too.
        known = {name for name, value in given.items() if value is not None} | set(values)
        missing_unless_custom(dict.fromkeys(known), given.get("framework"), *self.needed)


class StoredFrameworkSchema(FrameworkSchema):
    """As answers show it; jobs that train nothing have an engine."""

    type = Choice(
        (*FRAMEWORKS, *ENGINES), required=True, **says("The framework; of other kinds than training the engine")
    )


class StoredTrainingConfigSchema(TrainingConfigSchema):
    """As answers show it; jobs that train nothing have a type of their own."""

    needed = ()
    conditions: ClassVar[dict[str, Any]] = {}
    training_type = Choice(
        (*TRAINING_TYPES, CUSTOM, *TYPES.values()),
        required=True,
        **says(f"The training method; of other kinds than training {', '.join(TYPES.values())}"),
    )
    base_model = SectionField(BaseModelSchema, required=True, **says("The model to start from"))
    framework = SectionField(StoredFrameworkSchema, required=True)
