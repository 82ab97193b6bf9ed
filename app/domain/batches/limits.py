"""How much one batch may have; the inspection of its file limits its requests."""

from typing import Final

MOST_BYTES: Final = 200 * 1024 * 1024
MOST_MODELS: Final = 100  # each is a job
MOST_PROBLEMS: Final = 100  # that are listed
LONGEST_MODEL: Final = 1024
HOUR_SECONDS: Final = 3600
LONGEST_WINDOW_SECONDS: Final = 30 * 24 * HOUR_SECONDS
