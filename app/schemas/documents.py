"""The base of every document that comes in: null for an optional field means that it was left out."""

from typing import Any

from marshmallow import Schema, pre_load


class DocumentSchema(Schema):
    """Clients made from models send null for what was not set; a field with a default takes the default then."""

    @pre_load
    def _drop_nulls(self, data: Any, **_kwargs: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {k: v for k, v in data.items() if v is not None or k not in self.fields or self.fields[k].required}
