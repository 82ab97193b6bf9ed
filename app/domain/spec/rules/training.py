"""Rules of ``training_config``: trainer, script, hyperparameters, evaluation, environment."""

import re

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.document import evaluates, has_validation_data, is_custom, trainer, typed_hyperparameters
from app.domain.spec.frameworks.custom import (
    CHECKPOINT_GLOB,
    CUSTOM_FIELDS,
    LAUNCHER,
    LAUNCHERS,
    MPI,
    PROCESSES,
    InvalidGlob,
    InvalidProcesses,
    below,
    check_glob,
    checkpoint_glob,
    launcher,
    processes_per_node,
    way_into,
)
from app.domain.spec.frameworks.deepspeed import DEEPSPEED, STAGE, InvalidZero, zero
from app.domain.spec.frameworks.fsdp import FSDP, InvalidSharding, sharding
from app.domain.spec.frameworks.megatron import MEGATRON, InvalidParallelism, parallelism
from app.domain.spec.hyperparameters import parsing, rlhf, trainer_arguments
from app.domain.spec.model import ROLLBACK, STOP, Evaluation, JobDocument
from app.domain.spec.rules import distributed as distributed_rules

# These would change the platform's own processes, or the devices and files that the job sees.
RESERVED_VARIABLES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "SHELL",
        "IFS",
        "ENV",
        "BASH_ENV",
        "TMPDIR",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PYTHONSAFEPATH",
        "PYTHONINSPECT",
        "PYTHONUSERBASE",
        "GIT_SSH_COMMAND",
        "GIT_SSH",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "OMP_NUM_THREADS",
        "HF_HUB_OFFLINE",
    }
)
RESERVED_PREFIXES = ("TRAINYARD_", "LD_", "DYLD_", "TORCHELASTIC_")

_HYPERPARAMETERS = "training_config.hyperparameters"
_ID = "[0-9A-Za-z-]{1,59}"
_START = re.compile(rf"ckpt-{_ID}|job-{_ID}(?::(?:latest|best))?")
# Exactly these words: hyperparameters such as max_tokens or num_key_value_heads are no secrets.
_CREDENTIALS = frozenset(
    {
        "token",
        "auth_token",
        "access_token",
        "use_auth_token",
        "hf_token",
        "hub_token",
        "api_key",
        "apikey",
        "password",
        "passwd",
        "secret",
        "secret_key",
        "private_key",
        "credentials",
        "authorization",
    }
)


def trainer_exists(document: JobDocument) -> None:
    framework, training_type = trainer(document)
    if parsing.supported(framework, training_type):
        return
    others = ", ".join(sorted(f for f, t in parsing.TABLES if t == training_type))
    types = ", ".join(sorted(t for f, t in parsing.TABLES if f == framework))
    raise NotSupportedYet(
        f"{framework} does not train {training_type}: say framework.type {others and f'{others}, or '}{parsing.CUSTOM} "
        f"for a script of your own; {framework} trains {types}",
        field="training_config.training_type",
    )


def script_belongs_to_custom(document: JobDocument) -> None:
    framework, field = document.training_config.framework, "training_config.framework"
    if framework.type != parsing.CUSTOM:
        foreign = next((name for name in CUSTOM_FIELDS if getattr(framework, name)), None)
        if foreign is not None:
            raise BadSpec(
                f"{foreign} is for framework CUSTOM only; leave it out or say CUSTOM", field=f"{field}.{foreign}"
            )
        return
    script, arguments = framework.custom_script_path, framework.custom_arguments
    command, code = framework.custom_command, framework.custom_code_dir
    image = document.resource_config.image
    if not script and not command and not image.reference:
        raise BadSpec(
            "framework CUSTOM needs custom_script_path, the script to run, custom_command, or an image with a program "
            "of its own (resource_config.image)",
            field=f"{field}.custom_script_path",
        )
    if script and command:
        raise BadSpec(
            "set either custom_script_path, with custom_arguments, or custom_command", field=f"{field}.custom_command"
        )
    if command and arguments:
        raise BadSpec("custom_command has its arguments in itself", field=f"{field}.custom_arguments")
    if command and not command[0].strip():
        raise BadSpec("the first of its words is the program to run", field=f"{field}.custom_command.0")
    if script and code and not below(script, code):
        raise BadSpec(f"must lie in the code directory, {code}; {way_into(code)}", field=f"{field}.custom_script_path")


