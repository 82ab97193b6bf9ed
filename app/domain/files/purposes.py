"""The purposes of uploaded files: what each may be used for, and whether its content is inspected."""

from typing import Final

FINE_TUNE: Final = "fine-tune"
BATCH: Final = "batch"
USER_DATA: Final = "user_data"
EVALS: Final = "evals"
DIRECTORY: Final = "directory"  # an archive, which a job gets unpacked: code, a model, or data
RESULTS: Final = "fine-tune-results"
BATCH_OUTPUT: Final = "batch_output"

# What a client may upload a file for; the platform itself writes files of the other two purposes.
UPLOADED: Final = (FINE_TUNE, BATCH, USER_DATA, EVALS, DIRECTORY)
WRITTEN: Final = (RESULTS, BATCH_OUTPUT)
PURPOSES: Final = UPLOADED + WRITTEN

# Purposes whose records are read and checked before the file can be used.
INSPECTED: Final = frozenset({FINE_TUNE, BATCH})
# Purposes of files that a job may name as a source of its data.
SOURCES: Final = (FINE_TUNE, USER_DATA, EVALS, DIRECTORY)

RECEIVING: Final = "receiving"  # of a row whose content is not complete yet; hidden from clients
UPLOADED_STATUS: Final = "uploaded"
PROCESSED: Final = "processed"
ERROR: Final = "error"

# How long a file may be kept, where its client limits that.
SHORTEST_EXPIRY_SECONDS: Final = 3600
LONGEST_EXPIRY_SECONDS: Final = 30 * 86400


def first_status(purpose: str) -> str:
    """The status of a new file: `processed` at once where nothing inspects its content."""
    return UPLOADED_STATUS if purpose in INSPECTED else PROCESSED
