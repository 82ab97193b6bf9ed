"""Record filters: operators, their aliases, and the values that each accepts."""

from app.domain.spec.model import Filter

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not_in", "contains", "not_contains", "is_null", "not_null")
ALIASES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LISTS = frozenset({"in", "not_in"})
WITHOUT_VALUE = frozenset({"is_null", "not_null"})
ORDERING = frozenset({"<", "<=", ">", ">="})


class BadFilter(ValueError):
    """An invalid filter; ``part`` is the field at fault, the message says why."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


def operator_of(text: str) -> str:
    """Canonical name of the operator. Raises BadFilter for an unknown one."""
    name = ALIASES.get(text, text)
    if name not in OPERATORS:
        raise BadFilter("op", f"unknown operator {text!r}; known: {known_operators()}")
    return name


def known_operators() -> str:
    others = ", ".join(f"{alias} for {name}" for alias, name in ALIASES.items())
    return f"{', '.join(OPERATORS)} ({others})"


def check_filter(condition: Filter) -> None:
    """Raise BadFilter when operator and value don't match."""
    name, value = operator_of(condition.op), condition.value
    if name in WITHOUT_VALUE:
        if value is not None:
            raise BadFilter("value", f"{name} compares with nothing; leave value out")
    elif value is None:
        raise BadFilter("value", f"{name} needs a value; to ask for missing ones say is_null or not_null")
    elif name in LISTS:
        if not isinstance(value, list) or not value:
            raise BadFilter("value", f"{name} needs a list of at least one value")
    elif isinstance(value, list):
        raise BadFilter("value", f"{name} compares with one value; for a list say in or not_in")
    elif name in ORDERING and isinstance(value, bool):
        raise BadFilter("value", f"{name} needs a number or a text: true and false have no order")
