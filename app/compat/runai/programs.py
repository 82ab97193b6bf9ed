"""The image, command and args of a Run:ai workload → what the ranks run. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.images import native_image
from app.compat.mounts import ContainerMount, map_paths
from app.compat.runai.security import read_only_of
from app.domain.errors import BadSpec
from app.schemas.spec.field_verdicts import warning

REST, MASTERS = "spec", "masterSpec"
_OF_IMAGES = ("image", "imagePullPolicy")
_MOST_CHARACTERS = 1 << 17
# Standard input that stays open and has nothing to read, as that of a container that no client is attached to.
_OPEN_INPUT = 'input=$(mktemp -u) && mkfifo -m 600 "$input" && exec 0<>"$input" && rm "$input" && exec "$@"'


class CommandContext(NamedTuple):
    """Where commands run. ``directory``: of the image, where they start; None: the job says where."""

    mounts: Sequence[ContainerMount] = ()
    directory: str | None = None
    has_image: bool = False


def image_of(spec: Mapping[str, Any], warnings: list[str], *, why_not: str) -> dict[str, Any]:
    """The field ``image`` of ``resource_config``, if the workload has one, and no reason not to use it. Raises BadSpec.

    ``why_not`` is empty where images are used.
    """
    image = {}
    if spec.get("image") and not why_not:
        image = _native(spec["image"], spec.get("imagePullPolicy"), f"{REST}.image")
    elif spec.get("image"):
        warnings += [warning(f"{REST}.{name}", why_not) for name in _OF_IMAGES if spec.get(name)]
    return image | read_only_of(spec.get("security") or {}, image, warnings)


def image_of_master(
    spec: Mapping[str, Any], master: Mapping[str, Any], warnings: list[str], *, why_not: str
) -> dict[str, Any]:
    """The field ``image`` of the master's pod, where it is not that of the others. Raises BadSpec."""
    asked = {name: master[name] for name in _OF_IMAGES if master.get(name)}
    both = {**{name: spec.get(name) for name in _OF_IMAGES}, **asked}
    if asked and (why_not or not both["image"]):
        warnings += [warning(f"{MASTERS}.{name}", why_not or "there is no image") for name in asked]
    if not asked or why_not or not both["image"]:
        return {}
    own = _native(both["image"], both["imagePullPolicy"], f"{MASTERS}.image")
    own |= read_only_of(spec.get("security") or {}, own, [])
    return {} if own == image_of(spec, [], why_not="") else own


def _native(reference: str, policy: str | None, field: str) -> dict[str, Any]:
    try:
        return native_image(reference, policy or "")
    except BadSpec as error:
        error.field = field
        raise


def program_of(
    asked: Mapping[str, Any], place: CommandContext, part: str = REST, *, copies: int = 0
) -> dict[str, list[str]]:
    """Fields of the framework: the command of a pod, or arguments of the image's own. Raises BadSpec.

    With completions it is a loop over them; ``copies``: of the pods that share them, 0 if one has all.
    """
    times = asked.get("completions", 1)
    if place.has_image and not asked.get("command") and times == 1:
        words = words_of(asked, "args", part)
        return {"custom_arguments": _mapped(words, place)} if words else {}
    words = command_of(asked, part)
    if copies:
        words = ["sh", "-c", _share_of_rounds(shlex.join(words), times, copies)]
    elif times > 1:
        words = ["sh", "-c", _rounds(shlex.join(words), times, min(times, asked.get("parallelism", 1)))]
    words = _mapped(["sh", "-c", _OPEN_INPUT, "sh", *words] if asked.get("stdin") else words, place)
    if place.directory:
        words = ["sh", "-c", 'cd "$0" && exec "$@"', place.directory, *words]
    return {"custom_command": words}


def chosen_by_rank(master: Mapping[str, list[str]], others: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """One program for all ranks that is the master's at the first of them. Raises BadSpec where one is the image's."""
    if master == others:
        return dict(others)
    for part, program in ((MASTERS, master), (REST, others)):
        if "custom_command" not in program:
            raise BadSpec(
                "is required: pods with a part of a device have one program, which can't be the image's for some",
                field=f"{part}.command",
            )
    first, rest = shlex.join(master["custom_command"]), shlex.join(others["custom_command"])
    return {"custom_command": ["sh", "-c", f'if [ "$RANK" = 0 ]; then exec {first}; else exec {rest}; fi']}


def _mapped(words: Sequence[str], place: CommandContext) -> list[str]:
    return [map_paths(word, place.mounts) for word in words]


def command_of(spec: Mapping[str, Any], part: str = REST) -> list[str]:
    """Command and args, split like a shell command. Raises BadSpec for an empty or malformed one."""
    words = [*words_of(spec, "command", part), *words_of(spec, "args", part)]
    if not words:
        raise BadSpec("is required: no image has a default command here", field=f"{part}.command")
    return words


def words_of(spec: Mapping[str, Any], field: str, part: str = REST) -> list[str]:
    """Raises BadSpec."""
    text = spec.get(field) or ""
    if len(text) > _MOST_CHARACTERS:  # shlex needs time by the square of a word's length
        raise BadSpec(
            f"has {len(text)} characters, of at most {_MOST_CHARACTERS}, as much as Linux takes in one argument; put "
            "long scripts into a file",
            field=f"{part}.{field}",
        )
    try:
        return shlex.split(text)
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


def _share_of_rounds(command: str, times: int, copies: int) -> str:
    """A script for one of the copies: it runs the command for every ``copies``-th completion.

    A copy that is started again continues after those that have succeeded.
    """
    step = f"JOB_COMPLETION_INDEX=$((JOB_COMPLETION_INDEX + {copies}))"
    first = 'export JOB_COMPLETION_INDEX="$TRAINYARD_TASK_INDEX"'
    if times <= copies:
        return f"{first}; exec {command}"
    return (
        f'following="$TRAINYARD_OUTPUT_DIR/.completions-$TRAINYARD_TASK_INDEX"; {first}; '
        '[ ! -s "$following" ] || read -r JOB_COMPLETION_INDEX <"$following"; '
        f'while [ "$JOB_COMPLETION_INDEX" -lt {times} ]; do {command} || exit; {step}; '
        'echo "$JOB_COMPLETION_INDEX" >"$following"; done; rm -f "$following"'
    )
