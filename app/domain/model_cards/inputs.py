"""What an attempt has read as its base model and as its data, as the event `job.inputs` records it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, TypeVar

Part = TypeVar("Part", "ReadModel", "ReadSource")


@dataclass(frozen=True, kw_only=True)
class ReadModel:
    """``commit``: of a hub's repository. ``sampled_sha256``: over name, size, first and last MiB of each file that
    loading reads, because reading all weights would delay the start; it can't prove that two models are equal.
    """

    commit: str | None = None
    sampled_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadSource:
    """``index``: in data_config.sources. ``sha256``: of its file; of several, over the hexadecimal digests of the
    files, one a line, in the order of their names; None where the node has not read them (local data of a script).
    ``size_bytes`` is None where the files are not known.
    """

    index: int
    size_bytes: int | None = None
    sha256: str | None = None
    commit: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadInputs:
    """``base`` is None for the result of a job, which has a hash of its own, and without a model."""

    base: ReadModel | None = None
    data: Sequence[ReadSource] = ()

    @property
    def is_known(self) -> bool:
        """Whether anything tells one content from another."""
        return self.base is not None or any(source.sha256 or source.commit for source in self.data)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, recorded: Mapping[str, Any]) -> Self:
        """A newer node may record fields that are unknown here; they are ignored."""
        base = recorded["base"]
        return cls(
            base=_part(ReadModel, base) if base is not None else None,
            data=tuple(_part(ReadSource, source) for source in recorded["data"]),
        )


def _part(of: type[Part], recorded: Mapping[str, Any]) -> Part:
    known = {each.name for each in fields(of)}
    return of(**{name: value for name, value in recorded.items() if name in known})
