"""Inspects the benchmarks of an evaluation before it has a device: their first records, and the files of tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.domain.evaluations import catalog
from app.domain.spec.frameworks.requirements import EVALUATE
from app.domain.spec.hyperparameters.rlhf import FILE, REWARD_MODEL, reward_kind
from app.domain.spec.inference import GENERATE, LM_EVAL, TASK_DIR, Benchmark
from workers.rank.run_context import RunSpec
from workers.trainers.inference.evaluation.choice_columns import ChoiceColumns
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.scorers import COMPARING, comparing
from workers.trainers.inference.evaluation.scoring import Located
from workers.trainers.inference.evaluation.user_scorers import check_compared
from workers.trainers.inference.section import inference_of
from workers.trainers.inspection_sources import MOST_SHOWN, SOURCES, beginning, columns_of, described
from workers.trainers.rewards import reward_of

Findings = dict[str, Any]


def inspect_benchmarks(spec: RunSpec, most: int, until: float, findings: Findings) -> None:
    """Add the findings about the first ``most`` records of each benchmark, of those that are read ``until`` then.

    Raises DataNotFound, DataInvalid, InvalidConfig and TaskFailed for what would end the evaluation on its node.
    """
    for benchmark in inference_of(spec).benchmarks:
        if catalog.find(benchmark.name).name == LM_EVAL:
            _inspect_task(spec, benchmark, findings)
        else:
            try:
                _inspect_dataset(spec, benchmark, most, until, findings)
            except TimeoutError as error:
                findings["left_out"].append(f"benchmark {benchmark.name}: {error}")


def _inspect_dataset(spec: RunSpec, benchmark: Benchmark, most: int, until: float, findings: Findings) -> None:
    limit = min(benchmark.num_samples or most, most)
    dataset, values = Dataset(spec, benchmark.changed(num_samples=limit)), catalog.values(benchmark)
    dataset.source = replace(dataset.source, read_until=until)
    columns = columns_of(dataset.source)
    records = dataset.records(_method(benchmark, values))
    _check_columns(dataset, values, records)
    if dataset.source.index not in {each["index"] for each in findings[SOURCES]}:
        first = [beginning(record, None) for _, record in records[:MOST_SHOWN]]
        findings[SOURCES].append(described(dataset.source, columns, len(records), first, complete=len(records) < limit))


def _method(benchmark: Benchmark, values: Mapping[str, Any]) -> str:
    """Whose records those of the benchmark are shaped as."""
    if benchmark.name in (catalog.LOSS, catalog.PERPLEXITY):
        return str(values["records_as"])
    return "DPO" if benchmark.name == catalog.PREFERENCE else GENERATE


def _check_columns(dataset: Dataset, values: Mapping[str, Any], records: Sequence[Located]) -> None:
    """Raises DataInvalid and InvalidConfig."""
    name = dataset.benchmark.name
    if name == catalog.CHOICES:
        choices = ChoiceColumns(dataset, values)
        for row, record in records:
            choices.read(row, record)
    elif name in COMPARING:
        comparing(dataset, values).check(records)
    elif name == catalog.REWARD and values[REWARD_MODEL] is None:
        said = str(values[catalog.REWARD])
        if reward_kind(said)[0] != FILE:  # user code is left to the node
            reward_of(said, sorted({column for _, record in records for column in record["columns"]}))
            check_compared(said, dataset, records)


def _inspect_task(spec: RunSpec, benchmark: Benchmark, findings: Findings) -> None:
    """Raises DataNotFound, InvalidConfig and TaskFailed."""
    try:
        from workers.trainers.inference.evaluation.harness.task_files import check_place  # noqa: PLC0415  an extra
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != EVALUATE.module:
            raise
        findings["left_out"].append(f"benchmark {benchmark.name}: this coordinator has no {EVALUATE.module}")
        return
    directory = catalog.values(benchmark)[TASK_DIR]
    check_place(catalog.argument(benchmark.name), Path(spec.benchmark_files.get(directory, directory)))
