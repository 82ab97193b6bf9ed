"""The device files of a job's GPUs: of MIG slices, those of its slices alone."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from app.domain.nodes.sandboxes import PROCESS
from app.domain.scheduling.resources import gpu_of
from app.host.gpu_devices import MigInstance, UnknownGpuFiles, gpu_files
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.sandbox.launcher import inherited_environment

_SECONDS = 60.0  # the library waits for GPUs that are being reset
_ROOT = Path(__file__).parents[2]


def device_files(spec: RunSpec, sandbox: str) -> tuple[Path, ...]:
    """``sandbox``: the setting. Raises AttemptFailed where a job would get the files of others' GPUs as well."""
    if spec.device_type != "cuda" or sandbox == PROCESS:  # whose jobs reach all that the worker's user does
        return ()
    gpus = [gpu_of(index) for index in spec.device_indices]
    try:
        return tuple(gpu_files(gpus, _slices(spec, gpus)))
    except UnknownGpuFiles as error:
        raise AttemptFailed("INTERNAL", f"this node can't give the job its GPUs alone: {error}") from error


def _slices(spec: RunSpec, gpus: Sequence[int]) -> list[MigInstance]:
    """The job's MIG slices; none where it has whole GPUs."""
    are_slices = [index != gpu for index, gpu in zip(spec.device_indices, gpus, strict=True)]
    if not any(are_slices):
        return []
    if len(spec.device_uuids) != len(gpus):
        raise UnknownGpuFiles("the UUID of a MIG slice is not known: start the node's worker again")
    instances = mig_instances(spec.device_uuids)
    return [
        MigInstance(gpu=gpu, gpu_instance=first, compute_instance=second)
        for gpu, (first, second) in zip(gpus, instances, strict=True)
    ]


def mig_instances(uuids: Sequence[str]) -> list[tuple[int, int]]:
    """(GPU instance, compute instance) of each slice. A child process asks the driver's library, which would be too
    large for every supervisor. Raises UnknownGpuFiles.
    """
    environment = {**inherited_environment(), "PYTHONPATH": str(_ROOT), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "workers.node.mig_instances", *uuids]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        return [(int(first), int(second)) for first, second in json.loads(done.stdout)]
    except subprocess.CalledProcessError as error:
        why = "".join(error.stderr.strip().splitlines()[-1:])
        raise UnknownGpuFiles(f"the driver doesn't tell which MIG slices these are: {why}") from error
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired) as error:
        raise UnknownGpuFiles(f"the driver doesn't tell which MIG slices these are: {type(error).__name__}") from error
