"""Which rank of a job a session is beside: given among all ranks of the job, or by role and instance."""

from collections.abc import Iterable

from app.domain.errors import InvalidRequest
from app.domain.spec.frameworks.custom import processes_per_node
from app.domain.spec.model import JobDocument
from app.domain.spec.roles import numbered
from app.models import Job
from app.services.attempts.placed_instances import ranks_by_instance, ranks_of_role


def rank_of(job: Job, *, role: str | None, index: int, rank: int) -> int:
    """The rank among all of the job. With a role, ``rank`` is one within its instance ``index``.

    Raises InvalidRequest for a role, an instance or a rank that the job doesn't have.
    """
    if role is None:
        _require_one_of(job, rank)
        return rank
    ranks_of_role(job.document, role)
    instances = [ranks for (name, _), ranks in ranks_by_instance(job.document).items() if name == role]
    if index >= len(instances):
        has = numbered(len(instances), "instance")
        raise InvalidRequest(f"index is {index}, and the role {role} of job {job.id} has {has}", field="index")
    ranks = instances[index]
    if rank >= len(ranks):
        has = numbered(len(ranks), "rank")
        why = f"rank is {rank}, and each instance of the role {role} has {has}; with a role, rank is one within it"
        raise InvalidRequest(why, field="rank")
    return ranks[rank]


def instances_at(document: JobDocument, ranks: Iterable[int]) -> dict[int, tuple[str, int]]:
    """Rank → the role and the index of the instance that has it; empty for a job without roles."""
    instances = ranks_by_instance(document)
    return {rank: instance for rank in ranks for instance, own in instances.items() if rank in own}


def count_ranks(document: JobDocument) -> int:
    """Of all of the job."""
    resources = document.resource_config
    of_roles = sum(map(len, ranks_by_instance(document).values()))
    return of_roles or processes_per_node(document, devices=resources.gpu_count) * resources.node_count


def _require_one_of(job: Job, rank: int) -> None:
    ranks = count_ranks(job.document)
    if rank >= ranks:
        raise InvalidRequest(f"rank is {rank}, and job {job.id} has {numbered(ranks, 'rank')}", field="rank")
