"""What a rank's complete directory becomes: a checkpoint of a training, or a shard of any other job."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from app.services.attempts import checkpoints, shards
from app.services.attempts.checkpoints import NewCheckpoint
from app.services.attempts.shards import NewShard
from app.storage.object_keys import checkpoint_key, shard_key
from trainyard.protocol import checkpoint_manifest as _manifest
from trainyard.protocol.checkpoint_manifest import Manifest
from trainyard.protocol.messages import CheckpointReady
from workers.prepare.inputs.recorded_digests import SOURCES, digests_in
from workers.supervisor.recording.context import AttemptContext
from workers.supervisor.recording.takeover import CheckpointRefused

MOST_NUMBER = 2**31 - 1  # of the table's columns
MOST_RECORD = 2**62
MOST_COUNTS = 50
COUNT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class LedgerEntry(Protocol):
    """One directory: where its files are stored, and how they are recorded then.

    ``record`` returns the keys of what it replaces or retires, whose files may be deleted; it is idempotent, and raises
    LeaseLost under a stale token.
    """

    @property
    def key(self) -> str: ...

    @property
    def shown_id(self) -> str:
        """Its name in the answer to the ranks."""

    def record(self) -> tuple[str, ...]: ...

    def is_recorded(self) -> bool: ...


class Ledger(Protocol):
    """``noun`` is what its entries are called in messages."""

    noun: str

    def entry(self, ready: CheckpointReady, manifest: Manifest) -> LedgerEntry:
        """The entry of a verified directory. Raises CheckpointRefused."""

    def describe(self, step: int) -> str:
        """What was offered, in messages."""

    def begin(self, finished: Iterable[int], most: int) -> None:
        """Before ranks start: the shards that the attempt has taken over, and how many there may be; 0: any number."""


def ledger_of(on: AttemptContext) -> Ledger:
    return CheckpointLedger(on) if on.work.is_training else ShardLedger(on)


@dataclass(frozen=True)
class _CheckpointEntry:
    on: AttemptContext
    new: NewCheckpoint
    key: str

    @property
    def shown_id(self) -> str:
        return self.new.checkpoint_id

    def record(self) -> tuple[str, ...]:
        work = self.on.work
        recorded = checkpoints.record(
            self.on.db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, actor=work.actor, new=self.new
        )
        return tuple(checkpoint_key(work.job_id, checkpoint_id) for checkpoint_id, _ in recorded.prune)

    def is_recorded(self) -> bool:
        return checkpoints.is_recorded(self.on.db, self.new.checkpoint_id)


class CheckpointLedger:
    """Records checkpoints."""

    noun = "checkpoint"

    def __init__(self, on: AttemptContext) -> None:
        self._on = on

    def entry(self, ready: CheckpointReady, manifest: Manifest) -> LedgerEntry:
        work, checkpoint_id = self._on.work, checkpoints.new_checkpoint_id()
        key = checkpoint_key(work.job_id, checkpoint_id)
        new = NewCheckpoint(
            checkpoint_id=checkpoint_id,
            # Validated numbers; those of the manifest are not.
            step=ready.step,
            epoch=ready.epoch,
            world_size=work.saving_ranks,
            threads_per_rank=work.threads_per_rank,
            size_bytes=manifest.size_bytes,
            sha256=_manifest.digest(manifest),
            uri=self._on.storage.uri(key),
            # PostgreSQL's JSON knows no NaN, and no checkpoint is best by one.
            metrics={name: value for name, value in ready.metrics.items() if abs(value) < float("inf")},
        )
        return _CheckpointEntry(self._on, new, key)

    def describe(self, step: int) -> str:
        return f"checkpoint at step {step}"

    def begin(self, finished: Iterable[int], most: int) -> None:
        """Checkpoints are not numbered."""


@dataclass(frozen=True)
class _ShardEntry:
    ledger: "ShardLedger"
    new: NewShard
    key: str

    @property
    def shown_id(self) -> str:
        return f"shard {self.new.number}"

    def record(self) -> tuple[str, ...]:
        on, work, number = self.ledger.on, self.ledger.on.work, self.new.number
        replaced = shards.record(on.db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, new=self.new)
        self.ledger.finished.add(number)
        return () if replaced is None else (shard_key(work.job_id, number, replaced),)

    def is_recorded(self) -> bool:
        on = self.ledger.on
        return shards.is_recorded(on.db, on.work.job_id, self.new.number, self.new.uri)


class ShardLedger:
    """Records shards; each number once in an attempt, because its key names number and fencing token. Of those that
    earlier attempts have stored it replaces only the ones that this attempt could not take over.
    """

    noun = "shard"

    def __init__(self, on: AttemptContext) -> None:
        self.on = on
        self.finished: set[int] = set()
        self._most = 0
        inference = on.work.document.inference
        self._benchmarks = len(inference.benchmarks) if inference is not None else 0
        self._size = inference.output.shard_records if inference is not None else 0

    def begin(self, finished: Iterable[int], most: int) -> None:
        self.finished.update(finished)
        self._most = most

    def entry(self, ready: CheckpointReady, manifest: Manifest) -> LedgerEntry:
        del ready  # its step is that of all shards together
        work, position = self.on.work, manifest.data_position
        number, first, records = (_whole(position, name) for name in ("shard", "first_record", "records"))
        self._check(number, first, records)
        if digests_in(position) is None:
            raise CheckpointRefused(f"data_position.{SOURCES} of its manifest is no list of digests")
        key = shard_key(work.job_id, number, work.fence)
        new = NewShard(
            number=number,
            first_record=first,
            records=records,
            size_bytes=manifest.size_bytes,
            sha256=_manifest.digest(manifest),
            uri=self.on.storage.uri(key),
            counts=_counts(position.get("counts", {})),
        )
        return _ShardEntry(self, new, key)

    def describe(self, step: int) -> str:
        return f"a shard, with which {step} {'benchmarks' if self._benchmarks else 'records'} are done,"

    def _check(self, number: int, first: int, records: int) -> None:
        """Refuse what the job's document does not cut this way, and what this attempt has stored already."""
        if self._benchmarks:
            if number >= self._benchmarks:
                raise CheckpointRefused(f"shard {number} is of no benchmark: there are {self._benchmarks}")
        elif first != number * self._size or not 1 <= records <= self._size:
            what = f"shard {number} has {records} records from {first} on"
            raise CheckpointRefused(f"{what}; output.shard_records cuts them into {self._size} records each")
        elif self._most and number >= self._most:
            raise CheckpointRefused(f"shard {number} is too many: an output has at most {self._most} files")
        if number in self.finished:
            raise CheckpointRefused(f"shard {number} is stored already")


def _whole(position: Mapping[str, Any], name: str) -> int:
    value = position.get(name)
    most = MOST_RECORD if name == "first_record" else MOST_NUMBER
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise CheckpointRefused(f"data_position.{name} of its manifest is no whole number from 0 to {most}")
    return value


def _counts(given: object) -> dict[str, float]:
    """Finite numbers by name: JSON of a database holds no others."""
    if not isinstance(given, Mapping) or len(given) > MOST_COUNTS:
        raise CheckpointRefused(f"data_position.counts of its manifest is no object of at most {MOST_COUNTS} numbers")
    for name, value in given.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) <= MOST_RECORD or COUNT_NAME.fullmatch(str(name)) is None:
            raise CheckpointRefused(f"data_position.counts of its manifest has no number by the name {str(name)!r:.80}")
    return dict(given)
