"""Parses query strings by schema; unknown and wrongly repeated parameters are errors."""

import re
from typing import Any

from flask import request
from marshmallow import Schema

from app.http.errors import BadShape
from app.http.request_body import validated
from app.schemas.jobs import LABEL_KEY
from app.schemas.queries import QueryTexts

_LABELS = "labels."


def read_query(schema: Schema) -> dict[str, Any]:
    values: dict[str, Any] = {}
    labels: list[tuple[str, str]] = []
    for name, given in request.args.lists():
        _check_text(name, given)
        if "labels" in schema.fields and name.startswith(_LABELS):
            labels += [(_label_key(name), value) for value in given]
        elif isinstance(schema.fields.get(name), QueryTexts):
            values[name] = given
        elif len(given) > 1:
            raise BadShape([(name, "must be given once")])
        elif given[0] or name == "page_token":
            values[name] = given[0]
        elif name in schema.fields:
            if not getattr(schema, "of_form", False):
                raise BadShape([(name, "must not be empty; omit it instead")])
        else:
            values[name] = ""
    if labels:
        values["labels"] = labels
    found: dict[str, Any] = validated(schema, values)
    return found


def _label_key(name: str) -> str:
    key = name.removeprefix(_LABELS)
    if re.fullmatch(LABEL_KEY, key) is None:
        raise BadShape([(name[:80], "is not a label key")])
    return key


def _check_text(name: str, given: list[str]) -> None:
    if any("\0" in text for text in (name, *given)):
        raise BadShape([(name.replace("\0", "")[:80], "contains a NUL character")])
