"""Whether a loop's coordinator leads, as a test says."""


class Leading:
    def __init__(self) -> None:
        self.leads = False

    def __call__(self) -> bool:
        return self.leads
