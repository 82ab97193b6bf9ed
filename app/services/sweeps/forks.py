"""A fork of a sweep: a new one with another space, budget or method, which knows what the first one has found."""

from collections.abc import Mapping
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
from app.services.sweeps.creation import Complete, SweepOrigin

RESULTS = "results"
CHANGEABLE = ("parameters", "require", "method", "early_stopping")


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
    with plane.db.read() as session:
        first = lookup.find(session, caller, sweep_id)
        owns_secrets = _owns_secrets(session, caller, first)
    secrets = _secrets(plane, first)
    if secrets and not owns_secrets:
        _refuse_other_places(first, changes.get("parameters", {}))
    document = _document(first, secrets, changes)
    forwarded = {path.removeprefix(PREFIX): token for path, token in secrets.items() if path.startswith(PREFIX)}
    return creation.create(
        plane,
        caller,
        SweepSpec.from_json(document),
        complete=complete,
        project=first.project,
        forwarded=forwarded,
        origin=SweepOrigin(foreign={}, secret_variables=secret_variables(secrets)),
        on_written=on_written,
    )


def _document(first: Sweep, secrets: Mapping[str, str], changes: Mapping[str, Any]) -> dict[str, Any]:
    own = {path: value for path, value in secrets.items() if not path.startswith(PREFIX)}
    return {
        **first.spec,
        "name": changes.get("name") or f"{first.name[:120]}-fork",
        "labels": changes.get("labels", first.labels),
        "job": with_values_at(first.spec["job"], own),
        "method": _other_draws(first.spec["method"]),
        **{name: changes[name] for name in CHANGEABLE if name in changes},
        "budget": {**first.spec["budget"], **changes.get("budget", {})},
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
