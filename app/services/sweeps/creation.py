"""Creating a sweep: every document that its trials may have is checked before anything is written."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import Conflict, InvalidRequest
from app.domain.ids import new_id
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.registry_logins import refuse_logins_without_images, with_needed_logins
from app.domain.spec.secrets import CODE_LOGIN, MASK, registry_password_path, take_secrets
from app.domain.sweeps import benchmarks
from app.domain.sweeps.documents import (
    ENVIRONMENT,
    path_of,
    trial_document,
    with_evaluation,
    with_scheduling,
    with_values_at,
    with_words,
    without_paths,
)
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.rules import document as rules
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import SweepSpec
from app.models import Job, Sweep
from app.models.insertion import fill
from app.security.permissions import Caller
from app.services.access import projects, tracker_keys
from app.services.attempts.evaluation_verdicts import refuse_unknown_baselines
from app.services.jobs import submission, uploaded_data
from app.services.jobs.submission import Checked
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.sweeps import history, warm_starts

# Applies the schema of job documents, and raises its errors for fields of `job`; schemas are a layer above services.
Complete = Callable[[dict[str, Any]], JobDocument]
# Trials give way to other jobs and lose no step by it, unless the document says otherwise.
GIVES_WAY = {"preemptible": True, "on_preemption": "requeue"}
# All of the examples pass the schema and the rules; so many are also compared with the nodes.
MOST_PLACED = 8


@dataclass(frozen=True, kw_only=True)
class CheckedSweep:
    """A sweep that passed all rules; ``base`` is the document that every trial starts from, ``known`` are results of
    earlier sweeps.
    """

    spec: SweepSpec
    space: Space
    project: str
    base: Mapping[str, Any]
    known: Sequence[Mapping[str, Any]]
    secrets: Mapping[str, str]
    warnings: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class CreatedSweep:
    sweep: Sweep
    warnings: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class SweepOrigin:
    """What an API dialect stores with a sweep to return it later, its unique name there, and ignored fields.

    ``secret_variables``: of the environment, besides those that look like secrets.
    """

    foreign: Mapping[str, Any]
    alias: str | None = None
    warnings: Sequence[str] = ()
    secret_variables: Collection[str] = ()


NATIVE = SweepOrigin(foreign={})


def create(  # noqa: PLR0913  what an API dialect may say of a sweep
    plane: ControlPlane,
    caller: Caller,
    spec: SweepSpec,
    *,
    complete: Complete,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    origin: SweepOrigin = NATIVE,
    on_written: OnWritten = not_stored,
) -> Sweep:
    """Store a new PENDING sweep; a coordinator makes its trials.

    Raises InvalidRequest for the first broken rule, Conflict when a sweep or a job has its alias.
    """
    hidden = origin.secret_variables
    checked = check(
        plane, caller, spec, complete=complete, project=project, forwarded=forwarded, secret_variables=hidden
    )
    checked = replace(checked, warnings=[*origin.warnings, *checked.warnings])
    sweep = row(plane, caller, checked, origin)
    with plane.db.write() as session:
        projects.visible(session, caller, checked.project)
        _refuse_taken_alias(session, origin)
        uploaded_data.refuse_unusable_files(session, checked.project, JobDocument.from_json(checked.base))
        session.add(sweep)
        message = f"{checked.spec.method.name} over {len(checked.space.parameters)} parameters"
        history.record_creation(session, sweep, message=message, warnings=checked.warnings)
        audit.record(
            session,
            actor=caller.actor,
            action="sweep.create",
            project=sweep.project,
            target=sweep.id,
            message=sweep.name,
        )
        on_written(session, CreatedSweep(sweep=sweep, warnings=checked.warnings))
    return sweep


def check(
    plane: ControlPlane,
    caller: Caller,
    spec: SweepSpec,
    *,
    complete: Complete,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    secret_variables: Collection[str] = (),
) -> CheckedSweep:
    """All checks before the transaction that writes the sweep."""
    target = project or caller.home_project
    caller.require_project(target)
    spec = replace(spec, job=_with_defaults(spec))
    space = rules.check(spec, plane.sweep_limits)
    refuse_logins_without_images([complete(_document(spec, values)) for values in space.examples()])
    placed = [
        _placed(plane, caller, spec, values, complete=complete, project=target, forwarded=forwarded)
        for values in _spread(space.examples())
    ]
    base = complete(_base(spec, space))
    base = tracker_keys.with_stored_keys(plane.secrets_dir, caller, plane.reading.of(target), base)
    stored = submission.check(
        plane, caller, with_needed_logins(base), project=target, forwarded=forwarded, secret_variables=secret_variables
    )
    secrets = _secrets(base, stored)
    # Not the completed document: what is derived from values of one trial must not stay in those of others.
    masked = with_words(take_secrets(base, secret_variables)[0].to_json(), spec.job)
    with plane.db.read() as session:
        known = warm_starts.known_results(session, target, spec, space, masked)
        first = warm_starts.transferred_values(session, target, spec, space)
    return CheckedSweep(
        spec=replace(spec, job=_shown(spec.job, space, secrets), enqueue=(*first, *spec.enqueue)),
        space=space,
        project=target,
        base=masked,
        known=warm_starts.as_json(known),
        secrets=secrets,
        warnings=_warnings(placed),
    )


def _secrets(base: JobDocument, stored: Checked) -> Mapping[str, str]:
    """Those of all trials, with logins of registries that not every one needs. A login of Git that the operator stores
    is none: each trial has that of its own code's host.
    """
    logins = base.resource_config.registry_logins
    secrets = {**stored.spec.secrets, **{registry_password_path(i): each.password for i, each in enumerate(logins)}}
    if base.training_config.framework.custom_code_credentials:
        return secrets
    return {path: value for path, value in secrets.items() if not path.startswith(f"{CODE_LOGIN}.")}


def _with_defaults(spec: SweepSpec) -> dict[str, Any]:
    """The job with the scheduling of trials, and with evaluations at the rungs, but for objectives that are benchmarks:
    those are measured of checkpoints.
    """
    job = with_scheduling(spec.job, GIVES_WAY)
    is_of_checkpoints = any(benchmarks.measured(each.metric) is not None for each in spec.objectives)
    return job if is_of_checkpoints else with_evaluation(job, spec.early_stopping)


def _base(spec: SweepSpec, space: Space) -> dict[str, Any]:
    """What all trials share, without the labels of the sweep, which may change."""
    return trial_document(spec.job, _unconditional(space, space.examples()[0]), name=spec.name, labels={})


def _document(spec: SweepSpec, values: Mapping[str, Value]) -> dict[str, Any]:
    return trial_document(spec.job, values, name=spec.name, labels=spec.labels)


def _placed(
    plane: ControlPlane,
    caller: Caller,
    spec: SweepSpec,
    values: Mapping[str, Value],
    *,
    complete: Complete,
    project: str,
    forwarded: Mapping[str, str],
) -> Checked:
    """Raises InvalidRequest, naming the parameter where a value of one is at fault."""
    document = complete(_document(spec, values))
    try:
        document = with_needed_logins(document)
        checked = submission.check(plane, caller, document, project=project, forwarded=forwarded)
        refuse_unknown_baselines(plane.db, project, checked.spec.document)
    except InvalidRequest as error:
        error.field = field_of(error.field, values)
        if error.field.startswith("parameters."):
            name = error.field.removeprefix("parameters.")
            error.message = f"{error.message} (a trial with {name}={values[name]})"
        raise
    return checked


def field_of(field: str | None, values: Mapping[str, Value]) -> str:
    """The field of the sweep's document for one of a trial's document."""
    if field is None:
        return "job"
    for prefix in ("training_config.hyperparameters.", "training_config."):
        name = field.removeprefix(prefix)
        if name in values and (prefix != "training_config." or name.startswith(ENVIRONMENT)):
            return f"parameters.{name}"
    return f"parameters.{field}" if field in values else f"job.{field}"


def _spread(examples: Sequence[dict[str, Value]]) -> Sequence[dict[str, Value]]:
    """The first two, which have all lower and all upper ends, and some of the others."""
    if len(examples) <= MOST_PLACED:
        return examples
    stride = len(examples) / (MOST_PLACED - 2)
    return [*examples[:2], *(examples[int(i * stride)] for i in range(MOST_PLACED - 2))]


def _unconditional(space: Space, values: Mapping[str, Value]) -> dict[str, Value]:
    """Values of the parameters that every trial has: a trial without the others has the job's own, or defaults."""
    always = {parameter.name for parameter in space.parameters if not parameter.only_if}
    return {name: value for name, value in values.items() if name in always}


