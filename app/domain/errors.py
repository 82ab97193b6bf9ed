"""The errors that domain and services raise, and the causes a job can fail with.

TrainyardError
├── InvalidRequest (400)    BadSpec · NotSupportedYet · UnknownQueue · CannotFit
├── Unauthenticated (401)   CredentialsMissing · CredentialsInvalid
├── Forbidden (403)
├── StorageQuotaExceeded (403)
├── NotFound (404)          NotYours · NamedModelNotFound · ModelNotServed
├── Conflict (409)          IllegalTransition · StaleJob · StillNeeded · LeaseLost · IdempotencyConflict
├── TooLarge (413)
├── LimitExceeded (429)     QuotaExceeded
└── Unavailable (503)       TransientStorageError · SandboxNotOpen

A message names the thing, the rule and the way out.
"""

from typing import Literal, NamedTuple, TypeGuard


class TrainyardError(Exception):
    """Base of all expected errors; ``code`` is the machine-readable name."""

    code = "INTERNAL"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidRequest(TrainyardError):
    """The request is well-formed but semantically invalid."""

    code = "INVALID_ARGUMENT"


class BadSpec(InvalidRequest):
    """A job document contradicts itself or the rules."""


class NotSupportedYet(InvalidRequest):
    """A documented field or value that this version does not act on."""

    code = "NOT_SUPPORTED"


class UnknownQueue(InvalidRequest):
    code = "UNKNOWN_QUEUE"


class CannotFit(InvalidRequest):
    """No registered node could ever hold the job."""

    code = "RESOURCES_UNAVAILABLE"


class Unauthenticated(TrainyardError):
    code = "AUTH_TOKEN_INVALID"


class CredentialsMissing(Unauthenticated):
    code = "AUTH_TOKEN_MISSING"


class CredentialsInvalid(Unauthenticated):
    """``key_id`` and ``project`` identify a revoked or expired key in the audit trail."""

    code = "AUTH_TOKEN_INVALID"
    key_id: str = ""
    project: str | None = None


class Forbidden(TrainyardError):
    code = "AUTHZ_PERMISSION_DENIED"


class StorageQuotaExceeded(TrainyardError):
    """The project stores as much as it may; waiting does not help."""

    code = "STORAGE_QUOTA_EXCEEDED"


class NotFound(TrainyardError):
    code = "NOT_FOUND"


class NotYours(NotFound):
    """It may exist but is not visible to the caller, who must not be able to tell; the audit trail records it."""


class NamedModelNotFound(NotFound):
    """No model of this name may be used; the message lists those that may."""

    code = "MODEL_NOT_FOUND"


class ModelNotServed(NotFound):
    """No service has this model; the message has the command that makes one."""

    code = "MODEL_NOT_SERVED"


class Conflict(TrainyardError):
    code = "CONFLICT"


class IllegalTransition(Conflict):
    code = "INVALID_STATE"


class StaleJob(Conflict):
    """The job was changed concurrently; nothing was written."""

    code = "INVALID_STATE"


class StillNeeded(Conflict):
    """An unfinished job reads what should be deleted."""

    code = "STILL_NEEDED"


class LeaseLost(Conflict):
    """The caller's fencing token is stale; it must stop at once and write nothing more."""

    code = "LEASE_LOST"


class IdempotencyConflict(Conflict):
    code = "IDEMPOTENCY_CONFLICT"


class TooLarge(TrainyardError):
    """A file or a part of one is larger than its limit."""

    code = "BODY_TOO_LARGE"


