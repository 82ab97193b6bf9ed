"""What uv's messages mean for a job: which of them another attempt may not meet, and what to say."""

import re

from workers.attempt_failed import AttemptFailed

FIELD = "training_config.packages"
_MOST_LINES, _MOST_CHARACTERS = 20, 2000
# Also where uv calls what it did a download: these are as wrong the next time.
_PERMANENT = re.compile(
    r"no solution found|hash mismatch|failed to build|HTTP status client error \((?!408|429)4", re.IGNORECASE
)
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_PRIVATE = re.compile(r"leads to a private address", re.IGNORECASE)
_LOGIN = re.compile(r"\b401 Unauthorized|\b403 Forbidden", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"error sending request|could not connect|connection (?:refused|reset|closed)|dns error|timed? ?out|tunnel|"
    r"unsuccessful tunnel|\b(?:408|429|500|502|503|504) [A-Z]|Failed to fetch|failed to download|Request failed",
    re.IGNORECASE,
)
_ELSEWHERE = (
    "; name another in index_url there, have the operator set TRAINYARD_PACKAGES_INDEX_URL to one that the nodes and "
    "coordinators reach, or use a container image that has the packages"
)
_NAMED = re.compile(
    r"[Bb]ecause (?:there (?:is|are) no versions? of |only )?([A-Za-z0-9][\w.-]*)|"
    r"([A-Za-z0-9][\w.-]*) was not found in|hash mismatch for `([^`]+)`|(?:download|build) `([^`]+)`",
    re.IGNORECASE,
)


def failure(said: str, code: int, index: str) -> AttemptFailed:
    """The failure of an attempt for which uv ended with this exit code and said this."""
    lines = [line.rstrip() for line in said.strip().splitlines() if line.strip()]
    quoted = "\n".join(lines[-_MOST_LINES:])[-_MOST_CHARACTERS:]
    quoted = f"uv says:\n{quoted}" if quoted else f"uv ended with exit code {code} and said nothing"
    text = " ".join(line.strip(" │├╰▶─×") for line in lines)
    if _FULL.search(text):
        return AttemptFailed("DISK_FULL", f"{FIELD}: the disk of the node's cache is full. {quoted}")
    if _PRIVATE.search(text):
        return AttemptFailed(
            "PACKAGES_FAILED",
            f"{FIELD}: the index, or a file that it lists, lies at a private address; have the administrator list it "
            f"in TRAINYARD_FETCH_ALLOW. {quoted}",
        )
    if _LOGIN.search(text):
        return AttemptFailed(
            "PACKAGES_FAILED",
            f"{FIELD}: {index} refuses this job; put its login into training_config.environment (UV_INDEX_USERNAME, "
            f"UV_INDEX_PASSWORD). {quoted}",
        )
    if _UNREACHABLE.search(text) and not _PERMANENT.search(text):
        return AttemptFailed("NETWORK_ERROR", f"{FIELD}: {index} can't be reached{_ELSEWHERE}. {quoted}")
    named = next(filter(None, (group for found in _NAMED.finditer(text) for group in found.groups())), "")
    what = f"{named} can't be installed" if named else "they can't be installed"
    return AttemptFailed("PACKAGES_FAILED", f"{FIELD}: {what}. {quoted}")
