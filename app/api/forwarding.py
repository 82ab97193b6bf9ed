"""Request headers that forward a user's storage tokens to a job."""

from flask import request

from app.domain.spec.user_tokens import HEADERS, LONGEST, USER, check_token

_USES = {
    USER: "The submitting user's token; the node exchanges it for tokens of the storage services that the job uses",
    "scaidrive": "The submitting user's token for scaidrive:// locations, used unchanged",
    "scaiatlas": "The submitting user's token for scaiatlas:// locations, used unchanged",
}
# Header → its description in the OpenAPI document.
FORWARDED = {
    name: f"{_USES[key]}. Stored encrypted, never shown or logged; up to {LONGEST} characters."
    for name, key in HEADERS.items()
}


def forwarded_tokens() -> dict[str, str]:
    """The tokens in this request's headers, by purpose. Raises InvalidRequest for a malformed one."""
    found = {}
    for header, key in HEADERS.items():
        token = request.headers.get(header, "")
        if token:
            check_token(header, token)
            found[key] = token
    return found
