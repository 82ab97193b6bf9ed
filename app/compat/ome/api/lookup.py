"""Jobs and sweeps by the names of TrainingJobs and of trials."""

import re
from collections.abc import Sequence

from app.compat.ome.from_native import is_deleted, name_of
from app.compat.ome.to_native import DIALECT
from app.domain.errors import NotFound
from app.domain.ids import JOB_ID
from app.http.context import caller
from app.services.jobs import lookup
from app.services.jobs.details import JobDetails, details
from app.services.rows import Session, Sweep
from app.services.sweeps import foreign
from app.services.sweeps import lookup as sweep_lookup

_TRIAL = re.compile(r"(.+)-trial-([0-9]{1,9})")


def alias_of(namespace: str, name: str) -> str:
    return f"{DIALECT}:{namespace}:{name}"


def find(session: Session, namespace: str, name: str) -> JobDetails:
    """By the name of the TrainingJob, or by the job's id where it has none.

    Raises NotFound for a job that does not exist, is deleted, or that the caller does not see.
    """
    missing = _missing(name)
    try:
        job = lookup.find_by_alias(session, caller(), alias_of(namespace, name), missing=missing.message)
    except NotFound:
        if not JOB_ID.fullmatch(name):
            raise
        job = lookup.find(session, caller(), name)
    found = details(session, job)
    if is_deleted(found) or job.project != namespace or name_of(found) != name:
        raise missing
    return found


def find_sweep(session: Session, namespace: str, name: str) -> Sweep:
    """The sweep of a TrainingJob with hyperParameterTuningConfig. Raises NotFound."""
    alias, missing = alias_of(namespace, name), _missing(name)
    sweep = sweep_lookup.find_by_alias(session, caller(), alias, missing=missing.message)
    if foreign.is_deleted(sweep, DIALECT):
        raise missing
    return sweep


def find_either(session: Session, namespace: str, name: str) -> JobDetails | foreign.ShownSweep:
    """Raises NotFound."""
    try:
        return find(session, namespace, name)
    except NotFound:
        return foreign.shown(session, find_sweep(session, namespace, name))


def find_with_pods(session: Session, namespace: str, name: str) -> JobDetails:
    """The job with pods of this name: a TrainingJob, or a trial of one. Raises NotFound."""
    try:
        return find(session, namespace, name)
    except NotFound:
        named = _TRIAL.fullmatch(name)
        if named is None:
            raise
        found = foreign.job_of(session, find_sweep(session, namespace, named[1]), int(named[2]))
        if found is None or is_deleted(found):
            raise
        return found


def named(session: Session, namespace: str, name: str) -> Sequence[JobDetails]:
    """The jobs of the TrainingJob of this name, oldest first: one, its trials, or none."""
    try:
        return [find(session, namespace, name)]
    except NotFound:
        found = sweep_named(session, namespace, name)
        return foreign.jobs_of(session, found) if found is not None else []


def sweep_named(session: Session, namespace: str, name: str) -> Sweep | None:
    try:
        return find_sweep(session, namespace, name)
    except NotFound:
        return None


def _missing(name: str) -> NotFound:
    return NotFound(f'trainingjobs.ome.io "{name[:64]}" not found')
