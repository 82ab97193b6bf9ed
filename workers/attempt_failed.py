"""The exception that fails an attempt, with the error type shown to users."""


class AttemptFailed(Exception):
    """Ends the attempt as failed; ``error_type`` is one of ``domain.errors.ERROR_TYPES``."""

    def __init__(self, error_type: str, message: str, stack: str = "") -> None:
        super().__init__(f"{error_type}: {message}")
        self.error_type = error_type
        self.message = message
        self.stack = stack
