"""Reads single tensors, or parts of them, from a checkpoint in torch's distributed format, without a process group.

FSDP and Megatron write it; what one rank has written is joined with the parts of the others.
"""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load


class StoredTensors:
    """The tensors of one directory, by name; in memory are what is asked for and one stored part."""

    def __init__(self, directory: Path) -> None:
        self._reader = _Reader(directory)

    def __iter__(self) -> Iterator[str]:
        """Their names."""
        known = self._reader.known.state_dict_metadata
        yield from (name for name, stored in known.items() if isinstance(stored, TensorStorageMetadata))

    def whole(self, name: str) -> torch.Tensor:
        """Raises KeyError, and what torch raises for damaged files."""
        stored = self._described(name)
        return self._read(name, stored, torch.Size([0] * len(stored.size)), stored.size)

    def row(self, name: str, number: int) -> torch.Tensor:
        """``whole(name)[number]``; each stored part that has some of it is read as a whole, one after the other."""
        stored = self._described(name)
        first, *rest = [0] * len(stored.size)
        offsets, sizes = torch.Size([first + number, *rest]), torch.Size([1, *stored.size[1:]])
        return self._read(name, stored, offsets, sizes)[0]

    def _described(self, name: str) -> TensorStorageMetadata:
        found = self._reader.known.state_dict_metadata[name]
        if not isinstance(found, TensorStorageMetadata):
            raise KeyError(name)
        return found

    def _read(self, name: str, stored: TensorStorageMetadata, offsets: torch.Size, sizes: torch.Size) -> torch.Tensor:
        into = torch.empty(sizes, dtype=stored.properties.dtype)
        items = create_read_items_for_chunk_list(name, stored, [ChunkStorageMetadata(offsets=offsets, sizes=sizes)])
        if sum(each.lengths.numel() for each in items) != into.numel():
            raise ValueError(f"the parts of {name} do not make up the whole")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            try:
                load({name: into}, storage_reader=self._reader, planner=_Planner(items, into), no_dist=True)
            except CheckpointException as error:
                # Not an Exception: no caller would catch it or see its cause.
                cause, _ = next(iter(error.failures.values()))
                raise cause from error
        return into


class _Reader(FileSystemReader):
    """Reads the metadata once, which are large where there were many ranks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.known = super().read_metadata()

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        return self.known


class _Planner(LoadPlanner):
    """Reads these items into one tensor."""

    def __init__(self, items: list[ReadItem], into: torch.Tensor) -> None:
        self._items = items
        self._into = into

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,  # noqa: FBT001, FBT002  (torch's signature)
    ) -> None:
        """All is known."""

    def create_local_plan(self) -> LoadPlan:
        return LoadPlan(self._items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:  # noqa: ARG002
        raise TypeError(f"{read_item.dest_index.fqn} is no tensor")

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        found: torch.Tensor = narrow_tensor_by_index(self._into, read_item.dest_offsets, read_item.lengths)
        return found

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """It was read into its place."""
