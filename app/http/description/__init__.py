"""Each vocabulary of the API as OpenAPI 3.1, made from what every resource method declares."""

from app.http.description.document import description

__all__ = ["description"]
