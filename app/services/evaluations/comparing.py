"""Comparison of evaluations: each metric that they share with the baseline, on the samples that both have measured."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, IllegalTransition, NotFound, TrainyardError
from app.domain.evaluations import catalog, comparison, open_metrics
from app.domain.evaluations.catalog import BadBenchmark
from app.domain.evaluations.metric import MetricDefinition
from app.domain.evaluations.results import samples_file
from app.domain.evaluations.samples import Sample
from app.domain.json_numbers import json_number
from app.domain.lifecycle.states import JobState
from app.domain.spec.inference import Benchmark
from app.models import Artifact, Job
from app.security.permissions import Caller
from app.services.evaluations import listing
from app.services.evaluations.listing import EvaluationDetails
from app.services.jobs.details import details_of
from app.storage.object_keys import artifact_key
from app.storage.storage import Storage

FEWEST, MOST = 2, 8
# Files of samples are read by the API process. This much time and memory may a comparison take there.
MOST_BYTES = 64 << 20
MOST_SAMPLES = 250_000  # of one benchmark, which are in memory together
MOST_DIFFERENCES = 32


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A completed evaluation; ``sizes``: bytes of its files of samples, by label."""

    details: EvaluationDetails
    sizes: Mapping[str, int]

    @property
    def id(self) -> str:
        return str(self.details.job.id)

    def benchmark(self, label: str) -> Benchmark | None:
        return next((each for each in self.details.section.benchmarks if catalog.label(each.name) == label), None)

    def metrics(self, name: str) -> Sequence[MetricDefinition]:
        """Those of the benchmark; of `judge` and tasks of the harness those that it has measured here."""
        try:
            kind = catalog.find(name)
        except BadBenchmark:  # of another version
            return ()
        found = open_metrics.measured(kind, self.details.results.get(name, {}).get("metrics", {}))
        return found or kind.metrics

    def value(self, name: str, metric: str) -> float | str | None:
        """A number, the name of one that is not finite, or None."""
        found: float | str | None = self.details.results.get(name, {}).get("metrics", {}).get(metric, {}).get("value")
        return found


@dataclass(frozen=True, kw_only=True)
class _Samples:
    """Of one benchmark in one evaluation; ``lacking`` says why there are none."""

    of: Evaluated
    samples: Sequence[Sample] = ()
    lacking: str = ""


def load(session: Session, caller: Caller, ids: Sequence[str]) -> list[Evaluated]:
    """Raises NotFound for what is no evaluation of the caller, IllegalTransition for one that has not completed."""
    jobs = [_found(session, caller, each, f"ids.{number}") for number, each in enumerate(ids)]
    for number, job in enumerate(jobs):
        if job.state is not JobState.COMPLETED:
            raise IllegalTransition(
                f"evaluation {job.id} is {job.status} and can't be compared; wait until it is COMPLETED, "
                "or leave it out",
                field=f"ids.{number}",
            )
    return [
        Evaluated(details=EvaluationDetails(details=each), sizes=_sizes(session, each.job.id))
        for each in details_of(session, jobs)
    ]


def _found(session: Session, caller: Caller, evaluation_id: str, field: str) -> Job:
    try:
        return listing.find(session, caller, evaluation_id)
    except NotFound as error:
        error.field = field
        raise


def compare(storage: Storage, evaluated: Sequence[Evaluated], baseline: str | None) -> dict[str, Any]:
    """Differences to the baseline, the first one unless it is named; reads files, so no transaction may be open."""
    first = baseline or evaluated[0].id
    base = next((each for each in evaluated if each.id == first), None)
    if base is None:
        raise BadSpec(f"{first} is none of ids; name one of them, or leave baseline out", field="baseline")
    others = [each for each in evaluated if each is not base]
    _refuse_large(base, others)
    found = [row for each in base.details.section.benchmarks for row in _benchmark(storage, base, others, each)]
    return {"baseline": base.id, "comparisons": found}


def _benchmark(
    storage: Storage, base: Evaluated, others: Sequence[Evaluated], measured: Benchmark
) -> Iterator[dict[str, Any]]:
    label, metrics = catalog.label(measured.name), base.metrics(measured.name)
    if not metrics:
        return
    most, names = MOST_SAMPLES // (1 + len(others)), {each.name for each in metrics}
    before, *after = [_read(storage, each, measured, names, most) for each in (base, *others)]
    notes = [note for each in (before, *after) if (note := each.lacking)]
    notes += [note for each in after for note in _notes(before, each, measured, label)]
    for metric in _as_scored(measured.name, metrics, before.samples):
        yield {
            "benchmark": measured.name,
            "metric": metric.name,
            "values": {each.id: each.value(measured.name, metric.name) for each in (base, *others)},
            "differences": [row for each in after if (row := _difference(metric, before, each, base)) is not None],
            "notes": list(dict.fromkeys(notes)),
        }


