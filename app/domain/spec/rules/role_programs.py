"""Rules of roles that are parts of a built-in trainer: one trains a policy, another makes its completions."""

from app.domain.errors import BadSpec
from app.domain.spec.document import asks_for_gpus, is_custom, trainer, typed_hyperparameters
from app.domain.spec.frameworks.deepspeed import DEEPSPEED, zero
from app.domain.spec.frameworks.fsdp import FSDP
from app.domain.spec.hyperparameters.rlhf import ALGORITHM, ENGINE, GENERATION_BACKEND, GRPO, RLOO
from app.domain.spec.hyperparameters.tables import USE_LORA
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import document_of
from app.domain.spec.roles import ROLE, ROLLOUT, SCRIPT, TASK, TRAIN, JobRole

WHOLE = "HF_TRAINER"  # whose ranks have all that is trained
DIVIDED = (FSDP, DEEPSPEED)
FRAMEWORKS = (WHOLE, *DIVIDED)
METHOD = "RLHF"
ALGORITHMS = (GRPO, RLOO)
_OF_PROGRAMS = ("environment",)  # what the training_config of such a role may have


def programs_are_the_frameworks(document: JobDocument) -> None:
    if not is_custom(document):
        _require_policy(document)
    for number, role in enumerate(document.tasks):
        if is_custom(document) and role.program != SCRIPT:
            raise BadSpec(
                f"{role.program} is a part of a built-in trainer, and framework CUSTOM runs scripts of your own; leave "
                f"program out, or use framework {WHOLE}",
                field=f"tasks.{number}.program",
            )


def _require_policy(document: JobDocument) -> None:
    framework, training_type = trainer(document)
    algorithm = str(document.training_config.hyperparameters.get(ALGORITHM) or GRPO).strip()
    if framework in FRAMEWORKS and training_type == METHOD and algorithm in ALGORITHMS:
        return
    named = f"{training_type} with {ALGORITHM} {algorithm}" if training_type == METHOD else training_type
    raise BadSpec(
        f"roles are for the scripts and commands of framework CUSTOM, and for {METHOD} with {ALGORITHM} "
        f"{' or '.join(ALGORITHMS)} of {WHOLE}, {' or '.join(DIVIDED)}: {framework} {named} starts equal ranks; leave "
        "tasks out",
        field="tasks",
    )


def one_role_trains_and_one_completes(document: JobDocument) -> None:
    """The first one trains: metrics, checkpoints and the result come from rank 0."""
    if is_custom(document):
        return
    roles = document.tasks
    if roles[0].program != TRAIN:
        raise BadSpec(f"the first role is the one that trains; say {TRAIN}", field="tasks.0.program")
    seen = set[str]()
    for number, role in enumerate(roles):
        if role.program in seen - {SCRIPT}:
            way_out = "give the other one more devices" if role.program == TRAIN else "raise the count of the other one"
            raise BadSpec(
                f"there are two roles with program {role.program}; {way_out}", field=f"tasks.{number}.program"
            )
        seen.add(role.program)
    if ROLLOUT not in seen:
        raise BadSpec(
            f"no role makes the completions; add one with program {ROLLOUT}, or leave tasks out and ask for devices in "
            "resource_config",
            field="tasks",
        )


def programs_start_and_end_together(document: JobDocument) -> None:
    for number, role in enumerate(document.tasks):
        at = f"tasks.{number}"
        if role.program == TRAIN and role.restart == TASK:
            raise BadSpec(
                "a training starts again with the whole job, from its last checkpoint; leave restart out",
                field=f"{at}.restart",
            )
        if role.program != SCRIPT and role.world != ROLE:
            raise BadSpec(
                "the ranks of a training are a world of their own, and rollouts are in none; leave world out",
                field=f"{at}.world",
            )
        if role.program == SCRIPT and not is_custom(document) and not role.sidecar:
            raise BadSpec(
                "a script beside a built-in training ends with it; say sidecar: true, or name the program that the "
                f"role is of the trainer, {TRAIN} or {ROLLOUT}",
                field=f"{at}.sidecar",
            )
        if role.program == ROLLOUT and "sidecar" in role.given and not role.sidecar:
            raise BadSpec("rollouts are stopped when the training has ended; leave sidecar out", field=f"{at}.sidecar")


