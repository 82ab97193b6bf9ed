"""Quantities as Kubernetes writes them: 500m, 2, 16Gi. Pure."""

import re
from decimal import Decimal

FORM = re.compile(r"\+?([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKMGTP]i?|m)?")
_UNITS: dict[str, int | Decimal] = {
    "": 1,
    "m": Decimal("0.001"),
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "ki": 2**10,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
RULE = "must be a quantity such as 10M, 1.5G or 512Mi"


def amount_of(quantity: str) -> Decimal:
    """Raises ValueError with the rule."""
    found = FORM.fullmatch(quantity)
    if found is None:
        raise ValueError(RULE)
    return Decimal(found[1]) * _UNITS[found[2] or ""]
