"""A short-lived cache of keys, for requests whose own transaction verifies the key again."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from app.security.api_key_format import StoredKey

TTL_SECONDS = 0.9
MAX_KEYS = 10_000


class KeyCache:
    """Thread-safe, one per API process. Caches neither secrets nor unknown keys."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: OrderedDict[str, tuple[float, StoredKey]] = OrderedDict()

    def get(self, prefix: str) -> StoredKey | None:
        with self._lock:
            known = self._keys.get(prefix)
        return known[1] if known is not None and self._clock() - known[0] <= TTL_SECONDS else None

    def remember(self, prefix: str, key: StoredKey) -> None:
        """Cache a key that was just read from the database."""
        with self._lock:
            self._keys[prefix] = (self._clock(), key)
            self._keys.move_to_end(prefix)
            if len(self._keys) > MAX_KEYS:
                self._keys.popitem(last=False)