def programs_have_the_jobs_settings(document: JobDocument) -> None:
    """Both build the same model from the same settings; what differs is the environment alone."""
    for number, role in enumerate(document.tasks):
        foreign = [name for name in role.training_config.given if name not in _OF_PROGRAMS]
        if role.program != SCRIPT and foreign:
            raise BadSpec(
                f"{foreign[0]} is for roles with a script or command; a role with program {role.program} has the job's "
                f"training_config, and its own {', '.join(_OF_PROGRAMS)} at most: leave it out",
                field=f"tasks.{number}.training_config.{foreign[0]}",
            )


def engine_has_whole_weights(document: JobDocument) -> None:
    """Of a job without roles."""
    asked = str(document.training_config.hyperparameters.get(GENERATION_BACKEND) or "").strip()
    framework = trainer(document)[0]
    if framework in DIVIDED and asked == ENGINE:
        raise BadSpec(
            f"the engine needs a whole model, and {framework} divides it among ranks; add a role with program "
            f"{ROLLOUT} that makes the completions, or leave {GENERATION_BACKEND} out",
            field=f"training_config.hyperparameters.{GENERATION_BACKEND}",
        )


def scripts_are_named(document: JobDocument) -> None:
    """Beside a built-in trainer there is no script or command of the job that a role could have."""
    for number, role in enumerate(document.tasks):
        own = role.training_config
        if role.program == SCRIPT and not is_custom(document) and not own.custom_script_path and not own.custom_command:
            raise BadSpec(
                "the role has no program: name its custom_script_path or its custom_command",
                field=f"tasks.{number}.training_config.custom_script_path",
            )


def rollouts_are_of_the_engine(document: JobDocument) -> None:
    asked = str(document.training_config.hyperparameters.get(GENERATION_BACKEND) or "").strip()
    if not is_custom(document) and asked != ENGINE:
        raise BadSpec(
            f"rollouts complete prompts by the engine of inference jobs: say {ENGINE}",
            field=f"training_config.hyperparameters.{GENERATION_BACKEND}",
        )


def divided_base_is_on_devices_of_one_kind(document: JobDocument) -> None:
    """The digest of a divided base is for the dtype of one kind of devices (decision 0114).

    For a document whose hyperparameters and options are checked.
    """
    if is_custom(document) or not _divides_a_base(document):
        return
    train = _device_kind(document, document.tasks[0])
    for number, role in enumerate(document.tasks):
        kind = _device_kind(document, role) if role.program == ROLLOUT else train
        # auto takes GPUs where any node has one, so nodes that come later decide.
        if kind != train and "cpu" in (kind, train):
            whose, other = (number, train) if train else (0, kind)
            raise BadSpec(
                f"the rollouts have {_devices(kind)} and the training {_devices(train)}: with {USE_LORA} their base "
                f"models are compared, which {trainer(document)[0]} does for one kind when it divides the base; ask "
                f"for device_type {other} here, or train with {WHOLE}",
                field=f"tasks.{whose}.resource_config.device_type",
            )


def _devices(kind: str) -> str:
    return f"{kind} devices" if kind else "those of device_type auto, GPUs where any node has one"


def _divides_a_base(document: JobDocument) -> bool:
    if not typed_hyperparameters(document).get(USE_LORA):
        return False
    framework, role = document.training_config.framework, document.tasks[0]
    if framework.type == DEEPSPEED:
        return zero(framework.config).stage == 3  # which alone divides parameters
    return framework.type == FSDP and role.count * role.resource_config.gpu_count > 1


def _device_kind(document: JobDocument, role: JobRole) -> str:
    """What its request says; "" where the nodes decide."""
    own = document_of(document, role)
    if asks_for_gpus(own):
        return "cuda"
    return "cpu" if own.resource_config.device_type == "cpu" else ""


RULES = (programs_are_the_frameworks,)
# These depend on the number of roles and their names.
LATER_RULES = (
    one_role_trains_and_one_completes,
    programs_start_and_end_together,
    programs_have_the_jobs_settings,
    scripts_are_named,
    rollouts_are_of_the_engine,
)
