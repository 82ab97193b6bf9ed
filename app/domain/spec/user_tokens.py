"""Forwarded user tokens, which access storage as the submitting user; encrypted with the job and never shown."""

import re
from collections.abc import Mapping

from app.domain.errors import InvalidRequest
from app.domain.spec.document import locations
from app.domain.spec.model import JobDocument

PREFIX = "forwarded."  # of their keys among the job's secrets
USER = "user"
# Header → key: a storage token is used directly, a user token is exchanged for one.
HEADERS = {"X-ScaiDrive-Token": "scaidrive", "X-ScaiAtlas-Token": "scaiatlas", "X-User-Token": USER}
LONGEST = 7680  # together with the header's name within the line limit of HTTP servers

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


def check_token(header: str, token: str) -> None:
    """Raise InvalidRequest for a malformed token, naming the header and never the token."""
    if len(token) > LONGEST:
        raise InvalidRequest(f"the token in {header} is longer than {LONGEST} characters", field=header)
    if _TOKEN.fullmatch(token) is None:
        raise InvalidRequest(
            f"{header} holds one token, of letters, digits and -._~+/= (RFC 6750), without the word Bearer",
            field=header,
        )


def require_tokens(document: JobDocument, forwarded: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a location that needs a user token, when the request has none."""
    output = document.output_config
    written = ((output.output_path, "output_config.output_path"), (output.log_path, "output_config.log_path"))
    places = [*locations(document), *((place, field) for place, field in written if place)]
    for location, field in places:
        scheme = location.partition("://")[0].lower()
        header = next((name for name, key in HEADERS.items() if key == scheme), None)
        if header is not None and scheme not in forwarded and USER not in forwarded:
            raise InvalidRequest(
                f"{scheme}:// is opened as the user who submits; send the user's token in the header {header}, or in "
                "X-User-Token to have it exchanged",
                field=field,
            )
