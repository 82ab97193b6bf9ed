"""The base schemas of requests: a message about an unknown field names the one that was meant; null omits a field."""

from functools import cached_property
from typing import Any, ClassVar

from marshmallow import RAISE, Schema, ValidationError, missing, pre_load
from marshmallow.fields import Field
from marshmallow.utils import set_value

from app.domain.spec.hyperparameters.places import unknown_field

_Place = tuple[int, str, str, Field[Any]]  # its number in the order of loading, its name on the wire, its attribute


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
        """As marshmallow's, in a third of its time: it asks only fields that are given or would say something.

        Were it never called, loading a document would take twice as long, and that is all (decision 0123).
        """
        if (
            not isinstance(data, dict)
            or how.get("many")
            or how.get("index") is not None
            or how.get("partial") is not None
            or how.get("unknown", RAISE) != RAISE
        ):
            return super()._deserialize(data, **how)
        errors: Any = how["error_store"]  # its methods have no types
        known, always = self._places
        given = [known[name] for name in data if name in known]
        found: dict[str, Any] = self.dict_class()
        for place in sorted({*given, *always}):
            _, name, attribute, field = place
            try:
                value = field.deserialize(data.get(name, missing), name, data)
            except ValidationError as error:
                errors.store_error(error.messages, name)
                value = error.valid_data or missing
            if value is not missing:
                set_value(found, attribute, value)
        if len(given) < len(data):
            for name in data:
                if name not in known:
                    errors.store_error([self.error_messages["unknown"]], name)
        return found

    @cached_property
    def _places(self) -> tuple[dict[str, _Place], tuple[_Place, ...]]:
        """By its name on the wire, each field's place in the order of loading; and the fields that always count."""
        fields = self.load_fields.items()
        known = {
            name: (number, name, field.attribute or attribute, field)
            for number, (attribute, field) in enumerate(fields)
            for name in (attribute if field.data_key is None else field.data_key,)
        }
        return known, tuple(each for each in known.values() if each[3].required or each[3].load_default is not missing)


class JobPartSchema(DocumentSchema):
    """A part of a job document, in which a field may have been given in another part."""

    of_job = True


class NothingSchema(DocumentSchema):
    """A body without fields."""
