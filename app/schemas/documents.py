"""The base schema of request documents: null for an optional field means that it is omitted."""

from typing import Any, ClassVar

from marshmallow import Schema, missing, pre_load


class DocumentSchema(Schema):
    """Generated clients send null for unset fields; a field with a default then takes its default."""

    # JSON Schema of the rules between its fields, beside what the fields say themselves.
    conditions: ClassVar[dict[str, Any]] = {}

    @pre_load
    def _without_null(self, values: object, **_: Any) -> object:
        if not isinstance(values, dict) or None not in values.values():
            return values
        return {k: v for k, v in values.items() if v is not None or k not in self.fields or self.fields[k].required}

    def _deserialize(self, data: Any, **how: Any) -> Any:  # noqa: ANN401 – as marshmallow's
        """As marshmallow's, without the fields that are neither given nor would say anything: three of four.

        Were it never called, loading a document would take twice as long, and that is all.
        """
        if not isinstance(data, dict):
            return super()._deserialize(data, **how)
        asked = object.__new__(type(self))
        vars(asked).update(vars(self))
        asked.load_fields = {
            name: field
            for name, field in self.load_fields.items()
            if (field.data_key or name) in data or field.required or field.load_default is not missing
        }
        return super(DocumentSchema, asked)._deserialize(data, **how)


class NothingSchema(DocumentSchema):
    """A body without fields."""
