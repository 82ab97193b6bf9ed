"""The base schemas of requests: a message about an unknown field names the one that was meant; null omits a field."""

from typing import Any, ClassVar

from marshmallow import Schema, ValidationError, missing, pre_load

from app.domain.spec.hyperparameters.places import unknown_field


class RequestSchema(Schema):
    """What a client sends."""

    of_job: ClassVar[bool] = False  # whether it is a part of a job document
    of_form: ClassVar[bool] = False  # whether a browser's form sends it, with empty texts for what is left out

    def handle_error(self, error: ValidationError, data: Any, **_: Any) -> None:  # noqa: ANN401 – as marshmallow's
        """Say of each unknown field which one was probably meant."""
        if not isinstance(data, dict) or not isinstance(error.messages, dict):
            return
        known = [field.data_key or name for name, field in self.load_fields.items()]
        for name, said in error.messages.items():
            if said == [self.error_messages["unknown"]]:
                error.messages[name] = [unknown_field(str(name), known, of_job=self.of_job)]


class DocumentSchema(RequestSchema):
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


class JobPartSchema(DocumentSchema):
    """A part of a job document, in which a field may have been given in another part."""

    of_job = True


class NothingSchema(DocumentSchema):
    """A body without fields."""
