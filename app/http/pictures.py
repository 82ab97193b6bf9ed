"""Answers as pictures: SVG for callers who prefer it to JSON."""

import base64
import hashlib
from functools import cache

from flask import Response, request

SVG = "image/svg+xml"


def wants_picture() -> bool:
    """Whether the client accepts SVG in preference to JSON."""
    return request.accept_mimetypes.best_match(["application/json", SVG]) == SVG


def picture(drawn: str, *, style: str) -> Response:
    """The response with a picture whose only style sheet is ``style``; a browser that shows it applies nothing else."""
    response = Response(drawn, mimetype=SVG)
    response.headers["Content-Security-Policy"] = _policy(style)
    return response


@cache
def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
