"""When the side jobs of a loop are due: each at most once per interval."""


class DueTimes:
    """By name; the first time is now. Used by one thread."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}

    def is_due(self, what: str, every_seconds: float, now: float) -> bool:
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every_seconds
        return True