def _shown(job: Mapping[str, Any], space: Space, secrets: Collection[str]) -> dict[str, Any]:
    """The job as it was given, with its secrets masked, and without what every trial replaces, which may be secret."""
    always = [path_of(each.name) for each in space.parameters if not each.only_if]
    return without_paths(with_values_at(job, dict.fromkeys(secrets, MASK)), always)


def _warnings(placed: Sequence[Checked]) -> list[str]:
    found = [f"job.{line}" for checked in placed for line in (*checked.waits, *checked.warnings)]
    return [*dict.fromkeys(found)]


def _refuse_taken_alias(session: Session, origin: SweepOrigin) -> None:
    if origin.alias is None:
        return
    earlier = session.scalar(select(Sweep.id).where(Sweep.alias == origin.alias))
    earlier = earlier or session.scalar(select(Job.id).where(Job.alias == origin.alias))
    if earlier is not None:
        name = origin.alias.split(":", 2)[2]
        raise Conflict(f"there is {earlier} with the name {name} already; take another name, or delete that one")


def row(plane: ControlPlane, caller: Caller, checked: CheckedSweep, origin: SweepOrigin) -> Sweep:
    """The row of a new sweep, in no session."""
    spec = checked.spec
    sweep = Sweep(
        id=new_id("sweep"),
        project=checked.project,
        created_by=caller.key_id,
        submits_as=caller.key_id,
        name=spec.name,
        labels=dict(spec.labels),
        spec=spec.to_json(),
        base=dict(checked.base),
        known=list(checked.known),
        best_number=warm_starts.best_number(checked.known, spec),
        sealed_secrets=plane.box.seal(dict(checked.secrets)) if checked.secrets else "",
        foreign=dict(origin.foreign),
        alias=origin.alias,
    )
    fill(sweep)
    return sweep
