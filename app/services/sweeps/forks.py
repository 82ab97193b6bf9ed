"""A fork of a sweep: a new one with another space, budget or method, which knows what the first one has found."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import Conflict
from app.domain.spec.secrets import secret_variables
from app.domain.spec.user_tokens import PREFIX
from app.domain.sweeps.documents import ENVIRONMENT, with_values_at
from app.domain.sweeps.spec import MAX_SEED, SweepSpec
from app.models import Sweep
from app.security.permissions import Caller
from app.security.secrets import SecretKeyMissing
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.sweeps import creation, lookup
from app.services.sweeps.creation import CheckedSweep, Complete, SweepOrigin

RESULTS = "results"
CHANGEABLE = ("parameters", "require", "method", "early_stopping")


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    spec: SweepSpec
    project: str
    forwarded: Mapping[str, str]
    secret_variables: Collection[str]


def fork(
    plane: ControlPlane,
    caller: Caller,
    sweep_id: str,
    changes: Mapping[str, Any],
    *,
    complete: Complete,
    on_written: OnWritten = not_stored,
) -> Sweep:
    """Create a sweep of the same job and objective; ``changes`` replace parts of the document, and parts of its budget.

    Raises BadSpec where a trial of the first sweep lies outside of the new space, Conflict where secrets of another
    caller would go to a place that this one chooses.
    """
    wanted = _wanted(plane, caller, sweep_id, changes)
    return creation.create(
        plane,
        caller,
        wanted.spec,
        complete=complete,
        project=wanted.project,
        forwarded=wanted.forwarded,
        origin=SweepOrigin(foreign={}, secret_variables=wanted.secret_variables),
        on_written=on_written,
    )


def check(
    plane: ControlPlane, caller: Caller, sweep_id: str, changes: Mapping[str, Any], *, complete: Complete
) -> CheckedSweep:
    """The fork as it would be created; raises as `fork` does."""
    wanted = _wanted(plane, caller, sweep_id, changes)
    return creation.check(
        plane,
        caller,
        wanted.spec,
        complete=complete,
        project=wanted.project,
        forwarded=wanted.forwarded,
        secret_variables=wanted.secret_variables,
    )


def beginning(first: Sweep) -> dict[str, Any]:
    """What a fork may change, as it is without changes."""
    return {
        "name": f"{first.name[:120]}-fork",
        "labels": first.labels,
        **{name: first.spec[name] for name in CHANGEABLE},
        "method": _other_draws(first.spec["method"]),
        "budget": first.spec["budget"],
    }


def _wanted(plane: ControlPlane, caller: Caller, sweep_id: str, changes: Mapping[str, Any]) -> _Wanted:
    with plane.db.read() as session:
        first = lookup.find(session, caller, sweep_id)
        owns_secrets = _owns_secrets(session, caller, first)
    secrets = _secrets(plane, first)
    if secrets and not owns_secrets:
        _refuse_other_places(first, changes.get("parameters", {}))
    return _Wanted(
        spec=SweepSpec.from_json(_document(first, secrets, changes)),
        project=first.project,
        forwarded={path.removeprefix(PREFIX): token for path, token in secrets.items() if path.startswith(PREFIX)},
        secret_variables=secret_variables(secrets),
    )


def _document(first: Sweep, secrets: Mapping[str, str], changes: Mapping[str, Any]) -> dict[str, Any]:
    own = {path: value for path, value in secrets.items() if not path.startswith(PREFIX)}
    begun = beginning(first)
    return {
        **first.spec,
        **begun,
        **{name: changes[name] for name in CHANGEABLE if name in changes},
        "method": {"seed": begun["method"]["seed"], **changes.get("method", begun["method"])},
        "name": changes.get("name") or begun["name"],
        "labels": changes.get("labels", begun["labels"]),
        "job": with_values_at(first.spec["job"], own),
        "budget": {**begun["budget"], **changes.get("budget", {})},
        "warm_start": {"sweeps": [first.id], "kind": RESULTS},
        "enqueue": [],
    }


def _owns_secrets(session: Session, caller: Caller, sweep: Sweep) -> bool:
    """Whether this caller gave the secrets: a fork has those of the sweep that it began with, which its warm start
    names; the answer is no where that one was deleted.
    """
    found: Sweep | None = sweep
    while found is not None and found.created_by == caller.key_id:
        warm = SweepSpec.from_json(found.spec).warm_start
        if warm.kind != RESULTS or len(warm.sweeps) != 1:
            return True
        found = session.get(Sweep, warm.sweeps[0])
    return False


def _refuse_other_places(first: Sweep, parameters: Mapping[str, Any]) -> None:
    """A field of the document may say what opens or gets the secrets: a source, a model, a script, the network."""
    for name, given in parameters.items():
        is_field = "." in name and not name.startswith(ENVIRONMENT)
        if is_field and (name not in first.spec["parameters"] or given != first.spec["parameters"][name]):
            raise Conflict(
                f"parameters.{name} changes a field of a job with secrets that another key gave to sweep {first.id}, "
                "or to one that it was forked from; leave it as it is, or create a new sweep with your own secrets"
            )


def _other_draws(method: Mapping[str, Any]) -> dict[str, Any]:
    """With the seed of the first sweep, its random draws would be tried again."""
    return {**method, "seed": (method["seed"] + 1) % (MAX_SEED + 1)}


def _secrets(plane: ControlPlane, first: Sweep) -> dict[str, str]:
    try:
        return plane.box.open(first.sealed_secrets)
    except SecretKeyMissing as error:
        raise Conflict(
            f"the secrets of sweep {first.id} were encrypted with a key that this server does not have; create the "
            "sweep again with them"
        ) from error