class LimitExceeded(TrainyardError):
    code = "RATE_LIMITED"

    def __init__(self, message: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class QuotaExceeded(LimitExceeded):
    code = "QUOTA_EXCEEDED"


class Unavailable(TrainyardError):
    """A dependency does not answer; the only class of errors that callers may retry."""

    code = "UNAVAILABLE"


class TransientStorageError(Unavailable):
    pass


class SandboxNotOpen(Unavailable):
    """A running job can't be reached yet; the message is for the person who asks, unlike those of dependencies."""


class ErrorType(NamedTuple):
    """Meaning of an ``error_type``, and what the user can do.

    ``is_appended``: whether the advice is appended to ``error_message``; messages of other types contain their own.
    """

    meaning: str
    what_to_do: str
    is_appended: bool = True


# All causes, so that the type checker finds code that misses one.
Cause = Literal[
    "INVALID_CONFIG",
    "MODEL_NOT_FOUND",
    "DATA_NOT_FOUND",
    "DATA_INVALID",
    "HUB_UNREACHABLE",
    "PACKAGES_FAILED",
    "SCRIPT_ERROR",
    "TRAINER_ERROR",
    "OUT_OF_MEMORY",
    "HOST_OUT_OF_MEMORY",
    "NON_FINITE_LOSS",
    "DIVERGED",
    "HANG",
    "DEVICE_FAULT",
    "RANK_KILLED",
    "SUPERVISOR_LOST",
    "NODE_LOST",
    "POISON",
    "STORAGE_ERROR",
    "NETWORK_ERROR",
    "DISK_FULL",
    "EXPORT_FAILED",
    "NO_RESULT",
    "MAX_RUNTIME_EXCEEDED",
    "DISK_LIMIT_EXCEEDED",
    "INTERNAL",
    "OUTCOME_ERROR",
]

ERROR_TYPES: dict[Cause, ErrorType] = {
    "INVALID_CONFIG": ErrorType(
        "the job document asks for something the trainer cannot do",
        "Change what the message names, and submit again.",
        is_appended=False,
    ),
    "MODEL_NOT_FOUND": ErrorType(
        "the base model could not be found or read",
        "Check base_model: its name or path, its revision, and the token in training_config.environment.",
        is_appended=False,
    ),
    "DATA_NOT_FOUND": ErrorType(
        "a data source could not be found or read",
        "Check the path of the source that the message names, and that it may be read.",
        is_appended=False,
    ),
    "DATA_INVALID": ErrorType(
        "a data source was read but its content cannot be used; file, row and field are named",
        "Correct that row, or leave it out by data_config; POST /v1/data/validate checks it without a job.",
        is_appended=False,
    ),
    "HUB_UNREACHABLE": ErrorType(
        "the hub with the model or data, or the repository with the code, does not answer, or the connection to it "
        "broke",
        "Check that this installation reaches the host that the message names (a hub: HF_ENDPOINT, its proxy), then "
        "retry the job; or name a directory of the cluster that holds the model, data or code.",
    ),
    "PACKAGES_FAILED": ErrorType(
        "the packages of training_config.packages could not be installed",
        "Correct the requirement that the message names; uv's last lines say why it can't be installed.",
        is_appended=False,
    ),
    "SCRIPT_ERROR": ErrorType(
        "the custom script ended with an error of its own",
        "Read the traceback and the log, correct the script, and retry the job.",
        is_appended=False,
    ),
    "TRAINER_ERROR": ErrorType(
        "a built-in trainer ended with an error",
        "Read the traceback; most often a model that does not suit the type of training, or versions that disagree.",
        is_appended=False,
    ),
    "OUT_OF_MEMORY": ErrorType(
        "a rank ran out of device memory",
        "Take devices with more memory (gpu_memory_min), a smaller batch_size or max_seq_length, or "
        "gradient_checkpointing.",
    ),
    "HOST_OUT_OF_MEMORY": ErrorType(
        "a rank ended because the machine, or the share of it that the job has, ran out of memory",
        "Ask for more (resource_config.ram_min_mb or limits), or take a smaller batch_size or data_config.streaming.",
    ),
    "NON_FINITE_LOSS": ErrorType(
        "the loss became NaN or infinite",
        "Lower the learning rate, train in bf16 instead of fp16, or inspect the data of that step; "
        "on_divergence: rollback continues automatically.",
    ),
    "DIVERGED": ErrorType(
        "the loss diverged: it rose far above its recent values",
        "Lower the learning rate, warm up longer, or clip gradients; on_divergence: rollback continues automatically.",
    ),
    "HANG": ErrorType(
        "the ranks made no step for far longer than their own steps take",
        "Read the stacks of all ranks among the job's artifacts: they show what each waits for.",
    ),
    "DEVICE_FAULT": ErrorType(
        "a GPU of the node broke: it found errors in its memory that it could not correct",
        "Look at the GPU on that node (nvidia-smi -q -d ECC,ROW_REMAPPER), reset or replace it, then retry the job.",
    ),
    "RANK_KILLED": ErrorType(
        "a rank was killed from outside",
        "Look on the node for who killed it (its kernel log, other people's jobs), then retry the job.",
    ),
    "SUPERVISOR_LOST": ErrorType("the supervisor of the attempt died", "Look at the node's log, then retry the job."),
    "NODE_LOST": ErrorType("the node stopped answering", "Look at the machine and its network, then retry the job."),
    "POISON": ErrorType(
        "the job took its node or its supervisor down several times running",
        "Do not retry it as it is: look on those nodes for what it exhausts (memory, disk, processes), and limit that.",
    ),
    "STORAGE_ERROR": ErrorType(
        "checkpoints or artefacts could not be written or read",
        "Check that the storage is there and may be written to, then retry the job.",
    ),
    "NETWORK_ERROR": ErrorType(
        "something on the network could not be reached, or the connection broke",
        "Check that the node reaches what the message names, then retry the job.",
    ),
    "DISK_FULL": ErrorType(
        "a disk that the job writes to is full", "Make room on it, or keep fewer checkpoints (save_total_limit)."
    ),
    "EXPORT_FAILED": ErrorType(
        "the work finished, but its model or an output could not be stored or published",
        "Correct what the message names, and retry the job from its last checkpoint.",
        is_appended=False,
    ),
    "NO_RESULT": ErrorType(
        "the trainer ended without a result",
        "Read the log: it ended as if all were done, but said nothing of a result.",
    ),
    "MAX_RUNTIME_EXCEEDED": ErrorType(
        "the job ran longer than max_runtime_seconds",
        "Retry it with a higher max_runtime_seconds: it resumes from its last checkpoint.",
    ),
    "DISK_LIMIT_EXCEEDED": ErrorType(
        "the job kept more files on its node than its limit allows",
        "Raise resource_config.limits.storage_mb, keep fewer checkpoints, or delete what is not needed.",
    ),
    "INTERNAL": ErrorType(
        "the platform itself could not prepare or start the job on that node",
        "Tell the operator of this installation; the platform's log has more.",
    ),
    "OUTCOME_ERROR": ErrorType(
        "the platform itself failed while it wrote how an attempt had ended; no node is blamed for it",
        "Tell the operator of this installation: the traceback is in the platform's log, and it is a bug to report.",
    ),
}


def is_cause(text: str) -> TypeGuard[Cause]:
    """Whether it is one of ``ERROR_TYPES``; the database may contain causes of a newer version."""
    return text in ERROR_TYPES


def what_to_do(error_type: str) -> str:
    """The advice to append to an ``error_message``; "" where messages of the type contain their own."""
    known = ERROR_TYPES[error_type] if is_cause(error_type) else None
    return known.what_to_do if known is not None and known.is_appended else ""
