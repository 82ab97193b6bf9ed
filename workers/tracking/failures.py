"""Why something could not be delivered to a tracking service."""

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses of answers after which another try may succeed


class NotDelivered(Exception):
    """``refused``: the service was reached and said no, which does not pass by itself."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.refused = refused


class ProcessEnded(NotDelivered):
    """The process that speaks to the service has ended, which says nothing about the service."""

    def __init__(self) -> None:
        super().__init__("the process that speaks to it has ended")
