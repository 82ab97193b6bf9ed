"""Which role and project a person of an identity provider gets, by the values of a claim."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.security.permissions import Role

EVERYBODY = "*"


@dataclass(frozen=True, kw_only=True)
class Grant:
    """``project`` None: every project, of a super admin."""

    role: Role
    project: str | None


def grant_of(rules: str, values: Iterable[str]) -> Grant | None:
    """What the first rule that fits grants; None when none fits. ``rules`` are those of `TRAINYARD_OIDC_ROLES`."""
    has = set(values)
    for each in filter(None, (part.strip() for part in rules.split(";"))):
        # From the right: the name of a group may be `cn=vision,ou=groups`.
        value, _, granted = each.rpartition("=")
        if value.strip() == EVERYBODY or value.strip() in has:
            role, _, project = granted.strip().partition(":")
            return Grant(role=Role(role), project=project or None)
    return None


def values_of(claim: object) -> list[str]:
    """The values of a claim, which may be one text or a list of them; anything else has none."""
    if isinstance(claim, str):
        return [claim]
    return [each for each in claim if isinstance(each, str)] if isinstance(claim, list) else []
