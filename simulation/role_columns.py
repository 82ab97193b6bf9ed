"""The columns of a trace that describe jobs with roles: `roles` and `role_failures`.

``roles``: words NAME=COUNTxGPUS, such as ``trainer=1x4 rollout=3x1:task``. The first role trains, with GPUs of one
type; ``:task``: an instance that fails is started again alone. ``role_failures``: words NAME@SECONDS: an instance of
the role fails once, after so many seconds of the job's work.
"""

import re
from dataclasses import replace

from app.domain.scheduling.resources import Request, RoleRequest
from app.domain.spec.roles import ROLE_NAME
from app.domain.spec.rules.roles import MOST_INSTANCES
from simulation.csv_rows import CsvRow
from simulation.trace import InstanceFailure, TraceJob

ROLES, FAILURES = "roles", "role_failures"
_TASK = ":task"
_ROLE = re.compile(rf"({ROLE_NAME.pattern})=([1-9]\d{{0,2}})x([1-9]\d{{0,2}})(:task)?", re.ASCII)
_FAILURE = re.compile(rf"({ROLE_NAME.pattern})@(\d{{1,9}}(?:\.\d{{1,3}})?)", re.ASCII)
_RULE = "words NAME=COUNTxGPUS, such as trainer=1x4 rollout=3x1:task, each name once"


def with_roles(row: CsvRow, job: TraceJob) -> TraceJob:
    """The job with the roles of its row, each of whose instances has the row's other amounts. Raises BadTrace."""
    if not row.has(ROLES):
        if row.has(FAILURES):
            raise row.bad(FAILURES, f"empty without {ROLES}")
        return job
    for column in ("gpus", "nodes", "gpu_fraction"):
        if row.has(column):
            raise row.bad(column, f"empty with {ROLES}, which says it for each role")
    found = [_ROLE.fullmatch(word) for word in row.text(ROLES).split()]
    named = {match[1]: match for match in found if match is not None}
    if len(named) < len(found):
        raise row.bad(ROLES, _RULE)
    each = job.request
    roles = tuple(
        RoleRequest(role=name, count=int(match[2]), each=replace(each, device_count=int(match[3])), alike=place == 0)
        for place, (name, match) in enumerate(named.items())
    )
    instances = sum(role.count for role in roles)
    if instances > MOST_INSTANCES:
        raise row.bad(ROLES, f"at most {MOST_INSTANCES} instances together")
    request = replace(
        each,
        roles=roles,
        device_count=sum(role.count * role.each.device_count for role in roles),
        cpu_cores=instances * each.cpu_cores,
        ram_min_mb=instances * each.ram_min_mb,
        gpu_types=(),
    )
    alone = frozenset(name for name, match in named.items() if match[4])
    return replace(job, request=request, restart_alone=alone, failures=_failures(row, job, request))


def roles_text(request: Request, alone: frozenset[str]) -> str:
    """The column of a request with roles."""
    return " ".join(
        f"{role.role}={role.count}x{role.each.device_count}{_TASK if role.role in alone else ''}"
        for role in request.roles
    )


def failures_text(job: TraceJob) -> str:
    """The column of a job."""
    return " ".join(f"{each.role}@{_seconds(each.after_seconds)}" for each in job.failures)


def _seconds(value: float) -> str:
    """As `_FAILURE` has it: without an exponent."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _failures(row: CsvRow, job: TraceJob, request: Request) -> tuple[InstanceFailure, ...]:
    known = {role.role for role in request.roles}
    found = [_FAILURE.fullmatch(word) for word in row.text(FAILURES).split()]
    made = [InstanceFailure(role=match[1], after_seconds=float(match[2])) for match in found if match is not None]
    if len(made) < len(found) or not {each.role for each in made} <= known:
        raise row.bad(FAILURES, f"words NAME@SECONDS, such as rollout@600, with names of {ROLES}")
    if any(each.after_seconds >= job.seconds for each in made):
        raise row.bad(FAILURES, f"before the end of the work, {job.seconds:g} seconds")
    return tuple(sorted(made, key=lambda each: each.after_seconds))
