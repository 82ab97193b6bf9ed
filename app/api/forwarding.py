"""The headers in which a user's own tokens for storage come with a job."""

from flask import request

from app.domain.spec.user_tokens import HEADERS, LONGEST, USER, check_token

_USES = {
    USER: "The submitting user's token; the node exchanges it for tokens of the storages that the job names",
    "scaidrive": "The submitting user's token for scaidrive:// places, used as it is",
    "scaiatlas": "The submitting user's token for scaiatlas:// places, used as it is",
}
# Header → what the API description says about it.
FORWARDED = {
    name: f"{_USES[key]}. Stored encrypted, never shown or logged; up to {LONGEST} characters."
    for name, key in HEADERS.items()
}


def forwarded_tokens() -> dict[str, str]:
    """The tokens that came with this request, by what they are for. Raises InvalidRequest for a malformed one."""
    found = {}
    for header, key in HEADERS.items():
        token = request.headers.get(header, "")
        if token:
            check_token(header, token)
            found[key] = token
    return found
