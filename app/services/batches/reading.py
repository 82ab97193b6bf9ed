"""The files that are being validated, kept open from slice to slice: compressed ones can only be read from the start.

One per coordinator. What it holds is no state: another process reads the file again up to where the row says.
"""

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass

from app.domain.files.lines import Line
from app.models import Batch
from app.services.batches import content
from app.services.batches.content import StepInterrupted
from app.services.requests.control_plane import ControlPlane

MOST_OPEN = 16  # of batches that are validated at the same time; others wait for one of these to end
_LINES_BETWEEN_CHECKS = 1000


@dataclass
class LineReader:
    """A file that is read up to a line. ``bytes_read``: those of its lines, unpacked."""

    lines: Generator[Line]
    lines_read: int = 0
    bytes_read: int = 0

    def read(self) -> Line | None:
        """The next line; None at the end."""
        line = next(self.lines, None)
        if line is not None:
            self.lines_read += 1
            self.bytes_read += len(line.content) + 1
        return line


class Reading:
    def __init__(self) -> None:
        self._opened: dict[str, LineReader] = {}

    def of(self, plane: ControlPlane, batch: Batch, keep_on: Callable[[], bool]) -> LineReader | None:
        """The file after the lines that are checked; None while too many others are open.

        Raises ContentMissing, and StepInterrupted when ``keep_on`` says no.
        """
        opened = self._opened.get(batch.id)
        if opened is not None and opened.lines_read == batch.checked_lines:
            return opened
        self.close(batch.id)
        if len(self._opened) >= MOST_OPEN:
            return None
        opened = self._opened[batch.id] = LineReader(content.lines_of(plane, batch))
        for number in range(batch.checked_lines):
            if number % _LINES_BETWEEN_CHECKS == 0 and not keep_on():
                raise StepInterrupted
            opened.read()
        return opened

    def close(self, *batch_ids: str) -> None:
        """Close the files of these batches."""
        for batch_id in batch_ids:
            if (opened := self._opened.pop(batch_id, None)) is not None:
                opened.lines.close()

    def close_but(self, batch_ids: Collection[str]) -> None:
        """Close the files of all other batches, which have ended."""
        self.close(*(self._opened.keys() - set(batch_ids)))
