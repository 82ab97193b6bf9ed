"""Forms of pages: every one carries the session's token, and browsers must say that it is of this site."""

import hashlib
import hmac
import re
import secrets
from typing import Any

from flask import g, request
from marshmallow import Schema, fields

from app.domain.errors import Forbidden
from app.http.errors import UnsupportedMediaType
from app.http.request_body import check_content, validated, whole_body
from app.schemas.documents import RequestSchema

TOKEN, HEADER = "csrf", "X-CSRF-Token"
_TOKEN_BYTES = 32
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class NoFieldsSchema(RequestSchema):
    """A form that is only a button."""


class Form:
    """Reads an HTML form as a flat document: a list for a name that the schema has as a list, else one text.

    Fields that the person left empty are left out.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def read(self, *, optional: bool, max_nesting: int) -> dict[str, Any]:  # noqa: ARG002 – a form may always be empty
        check_origin()
        whole_body()
        if request.mimetype != "application/x-www-form-urlencoded":
            raise UnsupportedMediaType("send a form with the header Content-Type: application/x-www-form-urlencoded")
        if "session_secret" in g:
            _check_token()
        document: dict[str, Any] = {}
        for name, values in request.form.lists():
            given = [value.replace("\r\n", "\n") for value in values if value != ""]
            if name != TOKEN and given:
                document[name] = given if _is_list(self._schema, name) else given[-1]
        check_content(document, max_nesting=max_nesting)
        return document

    def load(self, document: dict[str, Any]) -> Any:  # noqa: ANN401 – as validated
        return validated(self._schema, document)


def form(schema: type[Schema] = NoFieldsSchema) -> dict[str, Any]:
    """Arguments of the operation of an action: its form, which is carried out each time that it is sent."""
    made = schema()
    return {"body": schema, "reader": Form(made), "remembers": False, "takes": "application/x-www-form-urlencoded"}


def token() -> str:
    """The token of the forms of this session; who cannot read its pages cannot know it.

    Another text in every answer, so that the sizes of compressed pages tell nothing of it.
    """
    pad = secrets.token_bytes(_TOKEN_BYTES)
    return (pad + _mixed(pad, _token())).hex()


def check_origin() -> None:
    """Raises Forbidden unless the browser says that a page of this site sends the request."""
    origin, site = request.headers.get("Origin", ""), request.headers.get("Sec-Fetch-Site", "same-origin")
    # Plain HTTP may be the way behind a proxy that ends TLS. With TLS, a page without it is no page of this site.
    schemes = ("https",) if request.is_secure else ("https", "http")
    if origin not in [f"{scheme}://{request.host}" for scheme in schemes] or site != "same-origin":
        raise Forbidden(
            "this request does not come from a page of this site; open the dashboard itself. Behind a proxy, let it "
            "pass on the header Host"
        )


def is_within(wanted: str) -> bool:
    """Whether it is a path of the dashboard, for a browser to continue at: it begins with it, so no host can."""
    return wanted.startswith("/ui") and "\\" not in wanted and _CONTROL.search(wanted) is None


def _check_token() -> None:
    given = request.headers.get(HEADER) or request.form.get(TOKEN, "")
    try:
        masked = bytes.fromhex(given)
    except ValueError:
        masked = b""
    if not hmac.compare_digest(_mixed(masked[:_TOKEN_BYTES], masked[_TOKEN_BYTES:]), _token()):
        raise Forbidden("the form is of another sign-in; reload the page and try again")


def _token() -> bytes:
    return hmac.new(g.session_secret.encode(), b"csrf", hashlib.sha256).digest()


def _mixed(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=False))


def _is_list(schema: Schema, name: str) -> bool:
    return isinstance(schema.fields.get(name), fields.List)
