"""The submitting user's tokens, which open storage as that user; sealed with the job and never shown."""

import re
from collections.abc import Mapping

from app.domain.errors import InvalidRequest
from app.domain.spec.document import Document, locations

PREFIX = "forwarded."  # of the keys under which they are sealed
USER = "user"
# Header → key: a token for one storage is used as it is, the user's is exchanged for one.
HEADERS = {"X-ScaiDrive-Token": "scaidrive", "X-ScaiAtlas-Token": "scaiatlas", "X-User-Token": USER}
LONGEST = 7680  # with the header's name, what HTTP servers take as one line

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


def check_token(header: str, token: str) -> None:
    """Raise InvalidRequest, naming the header and never the token, when it can't be one."""
    if len(token) > LONGEST:
        raise InvalidRequest(f"the token in {header} is longer than {LONGEST} characters", field=header)
    if _TOKEN.fullmatch(token) is None:
        raise InvalidRequest(
            f"{header} holds one token, of letters, digits and -._~+/= (RFC 6750), without the word Bearer",
            field=header,
        )


def require_tokens(document: Document, forwarded: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a place that only the user may open, when no token came with the request."""
    output = document["output_config"].get("output_path")
    places = [*locations(document), *([(output, "output_config.output_path")] if output else [])]
    for location, field in places:
        scheme = location.partition("://")[0].lower()
        header = next((name for name, key in HEADERS.items() if key == scheme), None)
        if header is not None and scheme not in forwarded and USER not in forwarded:
            raise InvalidRequest(
                f"{scheme}:// is opened as the user who submits; send the user's token in the header {header}, or in "
                "X-User-Token to have it exchanged",
                field=field,
            )
