"""A fork of a sweep: a new one with another space, budget or method, which knows what the first one has found."""

from collections.abc import Mapping
from typing import Any

from app.domain.errors import Conflict
from app.domain.spec.user_tokens import PREFIX
from app.domain.sweeps.documents import with_values_at
from app.domain.sweeps.spec import MAX_SEED, SweepSpec
from app.models import Sweep
from app.security.permissions import Caller
from app.security.secrets import SecretKeyMissing
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.sweeps import creation, lookup
from app.services.sweeps.creation import Complete

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

    Raises BadSpec where a trial of the first sweep lies outside of the new space.
    """
    with plane.db.read() as session:
        first = lookup.find(session, caller, sweep_id)
    secrets = _secrets(plane, first)
    own = {path: value for path, value in secrets.items() if not path.startswith(PREFIX)}
    document = {
        **first.spec,
        "name": changes.get("name") or f"{first.name[:120]}-fork",
        "labels": changes.get("labels", first.labels),
        "job": with_values_at(first.spec["job"], own),
        "method": _other_draws(first.spec["method"]),
        **{name: changes[name] for name in CHANGEABLE if name in changes},
        "budget": {**first.spec["budget"], **changes.get("budget", {})},
        "warm_start": {"sweeps": [first.id], "kind": "results"},
        "enqueue": [],
    }
    forwarded = {path.removeprefix(PREFIX): token for path, token in secrets.items() if path.startswith(PREFIX)}
    return creation.create(
        plane,
        caller,
        SweepSpec.from_json(document),
        complete=complete,
        project=first.project,
        forwarded=forwarded,
        on_written=on_written,
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
