"""The JobSet of a runtime's template: which of its replicated jobs is the trainer, and what the others are. Pure.

OME's controller has one program, that of the container `trainer`; beside it its documents name the pair of MPI, a
launcher that runs mpirun and workers that wait for it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from app.compat.mpirun_texts import is_mpirun
from app.domain.errors import BadSpec

TRAINER = "trainer"
JOBS = "spec.template.spec.replicatedJobs"
_UNTIL_TEXT = 3  # words of `bash -c TEXT`
POD = ("template", "spec", "template", "spec")  # path from a replicated job to its pod spec


class Replicated(NamedTuple):
    """A replicated job with containers; ``main`` is the one that counts."""

    number: int
    main: Mapping[str, Any]


def replicated_of(template: Mapping[str, Any]) -> list[Replicated]:
    """The trainer's first; those without containers are left out."""
    spec = template.get("spec")
    jobs = spec.get("replicatedJobs") if isinstance(spec, Mapping) else None
    found = []
    for number, job in enumerate(jobs if isinstance(jobs, list) else []):
        if named := containers_of(pod_of(job)):
            main = next((each for each in named if each.get("name") == TRAINER), named[0])
            found.append(Replicated(number, main))
    return sorted(found, key=lambda each: (each.main.get("name") != TRAINER, not _runs_mpi(each.main), each.number))


def container_of(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """What the trainer's container has; with MPI the resources of its workers, where a launcher has none."""
    jobs = replicated_of(runtime.get("template") or {})
    if not jobs:
        return {}
    found = dict(jobs[0].main)
    if not found.get("resources") and by_mpi(runtime):
        found["resources"] = next((each.main["resources"] for each in jobs if each.main.get("resources")), None)
    return found


def by_mpi(runtime: Mapping[str, Any]) -> bool:
    return "mpi" in (runtime.get("mlPolicy") or {})


def check_roles(runtime: Mapping[str, Any]) -> None:
    """Raises BadSpec for programs beside the trainer's, which no TrainingJob would start."""
    others = [] if by_mpi(runtime) else replicated_of(runtime.get("template") or {})[1:]
    if others:
        raise BadSpec(
            "a TrainingJob has one program, that of the container trainer: datasets and modelConfig.inputModel need no "
            "initializers, and programs that differ are roles of a native job (tasks); leave this one out",
            field=f"{JOBS}.{others[0].number}",
        )


def pod_of(job: object) -> Mapping[str, Any]:
    """The pod spec of a replicated job of a JobSet; empty where it has another form."""
    found = job
    for key in POD:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def containers_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    containers = pod.get("containers")
    return [each for each in containers if isinstance(each, Mapping)] if isinstance(containers, list) else []


def _runs_mpi(container: Mapping[str, Any]) -> bool:
    words = [*_words(container, "command"), *_words(container, "args")]
    first = [word.split(maxsplit=1)[0] for word in words if word.strip()]
    return any(map(is_mpirun, first[:_UNTIL_TEXT]))


def _words(container: Mapping[str, Any], name: str) -> Iterator[str]:
    words = container.get(name)
    yield from (each for each in words if isinstance(each, str)) if isinstance(words, list) else ()
