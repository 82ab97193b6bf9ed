"""Each dialect of the API as OpenAPI 3.1, generated from the operations' declarations."""

from app.http.description.document import description

__all__ = ["description"]
