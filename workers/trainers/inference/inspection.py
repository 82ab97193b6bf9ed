"""Inspects the first records of an inference job or an evaluation, by the code that reads them on its node.

Without the model: what only its tokenizer knows is left to the node, and so is what users' code does.
"""

import time
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
        inspect_benchmarks(spec, most, findings)
        return
    inputs, section = Inputs(spec), inference_of(spec)
    inputs.check_columns(section.output.keep_columns)
    until, read = time.monotonic() + READ_SECONDS, []
    for source in inputs.sources:
        columns, found = columns_of(source), _read(inputs, source, most, until)
        read.append(found)
        findings[SOURCES].append(described(source, columns, found.count, found.shown, complete=found.complete))
    _refuse_errors(inputs, section.on_error, read)
    findings["warnings"] += [
        f"{len(each.errors)} of the first {each.count} records of {each.source.name} have no answer: "
        f"{each.errors[0]['message']}"
        for each in read
        if each.errors
    ]


def _read(inputs: Inputs, source: DataSource, most: int, until: float) -> _Read:
    found = _Read(source)
    # Which records are drawn is known only when all are read.
    for file, row in selected(replace(source, sampling=None)):
        if found.count >= most or time.monotonic() > until:
            return found
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
    if not found.count:
        raise nothing_in(source)
    return found


def _refuse_errors(inputs: Inputs, rule: OnRecordError, read: list[_Read]) -> None:
    """Raise DataInvalid, as the job would, for more records without an answer than it allows."""
    errors = [error for each in read if each.source.sampling is None for error in each.errors]
    if errors:
        total = len(errors) if rule.action == FAIL else inputs.count()
        ErrorBudget(rule, total).spend(OutputPart(Shard(0, 0, total), Counts(failed=len(errors)), tuple(errors)))