def _as_scored(name: str, metrics: Sequence[MetricDefinition], samples: Sequence[Sample]) -> Sequence[MetricDefinition]:
    if catalog.find(name).metrics:
        return metrics
    return [open_metrics.of_samples(each, samples) for each in metrics]


def _difference(metric: MetricDefinition, before: _Samples, after: _Samples, base: Evaluated) -> dict[str, Any] | None:
    pairs = comparison.paired(before.samples, after.samples)
    found = comparison.compare(metric, pairs, base.details.section.seed) if pairs else None
    if found is None:
        return None
    interval = [json_number(end) for end in found.interval] if found.interval is not None else None
    return {
        "id": after.of.id,
        "difference": json_number(found.difference),
        "interval": interval,
        "p_value": found.p_value,
        "n": found.n,
        "changes": found.changes,
        "changed": [
            {"index": each.index, "value_before": json_number(each.before), "value_after": json_number(each.after)}
            for each in found.changed
        ],
    }


def _notes(before: _Samples, after: _Samples, measured: Benchmark, label: str) -> Iterator[str]:
    seeds = (before.of.details.section.seed, after.of.details.section.seed)
    theirs = after.of.benchmark(label)
    if before.samples and after.samples:
        yield from (f"{after.of.id}: {note}" for note in comparison.notes(before.samples, after.samples, seeds))
    if theirs is not None and not after.lacking and catalog.values(theirs) != catalog.values(measured):
        yield f"{after.of.id}: parameters differ from the baseline's"


def _refuse_large(base: Evaluated, others: Sequence[Evaluated]) -> None:
    """Raise BadSpec where the comparison would take this process too long, or too much memory."""
    names = [each.name for each in base.details.section.benchmarks]
    differences = sum(len(base.metrics(name)) for name in names) * len(others)
    if differences > MOST_DIFFERENCES:
        raise BadSpec(
            f"these are {differences} differences, benchmarks by metrics and evaluations, and a comparison has at most "
            f"{MOST_DIFFERENCES}; compare fewer evaluations at once",
            field="ids",
        )
    size = sum(each.sizes.get(catalog.label(name), 0) for name in names for each in (base, *others))
    if size > MOST_BYTES:
        raise BadSpec(
            f"the samples of these evaluations are {size >> 20} MB, and a comparison reads at most {MOST_BYTES >> 20}; "
            "compare fewer evaluations at once, or evaluate on fewer records (num_samples)",
            field="ids",
        )


def _read(storage: Storage, of: Evaluated, measured: Benchmark, metrics: Collection[str], most: int) -> _Samples:
    label = catalog.label(measured.name)
    theirs = of.benchmark(label)
    if theirs is None or theirs.name != measured.name:
        instead = f", but {theirs.name}" if theirs is not None else ""
        return _Samples(of=of, lacking=f"{of.id} has not measured it{instead}")
    if label not in of.sizes:
        return _Samples(of=of, lacking=f"{of.id} has no samples of it")
    try:
        content = storage.read(artifact_key(of.id, samples_file(label)))
        return _Samples(of=of, samples=_parsed(content, metrics, most))
    except (NotFound, ValueError) as error:
        text = error.message if isinstance(error, TrainyardError) else str(error)
        return _Samples(of=of, lacking=f"the samples of {of.id} can't be read: {text}")


def _parsed(content: bytes, metrics: Collection[str], most: int) -> list[Sample]:
    """Raises ValueError for what is no file of samples, and for more of them than fit."""
    found = []
    for number, line in enumerate(BytesIO(content)):
        if number >= most:
            raise ValueError(f"they are more than {most}; compare fewer evaluations at once, or evaluate on fewer")
        found.append(Sample.from_line(line).scored(metrics))
    return found


def _sizes(session: Session, job_id: str) -> dict[str, int]:
    """Bytes of the files of samples, by label."""
    begin, end = samples_file("|").split("|")
    mine = (Artifact.job_id == job_id, ~Artifact.pending, Artifact.path.startswith(begin, autoescape=True))
    rows = session.execute(select(Artifact.path, Artifact.size_bytes).where(*mine))
    return {row.path.removeprefix(begin).removesuffix(end): row.size_bytes for row in rows if row.path.endswith(end)}
