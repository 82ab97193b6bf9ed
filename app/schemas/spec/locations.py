"""Fields that name a place: an uploaded file is `file-…`, also where it is written `upload://file-…`."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError

from app.domain.spec.locations.uploads import without_scheme
from app.schemas.strict_fields import Text


class Location(Text):
    """A path, a URI, or an uploaded file's id, stored without a scheme, by which a deletion finds its jobs."""

    def _deserialize(
        self,
        value: Any,  # noqa: ANN401 – marshmallow's signature
        attr: str | None,
        data: Mapping[str, Any] | None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401
        found = super()._deserialize(value, attr, data, **kwargs)
        try:
            return without_scheme(found) if found is not None else None
        except ValueError as error:
            raise ValidationError(str(error)) from error
