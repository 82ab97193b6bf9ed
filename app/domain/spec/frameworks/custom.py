"""Options of ``training_config.framework`` for custom scripts, except metric patterns."""

import posixpath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from app.domain.spec.locations.code import is_bundle, path_in_bundle

if TYPE_CHECKING:  # its sections take long to import, and commands need names from here alone
    from app.domain.spec.model import JobDocument

LAUNCHER = "launcher"  # what starts the ranks: the platform, one per device, or one of LAUNCHERS
MPI = "mpi"  # also a capability of nodes
LAUNCHERS = (MPI,)

SCRIPT, CODE_DIR, RETRY = "custom_script_path", "custom_code_dir", "custom_retry_on_error"
CODE_CREDENTIALS = "custom_code_credentials"
RETRY_HANGS = "retry_on_hang"  # of training_config, for every framework
CUSTOM_FIELDS = (SCRIPT, "custom_arguments", "custom_command", CODE_DIR, CODE_CREDENTIALS, RETRY)  # of the framework

CHECKPOINT_GLOB = "checkpoint_glob"
METRIC = "metric."  # what names of patterns for printed metrics begin with
MAX_GLOB = 500

PROCESSES = "num_proc_per_node"  # of training_config.framework.distributed.config
MAX_PROCESSES = 1024
ONE_PER_DEVICE = ("auto", "gpu")
ONE_PER_CORE = "cpu"


class InvalidGlob(ValueError):
    """A pattern that does not name files below the script's directory."""


def launcher(document: "JobDocument") -> str:
    """The job's launcher; empty for the platform's own."""
    return _option(document, LAUNCHER)


def retries_on_error(document: "JobDocument") -> bool:
    """Whether a script that ends with an error is retried."""
    return document.training_config.framework.custom_retry_on_error


def retries_on_hang(document: "JobDocument") -> bool:
    """Whether a job whose ranks hang is retried; the default is yes."""
    return document.training_config.retry_on_hang


def checkpoint_glob(document: "JobDocument") -> str:
    """Pattern of the script's checkpoints in its working directory, files or directories; empty for none."""
    return _option(document, CHECKPOINT_GLOB)


def check_glob(pattern: str) -> None:
    """Raises InvalidGlob."""
    path = PurePosixPath(pattern)
    if len(pattern) > MAX_GLOB:
        raise InvalidGlob(f"the pattern has {len(pattern)} characters and may have {MAX_GLOB}")
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise InvalidGlob("name files below the directory that the script starts in, as in checkpoints/*.pt")
    if any("**" in part and part != "**" for part in path.parts) or path.parts[-1] == "**":
        raise InvalidGlob("** stands for directories between two /, as in **/last.ckpt")


def below(path: str, directory: str) -> str:
    """The path relative to the directory, by text only; empty if it is not below it."""
    if is_bundle(directory):
        return path_in_bundle(path)
    inner, outer = (posixpath.normpath(each.removeprefix("file://")) for each in (path, directory))
    return inner.removeprefix(f"{outer}/") if inner.startswith(f"{outer}/") else ""


def way_into(directory: str) -> str:
    """The way out for a script that is not below the code directory."""
    if is_bundle(directory):
        return "name it by its path in the code, such as train.py or scripts/train.py"
    return "move the script there, or name another directory"


class InvalidProcesses(ValueError):
    """An invalid number of processes."""


def processes_per_node(document: "JobDocument", *, devices: int) -> int:
    """Number of ranks on a node with ``devices`` devices. Raises InvalidProcesses."""
    distributed = document.training_config.framework.distributed
    value = distributed.config.get(PROCESSES, ONE_PER_DEVICE[0])
    if value in ONE_PER_DEVICE:
        return devices
    if value == ONE_PER_CORE:
        cores = document.resource_config.cpu_cores
        if not cores:
            raise InvalidProcesses("one process for each core needs resource_config.cpu_cores, the number of cores")
        return cores
    number = int(value) if isinstance(value, int | str) and str(value).isdecimal() and len(str(value)) < 5 else 0
    if isinstance(value, bool) or not 1 <= number <= MAX_PROCESSES:
        raise InvalidProcesses(
            f"use auto or gpu (one process for each device), cpu (one for each of cpu_cores), or a number from 1 to "
            f"{MAX_PROCESSES}"
        )
    return number


def _option(document: "JobDocument", name: str) -> str:
    framework = document.training_config.framework
    return str(framework.config.get(name) or "") if framework.type == "CUSTOM" else ""
