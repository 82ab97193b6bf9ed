"""Keys of the storage: one function per kind of object, and the check that no key leaves the root."""

import re

from app.domain.errors import InvalidRequest

# Prefix of names that are being written or deleted; they are not listed, and no key may contain them.
TEMPORARY = ".trainyard-tmp-"
# Folders that belong to users, not to jobs: a job reads a file in them by its id, never by its path.
USER_FILES = "user-files"
UPLOAD_PARTS = "upload-parts"
# Folder of a job, in the storage and among its artifacts, for what nodes other than that of rank 0 have written.
NODE_OUTPUTS = "node-outputs"
MAX_KEY_BYTES = 1024
MAX_PART_BYTES = 255
_DIAGNOSIS = re.compile(r"diagnostics/stacks\.\d{6,}\.txt")
_SHARD = re.compile(r"(\d{1,10})-(\d{1,10})", re.ASCII)
_WANDB_FILE = re.compile(r"wandb/offline-run-(job-[0-9a-f-]{36})/run-\1\.wandb")
_EVENT_FILE = re.compile(r"tensorboard/events\.out\.tfevents\.\d{6,}\.\d{6,}")
_NODE_OUTPUT = re.compile(rf"{NODE_OUTPUTS}/attempt-(\d+)-node-\d+", re.ASCII)


class BadKey(InvalidRequest):
    """A key that is empty, absolute, leaves its folder, or is ambiguous."""


def job_key(job_id: str) -> str:
    return checked_key(f"jobs/{job_id}")


def checkpoint_key(job_id: str, checkpoint_id: str) -> str:
    return checked_key(f"jobs/{job_id}/checkpoints/{checkpoint_id}")


def shards_key(job_id: str) -> str:
    return checked_key(f"jobs/{job_id}/shards")


def shard_key(job_id: str, number: int, fence: int) -> str:
    """The key of a shard as the holder of this fencing token stored it: no other attempt writes there."""
    return checked_key(f"jobs/{job_id}/shards/{number}-{fence}")


def shard_of(name: str) -> tuple[int, int] | None:
    """(number, fence) of a name below ``shards_key``; None for other names."""
    found = _SHARD.fullmatch(name)
    return (int(found[1]), int(found[2])) if found is not None else None


def artifacts_key(job_id: str, path: str = "") -> str:
    """The key of a job's result folder, or of a file in it."""
    return checked_key(f"jobs/{job_id}/artifacts/{path}" if path else f"jobs/{job_id}/artifacts")


def artifact_key(job_id: str, path: str) -> str:
    """The key of an artifact: a file of the result, or one recorded while the job ran."""
    return run_file_key(job_id, path) if is_run_file(path) else artifacts_key(job_id, path)


def run_file_key(job_id: str, path: str) -> str:
    """The key of a file recorded while the job runs, outside the result folder, which is replaced as a whole."""
    return checked_key(f"jobs/{job_id}/{path}")


def event_file(attempt: int, number: int) -> str:
    """The artifact path of an attempt's TensorBoard file; TensorBoard reads files in name order."""
    return f"tensorboard/events.out.tfevents.{attempt:06d}.{number:06d}"


def stacks_file(attempt: int) -> str:
    """The artifact path of the stack traces of an attempt's hung ranks."""
    return f"diagnostics/stacks.{attempt:06d}.txt"


def wandb_file(job_id: str) -> str:
    """The artifact path of a job's offline run of W&B; `wandb sync` takes the file's folder."""
    return f"wandb/offline-run-{job_id}/run-{job_id}.wandb"


def is_event_file(path: str) -> bool:
    """Whether the path is an ``event_file``."""
    return _EVENT_FILE.fullmatch(path) is not None


def is_diagnosis(path: str) -> bool:
    """Whether the path is a ``stacks_file``."""
    return _DIAGNOSIS.fullmatch(path) is not None


def is_wandb_file(path: str) -> bool:
    """Whether the path is a ``wandb_file``."""
    return _WANDB_FILE.fullmatch(path) is not None


def node_output(attempt: int, part: int) -> str:
    """The folder, among a job's artifacts, of the output on one of an attempt's nodes other than the first."""
    return f"{NODE_OUTPUTS}/attempt-{attempt}-node-{part}"


def node_outputs_key(job_id: str) -> str:
    """The key of the folder of all of a job's ``node_output``s."""
    return checked_key(f"jobs/{job_id}/{NODE_OUTPUTS}")


def attempt_of_node_output(folder: str) -> int | None:
    """The attempt of a ``node_output``; None for other paths."""
    found = _NODE_OUTPUT.fullmatch(folder)
    return int(found[1]) if found is not None else None


def folder_of_node_output(path: str) -> str:
    """The ``node_output`` that an artifact lies in; empty for others."""
    folder = "/".join(path.split("/", 2)[:2])
    return folder if folder != path and attempt_of_node_output(folder) is not None else ""


def is_run_file(path: str) -> bool:
    """Whether the path is outside the result folder; results must not contain such names."""
    return is_event_file(path) or is_diagnosis(path) or is_wandb_file(path) or folder_of_node_output(path) != ""


def attempts_key(job_id: str) -> str:
    return checked_key(f"jobs/{job_id}/attempts")


def logs_key(job_id: str, attempt: int) -> str:
    return checked_key(f"jobs/{job_id}/attempts/{attempt}/logs")


def user_file_key(project: str, file_id: str) -> str:
    """The key of an uploaded file's content."""
    return checked_key(f"{USER_FILES}/{project}/{file_id}")


def upload_part_key(project: str, upload_id: str, part_id: str) -> str:
    """The key of a part of an upload."""
    return checked_key(f"{UPLOAD_PARTS}/{project}/{upload_id}/{part_id}")


def upload_parts_key(project: str, upload_id: str) -> str:
    """The key of the folder of all parts of an upload."""
    return checked_key(f"{UPLOAD_PARTS}/{project}/{upload_id}")


def checked_key(key: str) -> str:
    """The key itself; raises BadKey unless every part is a plain name below the root."""
    problem = _problem(key)
    if problem:
        raise BadKey(f"{key[:200]!r} is not a valid storage key: {problem}")
    return key


def _problem(key: str) -> str:
    if not key or len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        return f"it must have 1 to {MAX_KEY_BYTES} bytes"
    if any(character < " " or character == "\x7f" or "\ud800" <= character <= "\udfff" for character in key):
        return "it contains a control character"
    for part in key.split("/"):
        if part in ("", ".", ".."):
            return "it must not begin or end with '/', nor contain '//', '.' or '..'"
        if part.startswith(TEMPORARY):
            return f"names that begin with {TEMPORARY} are reserved"
        if len(part.encode()) > MAX_PART_BYTES:
            return f"a name in it is longer than {MAX_PART_BYTES} bytes"
    return ""
