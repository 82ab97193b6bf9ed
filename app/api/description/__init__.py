"""The API as OpenAPI 3.1, made from what every resource method declares."""

from app.api.description.document import described

__all__ = ["described"]
