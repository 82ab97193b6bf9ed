"""Inspects the first records of an inference job or an evaluation, by the code that reads them on its node.

Without the model: what only its tokenizer knows is left to the node, and so is what users' code does.
"""

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from app.domain.spec.inference import EVALUATION, FAIL, OnRecordError, kind_of
from workers.rank.run_context import RunSpec
from workers.trainers.data.reading import where
from workers.trainers.data.records import nothing_in
from workers.trainers.data.selection import selected
from workers.trainers.data.sources import DataSource
from workers.trainers.failures import DataInvalid
from workers.trainers.inference.error_budget import ErrorBudget
from workers.trainers.inference.evaluation.inspection import inspect_benchmarks
from workers.trainers.inference.inputs import InputRow, Inputs, Shard
from workers.trainers.inference.parts import Counts, OutputPart
from workers.trainers.inference.rows import RECORD_INVALID, RecordError
from workers.trainers.inference.section import inference_of
from workers.trainers.inspection_sources import MOST_SHOWN, SOURCES, beginning, columns_of, described

READ_SECONDS = 45.0  # of all sources; what is not read then is left to the node

Findings = dict[str, Any]


@dataclass
class _Read:
    """What is known of one source after its first records; ``errors`` as those of a part of the output."""

    source: DataSource
    count: int = 0
    complete: bool = False  # there are no more records than these
    errors: list[dict[str, Any]] = field(default_factory=list)
    shown: list[dict[str, Any]] = field(default_factory=list)


def inspect_records(spec: RunSpec, most: int, findings: Findings) -> None:
    """Add the findings about the first ``most`` records of each source.

    Raises DataNotFound, DataInvalid and InvalidConfig for what would end the job on its node.
    """
    if kind_of(spec.training_type) == EVALUATION:
        inspect_benchmarks(spec, most, time.monotonic() + READ_SECONDS, findings)
        return
    inputs, section = Inputs(spec), inference_of(spec)
    inputs.check_columns(section.output.keep_columns)
    until, read = time.monotonic() + READ_SECONDS, []
    for source in inputs.sources:
        columns, found = columns_of(source), _read(inputs, source, most, until)
        read.append(found)
        findings[SOURCES].append(described(source, columns, found.count, found.shown, complete=found.complete))
    try:
        _refuse_errors(inputs, section.on_error, read, until)
    except TimeoutError as error:
        findings["left_out"].append(f"whether on_error.max_share allows the records without an answer: {error}")
    findings["warnings"] += [
        f"{len(each.errors)} of the first {each.count} records of {each.source.name} have no answer: "
        f"{each.errors[0]['message']}"
        for each in read
        if each.errors
    ]


def _read(inputs: Inputs, source: DataSource, most: int, until: float) -> _Read:
    found = _Read(source)
    with suppress(TimeoutError):
        _read_first(inputs, found, most, until)
        if found.complete and not found.count:
            raise nothing_in(source)
    return found


def _read_first(inputs: Inputs, found: _Read, most: int, until: float) -> None:
    """Raises TimeoutError after ``until``."""
    source = found.source
    # Which records are drawn is known only when all are read.
    for file, row in selected(replace(source, sampling=None, read_until=until)):
        if found.count >= most:
            return
        place = where(file, source.format, row.number)
        try:
            record = inputs.record(InputRow(found.count, place, row.values, row.number))
        except DataInvalid as error:
            found.errors.append({"index": found.count, **RecordError(RECORD_INVALID, str(error), place).to_json()})
        else:
            if len(found.shown) < MOST_SHOWN:
                found.shown.append(beginning(record, None))
        found.count += 1
    found.complete = True


def _refuse_errors(inputs: Inputs, rule: OnRecordError, read: list[_Read], until: float) -> None:
    """Raise DataInvalid, as the job would, for more records without an answer than it allows, and TimeoutError where
    ``until`` leaves no time to count all.
    """
    whole = [each for each in read if each.source.sampling is None]
    errors = [error for each in whole for error in each.errors]
    if not errors:
        return
    total = len(errors)
    if rule.action != FAIL:
        total = sum(each.count for each in whole)
        if len(errors) > rule.max_share * total:
            total = sum(1 for source in inputs.sources for _ in selected(replace(source, read_until=until)))
    ErrorBudget(rule, total).spend(OutputPart(Shard(0, 0, total), Counts(failed=len(errors)), tuple(errors)))
