"""The base schema of request documents: null for an optional field means that it is omitted."""

from typing import Any

from marshmallow import Schema, pre_load


class DocumentSchema(Schema):
    """Generated clients send null for unset fields; a field with a default then takes its default."""

    @pre_load
    def _without_null(self, values: object, **_: Any) -> object:
        if not isinstance(values, dict) or None not in values.values():
            return values
        return {k: v for k, v in values.items() if v is not None or k not in self.fields or self.fields[k].required}
