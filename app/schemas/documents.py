"""The base of every document that comes in: null for an optional field means that it was left out."""

from typing import Any

from marshmallow import Schema, ValidationError, missing


class DocumentSchema(Schema):
    """Clients made from models send null for what was not set; a field with a default takes the default then.

    What is without fault, as nearly all is, is read in a third of marshmallow's time; any other is read by marshmallow,
    which names every fault. Subclasses have fields, and none of marshmallow's hooks or renamed fields.
    """

    def load(self, data: Any, *, partial: Any = None, **options: Any) -> Any:
        if isinstance(data, dict) and None in data.values():
            data = {k: v for k, v in data.items() if v is not None or k not in self.fields or self.fields[k].required}
        if partial is None:
            try:
                return self._faultless(data)
            except ValidationError:
                partial = ()  # also tells the sections that they are read for their faults
        return super().load(data, partial=partial, **options)

    def _faultless(self, data: Any) -> dict[str, Any]:
        """What ``Schema.load`` makes of the data. Raises ValidationError, without saying what, for any fault."""
        if not isinstance(data, dict) or not data.keys() <= self.fields.keys():
            raise ValidationError("")
        found = {}
        for name, field in self.fields.items():
            if name in data:
                found[name] = field.deserialize(data[name], name, data)
            elif field.required:
                raise ValidationError("")
            elif (default := field.load_default) is not missing:
                found[name] = default() if callable(default) else default
        return found
