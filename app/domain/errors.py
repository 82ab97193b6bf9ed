"""The errors that domain and services raise, and the causes a job can fail with.

TrainyardError
├── InvalidRequest (400)    BadSpec · NotSupportedYet · UnknownQueue · CannotFit
├── Unauthenticated (401)   CredentialsMissing · CredentialsInvalid
├── Forbidden (403)
├── NotFound (404)          NotYours
├── Conflict (409)          IllegalTransition · StaleJob · StillNeeded · LeaseLost · IdempotencyConflict
├── LimitExceeded (429)     QuotaExceeded
└── Unavailable (503)       TransientStorageError

A message names the thing, the rule and the way out.
"""


class TrainyardError(Exception):
    """Anything this platform refuses or could not do; ``code`` is the machine-readable name."""

    code = "INTERNAL"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidRequest(TrainyardError):
    """The request is well-formed but means something impossible."""

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
    """``key_id`` and ``project`` are for the audit trail: whose key it was before it was revoked or expired."""

    code = "AUTH_TOKEN_INVALID"
    key_id: str = ""
    project: str | None = None


class Forbidden(TrainyardError):
    code = "AUTHZ_PERMISSION_DENIED"


class NotFound(TrainyardError):
    code = "NOT_FOUND"


class NotYours(NotFound):
    """It may well be there, but not for this caller, who must not be able to tell; the audit trail can."""


class Conflict(TrainyardError):
    code = "CONFLICT"


class IllegalTransition(Conflict):
    code = "INVALID_STATE"


class StaleJob(Conflict):
    """Somebody else changed the job first; nothing was written."""

    code = "INVALID_STATE"


class StillNeeded(Conflict):
    """Something that has not ended reads what should be deleted."""

    code = "STILL_NEEDED"


class LeaseLost(Conflict):
    """The caller's fencing token is no longer the job's; it must stop at once and write nothing more."""

    code = "LEASE_LOST"


class IdempotencyConflict(Conflict):
    code = "IDEMPOTENCY_CONFLICT"


class LimitExceeded(TrainyardError):
    code = "RATE_LIMITED"

    def __init__(self, message: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class QuotaExceeded(LimitExceeded):
    code = "QUOTA_EXCEEDED"


class Unavailable(TrainyardError):
    """A part that we depend on does not answer; the only class that callers may retry."""

    code = "UNAVAILABLE"


class TransientStorageError(Unavailable):
    pass


# Why a job failed, as ``error_type`` says it, and what that means to a person.
ERROR_TYPES = {
    "INVALID_CONFIG": "the job document asks for something the trainer cannot do",
    "MODEL_NOT_FOUND": "the base model could not be found or read",
    "DATA_NOT_FOUND": "a data source could not be found or read",
    "DATA_INVALID": "a data source was read but its content cannot be used; file, row and field are named",
    "SCRIPT_ERROR": "the custom script ended with an error of its own",
    "TRAINER_ERROR": "a built-in trainer ended with an error",
    "OUT_OF_MEMORY": "a rank ran out of device or host memory",
    "NON_FINITE_LOSS": "the loss became NaN or infinite",
    "RANK_KILLED": "a rank was killed from outside",
    "SUPERVISOR_LOST": "the supervisor of the attempt died",
    "NODE_LOST": "the node stopped answering",
    "STORAGE_ERROR": "checkpoints or artefacts could not be written or read",
    "EXPORT_FAILED": "training finished but the model could not be exported",
    "NO_RESULT": "the trainer ended without a result",
    "MAX_RUNTIME_EXCEEDED": "the job ran longer than max_runtime_seconds",
    "INTERNAL": "a fault of the platform itself",
}
