"""The program of a job's ranks on this node, the variables that the job gives it, and names of its GPUs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.domain.scheduling.resources import Device
from app.domain.spec.frameworks.custom import below
from app.domain.spec.locations.code import is_bundle
from app.domain.spec.model import Framework
from app.host.gpu_devices import own_gpus
from workers.attempt_failed import AttemptFailed
from workers.fetching.uris import scheme_of
from workers.prepare.inputs.input_library import JobInputs, Library
from workers.prepare.inputs.resolve_inputs import find_code, find_script
from workers.run_dir.layout import RunDirectory

ENVIRONMENT = "training_config.environment."


def find_program(library: Library, framework: Framework) -> tuple[Path | None, Path | None]:
    """A CUSTOM job's script and code directory, if it has them. Raises AttemptFailed."""
    script, code = framework.custom_script_path, framework.custom_code_dir
    if not code:
        found = find_script(library, script) if script else None
        return found, found.parent if found is not None else None
    directory = find_code(library, code)
    if not script:
        return None, directory
    is_here = scheme_of(code) == "file" and not is_bundle(code)
    path = find_script(library, script) if is_here else directory / below(script, code)
    if not path.is_file() or not path.resolve().is_relative_to(directory.resolve()):
        raise AttemptFailed("INVALID_CONFIG", f"custom script {script} does not lie below {code} on this node")
    return path, directory


def program(framework: Framework, run: RunDirectory, sources: JobInputs) -> dict[str, Any]:
    """What the ranks of a CUSTOM job run, and their working directory."""
    code, command = run.path / "code", framework.custom_command
    script = str(code / sources.script.relative_to(sources.code)) if sources.script and sources.code else ""
    starts_in_code = bool(command) and sources.code is not None
    return {
        "script": script,
        "arguments": framework.custom_arguments,
        "command": command,
        "directory": str(code if starts_in_code else run.path / "work"),
    }


def device_uuids(devices: Sequence[Device]) -> tuple[str, ...]:
    """UUIDs for CUDA; empty when unknown. Those of MIG slices come from NVML, which the node worker has queried."""
    if all(device.uuid for device in devices):
        return tuple(device.uuid for device in devices)
    return tuple(gpu.uuid for gpu in own_gpus([device.index for device in devices]))


def job_environment(environment: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that the job requested, secret ones included."""
    opened = {key.removeprefix(ENVIRONMENT): value for key, value in secrets.items() if key.startswith(ENVIRONMENT)}
    return {**environment, **opened}
