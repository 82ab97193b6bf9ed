"""How the ranks of a node share the shards: each claims the next free one, rank 0 hands all of them over."""

import os
from pathlib import Path


class Claims:
    """Files in the scratch directory of an attempt; a new attempt begins with none."""

    def __init__(self, work_dir: Path) -> None:
        self._claims = work_dir / "claims"
        self._parts = work_dir / "parts"
        self._done = work_dir / "done"
        for directory in (self._claims, self._parts, self._done):
            directory.mkdir(parents=True, exist_ok=True)
        self._sign = work_dir / "advances"
        self._seen = 0.0
        self.advances = 0  # seen by this rank

    def claim(self, number: int) -> bool:
        """Whether this rank is the one to answer the shard."""
        try:
            os.close(os.open(self._claims / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def advance(self, tokens: int) -> None:
        """Show rank 0 that this rank computes."""
        del tokens  # those of several ranks would have to be added up
        self._sign.touch()

    def advanced(self) -> bool:
        """Whether another rank has shown that since the last call."""
        try:
            at = self._sign.stat().st_mtime
        except FileNotFoundError:
            return False
        has_advanced, self._seen = at != self._seen, at
        self.advances += has_advanced
        return has_advanced

    def part_directory(self, number: int) -> Path:
        """Where a rank writes a part; it does not exist yet."""
        return self._parts / str(number)

    def leave(self, number: int) -> None:
        """Leave a written part for rank 0."""
        self.part_directory(number).rename(self._done / str(number))

    def left(self) -> list[int]:
        """The shards whose parts other ranks have left by now."""
        return sorted(int(path.name) for path in self._done.iterdir())

    def take(self, number: int) -> Path:
        """The directory of such a part, which now belongs to the caller."""
        taken = self.part_directory(number)
        self._done.joinpath(str(number)).rename(taken)
        return taken
