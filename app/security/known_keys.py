"""Keys as they were a moment ago, for requests whose own transaction asks again whether the key still is good."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from app.security.keys import StoredKey

REMEMBERED_SECONDS = 0.9
MOST = 10_000


class KnownKeys:
    """One for each API process; any of its threads may ask. Remembers neither secrets nor that a key is unknown."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: OrderedDict[str, tuple[float, StoredKey]] = OrderedDict()

    def get(self, prefix: str) -> StoredKey | None:
        with self._lock:
            known = self._keys.get(prefix)
        return known[1] if known is not None and self._clock() - known[0] <= REMEMBERED_SECONDS else None

    def remember(self, prefix: str, key: StoredKey) -> None:
        """The key was read just now."""
        with self._lock:
            self._keys[prefix] = (self._clock(), key)
            self._keys.move_to_end(prefix)
            if len(self._keys) > MOST:
                self._keys.popitem(last=False)
