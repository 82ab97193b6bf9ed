"""The image, command and args of a Run:ai workload → what the ranks run. Pure."""

import shlex
from collections.abc import Mapping
from typing import Any

from app.compat.images import NO_REGISTRIES, native_image
from app.compat.runai.security import read_only_of
from app.domain.errors import BadSpec
from app.schemas.spec.field_verdicts import warning

REST = "spec"
# Standard input that stays open and has nothing to read, as that of a container that no client is attached to.
_OPEN_INPUT = 'input=$(mktemp -u) && mkfifo -m 600 "$input" && exec 0<>"$input" && rm "$input" && exec "$@"'


def image_of(spec: Mapping[str, Any], warnings: list[str], *, uses_images: bool) -> dict[str, Any]:
    """The field ``image`` of ``resource_config``, if the workload has an image that is used here. Raises BadSpec."""
    image = {}
    if spec.get("image") and uses_images:
        image = native_image(spec["image"], spec.get("imagePullPolicy") or "")
    elif spec.get("image"):
        named = [name for name in ("image", "imagePullPolicy") if spec.get(name)]
        warnings += [warning(f"{REST}.{name}", NO_REGISTRIES) for name in named]
    return image | read_only_of(spec.get("security") or {}, image, warnings)


def program_of(spec: Mapping[str, Any], master: Mapping[str, Any], *, has_image: bool) -> dict[str, list[str]]:
    """Fields of the framework: the command of all ranks, or arguments of the image's own. Raises BadSpec.

    With completions it is a loop, with a command of the master a choice by RANK.
    """
    of_one = not spec.get("command") and spec.get("completions", 1) == 1
    if has_image and of_one and not (master.get("command") or master.get("args")):
        words = words_of(spec, "args")
        return {"custom_arguments": words} if words else {}
    words = _command(spec, master)
    return {"custom_command": ["sh", "-c", _OPEN_INPUT, "sh", *words] if spec.get("stdin") else words}


def in_directory(directory: str, framework: Mapping[str, Any], warnings: list[str]) -> dict[str, list[str]]:
    """The command, started in a directory of the image."""
    if "custom_command" not in framework:
        warnings.append(warning(f"{REST}.workingDir", "without a command the image decides; set command"))
        return {}
    return {"custom_command": ["sh", "-c", 'cd "$0" && exec "$@"', directory, *framework["custom_command"]]}


def _command(spec: Mapping[str, Any], master: Mapping[str, Any]) -> list[str]:
    words = command_of(spec)
    if (times := spec.get("completions", 1)) > 1:
        return ["sh", "-c", _rounds(shlex.join(words), times, min(times, spec.get("parallelism", 1)))]
    of_master = command_of(master, "masterSpec") if master.get("command") or master.get("args") else words
    if of_master == words:
        return words
    first, others = shlex.join(of_master), shlex.join(words)
    return ["sh", "-c", f'if [ "$RANK" = 0 ]; then exec {first}; else exec {others}; fi']


def command_of(spec: Mapping[str, Any], part: str = REST) -> list[str]:
    """Command and args, split like a shell command. Raises BadSpec for an empty or malformed one."""
    words = [*words_of(spec, "command", part), *words_of(spec, "args", part)]
    if not words:
        raise BadSpec("is required: no image has a default command here", field=f"{part}.command")
    return words


def words_of(spec: Mapping[str, Any], field: str, part: str = REST) -> list[str]:
    """Raises BadSpec."""
    try:
        return shlex.split(spec.get(field) or "")
    except ValueError as error:
        raise BadSpec(f"can't be split like a shell command: {error}", field=f"{part}.{field}") from error


def _rounds(command: str, times: int, together: int) -> str:
    """A script that runs the command ``times`` times, ``together`` at a time. The variable is that of Kubernetes."""
    if together == 1:
        return (
            f'export JOB_COMPLETION_INDEX=0; while [ "$JOB_COMPLETION_INDEX" -lt {times} ]; do {command} || exit; '
            "JOB_COMPLETION_INDEX=$((JOB_COMPLETION_INDEX + 1)); done"
        )
    return (
        f'index=0; while [ "$index" -lt {times} ]; do running=; '
        f'for _ in $(seq {together}); do if [ "$index" -lt {times} ]; then '
        f'(export JOB_COMPLETION_INDEX="$index"; exec {command}) & '
        'running="$running $!"; index=$((index + 1)); fi; done; '
        'for each in $running; do wait "$each" || { code=$?; kill $running 2>/dev/null; exit "$code"; }; done; done'
    )
