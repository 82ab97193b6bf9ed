"""What the descriptions of Run:ai's requests are written with."""

from collections.abc import Mapping
from typing import Any

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import says

Described = Mapping[str, Any]
KEPT = says("Kept and told, not acted on")


def document(name: str, described: Described) -> type[DocumentSchema]:
    """The schema of an object with these fields."""
    schema: Any = DocumentSchema.from_dict(dict(described), name=f"{name}Schema")
    return schema  # type: ignore[no-any-return]