def megatron_can_divide(document: JobDocument) -> None:
    """Checks before the model is loaded; whether its heads and layers can be divided is checked afterwards."""
    if trainer(document)[0] != MEGATRON:
        return
    framework = document.training_config.framework
    if document.data_config.streaming:
        raise NotSupportedYet(
            "MEGATRON deals out records by their number, which streamed ones do not have; leave streaming out",
            field="data_config.streaming",
        )
    _float16_is_not_asked_for(document, MEGATRON)
    if document.training_config.base_model.model_kwargs.get("attn_implementation"):
        raise NotSupportedYet(
            "MEGATRON has an attention of its own; leave attn_implementation out",
            field="training_config.base_model.model_kwargs.attn_implementation",
        )
    try:
        parallelism(framework.config, _devices_of(document))
    except InvalidParallelism as error:
        raise BadSpec(error.message, field=f"training_config.framework.config.{error.name}") from error


def fsdp_can_divide(document: JobDocument) -> None:
    if trainer(document)[0] != FSDP:
        return
    _float16_is_not_asked_for(document, FSDP)
    try:
        sharding(document.training_config.framework.config)
    except InvalidSharding as error:
        raise BadSpec(error.message, field=f"training_config.framework.config.{error.name}") from error


def trainer_arguments_are_known(document: JobDocument) -> None:
    if trainer(document)[0] != trainer_arguments.HF_TRAINER:
        return
    options, loaders = (document.training_config.framework.config, document.data_config.num_workers)
    try:
        trainer_arguments.check(options, loaders=loaders)
    except parsing.InvalidHyperparameter as error:
        raise BadSpec(error.message, field=f"training_config.framework.config.{error.name}") from error


def zero_can_divide(document: JobDocument) -> None:
    if trainer(document)[0] != DEEPSPEED:
        return
    _float16_is_not_asked_for(document, DEEPSPEED)
    try:
        asked = zero(document.training_config.framework.config)
    except InvalidZero as error:
        raise BadSpec(error.message, field=f"training_config.framework.config.{error.name}") from error
    if asked.stage == 3 and trainer(document)[1] == "QLORA":
        raise NotSupportedYet(
            "weights in 4 bits can't be divided among ranks, as stage 3 does; set zero_stage to 1 or 2",
            field=f"training_config.framework.config.{STAGE}",
        )


def _float16_is_not_asked_for(document: JobDocument, framework: str) -> None:
    if document.training_config.base_model.dtype in ("float16", "fp16", "torch.float16"):
        raise NotSupportedYet(
            f"{framework} computes in float32 or bfloat16; use one of them, or auto",
            field="training_config.base_model.dtype",
        )


def ranks_match_devices(document: JobDocument) -> None:
    distributed = document.training_config.framework.distributed
    resources, world_size = document.resource_config, distributed.world_size
    nodes, devices = resources.node_count, resources.gpu_count
    prefix = "training_config.framework.distributed"
    try:
        processes = processes_per_node(document, devices=devices)
    except InvalidProcesses as error:
        raise BadSpec(str(error), field=f"{prefix}.config.{PROCESSES}") from error
    if processes != devices and not is_custom(document):
        raise BadSpec(
            "a built-in trainer has one process for each device; leave it out, or use auto",
            field=f"{prefix}.config.{PROCESSES}",
        )
    count = nodes * processes
    if world_size is not None and world_size != count:
        each = "there is one rank for each device" if processes == devices else f"{PROCESSES} makes {processes} a node"
        shown = _devices(nodes) if processes == devices else "the number of ranks"
        raise BadSpec(
            f"world_size is {world_size} but {shown} is {count}; {each}: make them equal or leave world_size out",
            field=f"{prefix}.world_size",
        )


def distributed_config_is_known(document: JobDocument) -> None:
    distributed = document.training_config.framework.distributed
    for name in distributed.config if not is_custom(document) else ():
        if name != PROCESSES:
            raise BadSpec(
                f"{name!r:.80} is not known here, only {PROCESSES}; leave it out",
                field="training_config.framework.distributed.config",
            )


def _devices(nodes: int) -> str:
    return "gpu_count" if nodes == 1 else "node_count × gpu_count"


def launcher_is_known(document: JobDocument) -> None:
    value, field = launcher(document), f"training_config.framework.config.{LAUNCHER}"
    if value and value not in LAUNCHERS:
        raise BadSpec(
            f"{value!r:.80} is no launcher; use {MPI} for a script that calls MPI, or leave it out: then one process "
            "is started for each device, with the variables of torchrun",
            field=field,
        )


def checkpoint_files_are_the_scripts_own(document: JobDocument) -> None:
    value = checkpoint_glob(document)
    try:
        if value:
            check_glob(value)
    except InvalidGlob as error:
        raise BadSpec(str(error), field=f"training_config.framework.config.{CHECKPOINT_GLOB}") from error


def hyperparameters_are_known(document: JobDocument) -> None:
    try:
        typed_hyperparameters(document)
    except parsing.InvalidHyperparameter as error:
        raise BadSpec(error.message, field=f"{_HYPERPARAMETERS}.{error.name}") from error


