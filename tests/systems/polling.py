"""How often tests poll other processes for what they wait for."""

import time
from collections.abc import Iterator

SHORTEST_SECONDS = 0.05
SHARE, MOST = 0.05, 4.0  # a pause is this part of the time that was waited, and at most so many times the shortest


def polls(seconds: float, *, shortest: float = SHORTEST_SECONDS) -> Iterator[None]:
    """One for each poll until the time is over, with pauses between them that grow with the time that was waited.

    A poll takes the time of the process that is asked: ten in each second are a fifteenth of a core.
    """
    began = time.monotonic()
    while True:
        yield
        if (waited := time.monotonic() - began) >= seconds:
            return
        time.sleep(min(max(shortest, SHARE * waited), MOST * shortest))
