"""Code, parameters and environment of ModelArts' jobs → the program of a native job document. Pure."""

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from app.compat.modelarts.channels import Channels, obs_uri
from app.compat.mounts import OPTIONAL, ContainerMount, map_paths
from app.domain.errors import BadSpec
from app.domain.spec.frameworks.custom import below
from app.domain.spec.locations.code import is_bundle
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import CODE
from app.domain.spec.rules.training import is_reserved
from app.schemas.spec.field_verdicts import warning

CUSTOM = "CUSTOM"  # the framework of jobs with their own code
# Environment variables of ModelArts.
ENVIRONMENT = {
    "MA_JOB_DIR": "$(TRAINYARD_RUN_DIR)/code",
    "MA_NUM_HOSTS": "$(NNODES)",
    "VC_TASK_INDEX": "$(NODE_RANK)",
    "VC_WORKER_NUM": "$(NNODES)",
}
CODE_PATH = ENVIRONMENT["MA_JOB_DIR"]
_HOME = "/home/"
_USUAL_CODE = "/home/ma-user/modelarts/user-job-dir"  # parent of the code unless local_code_dir is set


def custom(
    algorithm: Mapping[str, Any], channels: Channels, mounts: Sequence[ContainerMount], warnings: list[str]
) -> dict[str, Any]:
    """`training_config` of a job with its own code. Raises BadSpec."""
    given = [(each["name"], map_paths(each["value"], mounts)) for each in algorithm.get("parameters") or []]
    named = [name for name, _ in given]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise BadSpec(f"{twice} is set twice", field="algorithm.parameters")
    arguments = [f"--{name}={value}" for name, value in given] + channels.arguments
    framework: dict[str, Any] = {"type": CUSTOM}
    if code := algorithm.get("code_dir"):
        framework["custom_code_dir"] = place_of(code)
    start = start_of(algorithm, mounts, warnings)
    if command := algorithm.get("command"):
        words = " ".join([map_paths(command, mounts), *map(shlex.quote, arguments)])
        framework["custom_command"] = ["bash", "-c", f"cd {shlex.quote(start)} || exit\n{words}" if start else words]
    else:
        framework |= script_of(algorithm, arguments, start)
    variables = {name: map_paths(value, mounts) for name, value in (algorithm.get("environments") or {}).items()}
    environment = {**ENVIRONMENT, **channels.variables, **variables}
    return {
        "training_type": "SFT",
        "base_model": {"model_id": NO_MODEL},
        "framework": framework,
        "environment": {name: value for name, value in environment.items() if not is_reserved(name)},
    }


def code_mounts(algorithm: Mapping[str, Any]) -> list[ContainerMount]:
    """The mounts of the code directory. Raises BadSpec."""
    code, local = algorithm.get("code_dir") or "", (algorithm.get("local_code_dir") or "").rstrip("/")
    if local and not posixpath.normpath(local).startswith(_HOME):
        raise BadSpec("must be a directory below /home", field="algorithm.local_code_dir")
    if not code:
        return []
    place = code.removeprefix("file://").rstrip("/")
    paths = [local or f"{_USUAL_CODE}/{posixpath.basename(place)}", *([place] if code.startswith("file://") else [])]
    return [ContainerMount(path, "", CODE_PATH, {"type": CODE, **OPTIONAL}) for path in paths if path]


def start_of(algorithm: Mapping[str, Any], mounts: Sequence[ContainerMount], warnings: list[str]) -> str:
    """The directory of `working_dir`; empty for the default. Raises BadSpec."""
    directory = (algorithm.get("working_dir") or "").rstrip("/")
    if not directory:
        return ""
    if not directory.startswith("/"):
        raise BadSpec("must be an absolute path", field="algorithm.working_dir")
    found = map_paths(posixpath.normpath(directory), mounts)
    if found.startswith("/"):
        warnings.append(warning("algorithm.working_dir", "is not in the code, an input or an output of the job"))
        return ""
    return found


def script_of(algorithm: Mapping[str, Any], arguments: Sequence[str], start: str) -> dict[str, Any]:
    code, script = algorithm.get("code_dir"), algorithm.get("boot_file")
    if not code:
        raise BadSpec("is required, with boot_file, without id and command", field="algorithm.code_dir")
    if not script:
        raise BadSpec("is required: the script in code_dir", field="algorithm.boot_file")
    if not start:
        return {"custom_script_path": boot_file_of(script, code)} | (
            {"custom_arguments": [*arguments]} if arguments else {}
        )
    inner = below(boot_file_of(script, code), place_of(code))
    if not inner:
        raise BadSpec("must be in code_dir", field="algorithm.boot_file")
    return {"custom_command": ["bash", "-c", 'cd "$0" && exec python "$@"', start, f"{CODE_PATH}/{inner}", *arguments]}


def boot_file_of(script: str, code: str) -> str:
    """The script's place, or its path in code that is uploaded or a commit of a repository."""
    return script if is_bundle(code) else place_of(script)


def place_of(path: str) -> str:
    """A path without a scheme is in OBS; code that is uploaded, or a commit, is named as it is."""
    if is_bundle(path):
        return path
    return path.removeprefix("file://") if path.startswith("file://") else obs_uri(path)