def hyperparameters_fit_the_data(document: JobDocument) -> None:
    if is_custom(document):
        return
    data, values = document.data_config, typed_hyperparameters(document)
    try:
        parsing.check_data(values, evaluates=evaluates(document), streaming=data.streaming)
        rlhf.check_devices(values, _devices_of(document))
        rlhf.check_batch(values, _records_per_step(document))
        rlhf.check_lengths(values, data.max_seq_length)
    except parsing.InvalidHyperparameter as error:
        raise BadSpec(error.message, field=f"{_HYPERPARAMETERS}.{error.name}") from error


def _devices_of(document: JobDocument) -> int:
    resources = document.resource_config
    return int(resources.node_count * resources.gpu_count)


def _records_per_step(document: JobDocument) -> int:
    data, devices = document.data_config, _devices_of(document)
    batch = data.batch_size
    return int(batch * data.gradient_accumulation_steps * devices)


def is_reserved(name: str) -> bool:
    """Whether the platform sets this environment variable."""
    return name.upper() in RESERVED_VARIABLES or name.upper().startswith(RESERVED_PREFIXES)


def environment_leaves_the_platform_alone(document: JobDocument) -> None:
    for name in document.training_config.environment:
        if is_reserved(name):
            prefixes = ", ".join(f"{prefix}*" for prefix in RESERVED_PREFIXES)
            raise BadSpec(
                f"the environment variable {name} is reserved (so are {prefixes}); use another name",
                field=f"training_config.environment.{name}",
            )


def credentials_are_in_the_environment(document: JobDocument) -> None:
    """Unencrypted options of a script are visible to all users of the project."""
    if not is_custom(document):
        return  # built-in trainers know all their options, and none of them is a credential
    training = document.training_config
    framework = training.framework
    objects = {
        "hyperparameters": training.hyperparameters,
        "base_model.model_kwargs": training.base_model.model_kwargs,
        "framework.config": framework.config,
        "framework.distributed.config": framework.distributed.config,
    }
    for path, options in objects.items():
        for name in options:
            if name.lower().replace("-", "_") in _CREDENTIALS:
                raise BadSpec(
                    f"{name} looks like a credential, and this field is shown as it is; set it in "
                    "training_config.environment, whose secrets are stored encrypted",
                    field=f"training_config.{path}.{name}",
                )


def evaluation_has_data(document: JobDocument) -> None:
    evaluation, prefix = document.training_config.evaluation or Evaluation(), "training_config"
    if evaluation.steps is not None and evaluation.strategy != "steps":
        raise BadSpec(
            "steps counts only with strategy steps; leave it out or say steps", field=f"{prefix}.evaluation.steps"
        )
    if is_custom(document) or evaluation.strategy == "no" or has_validation_data(document):
        return
    raise BadSpec(
        "evaluation needs validation data; set data_config.validation_split above 0, or give a source with split "
        "validation, or say strategy no",
        field=f"{prefix}.evaluation.strategy",
    )


def divergence_can_be_acted_on(document: JobDocument) -> None:
    policy, field = document.training_config.on_divergence, "training_config.on_divergence"
    if policy.action == STOP:
        for name in ("learning_rate_factor", "max_rollbacks"):
            if name in policy.given:
                raise BadSpec(
                    f"{name} counts only with action {ROLLBACK}; leave it out or say so", field=f"{field}.{name}"
                )
    if policy.learning_rate_factor == 0.0:
        raise BadSpec(
            "with a factor of 0 no weight would be updated; use one above 0 and up to 1",
            field=f"{field}.learning_rate_factor",
        )
    if policy.action == ROLLBACK and is_custom(document):
        raise BadSpec(
            f"a custom script's learning rate is its own: it can't be lowered from outside; say {STOP}, and let the "
            "script go back by itself",
            field=f"{field}.action",
        )


def start_is_named(document: JobDocument) -> None:
    start = document.training_config.resume_from_checkpoint
    if start and _START.fullmatch(start) is None:
        raise BadSpec(
            f"{start[:100]!r} is no start: name a checkpoint (ckpt-…), a job (job-…, which means its newest one), "
            "job-…:latest or job-…:best",
            field="training_config.resume_from_checkpoint",
        )


RULES = (
    trainer_exists,
    script_belongs_to_custom,
    ranks_match_devices,
    *distributed_rules.RULES,
    distributed_config_is_known,
    launcher_is_known,
    checkpoint_files_are_the_scripts_own,
    hyperparameters_are_known,
    environment_leaves_the_platform_alone,
    credentials_are_in_the_environment,
    divergence_can_be_acted_on,
    start_is_named,
)
# These depend on data_config, whose rules come first.
LATER_RULES = (
    evaluation_has_data,
    hyperparameters_fit_the_data,
    megatron_can_divide,
    fsdp_can_divide,
    zero_can_divide,
    trainer_arguments_are_known,
)
