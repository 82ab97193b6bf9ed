"""Comparison of evaluations: each metric that they share with the baseline, on the samples that both have measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, IllegalTransition, NotFound, TrainyardError
from app.domain.evaluations import catalog, comparison
from app.domain.evaluations.catalog import BadBenchmark, Metric
from app.domain.evaluations.results import samples_file
from app.domain.evaluations.samples import Sample
from app.domain.json_numbers import json_number
from app.domain.lifecycle.states import JobState
from app.domain.spec.inference import Benchmark
from app.models import Artifact
from app.security.permissions import Caller
from app.services.evaluations import listing
from app.services.evaluations.listing import EvaluationDetails
from app.services.jobs.details import details_of
from app.storage.keys import artifact_key
from app.storage.storage import Storage

FEWEST, MOST = 2, 8
# Files of samples are read by the API process, all of a comparison's benchmark at once.
MOST_BYTES = 64 << 20


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

    def value(self, name: str, metric: str) -> Any:  # noqa: ANN401  a number, the name of one that is not finite, or None
        return self.details.results.get(name, {}).get("metrics", {}).get(metric, {}).get("value")


@dataclass(frozen=True, kw_only=True)
class _Samples:
    """Of one benchmark in one evaluation; ``lacking`` says why there are none."""

    of: Evaluated
    samples: Sequence[Sample] = ()
    lacking: str = ""


def load(session: Session, caller: Caller, ids: Sequence[str]) -> list[Evaluated]:
    """Raises NotFound for what is no evaluation of the caller, IllegalTransition for one that has not completed."""
    jobs = [listing.find(session, caller, each) for each in ids]
    for job in jobs:
        if job.state is not JobState.COMPLETED:
            raise IllegalTransition(
                f"evaluation {job.id} is {job.status} and can't be compared; wait until it is COMPLETED, "
                "or leave it out",
                field="ids",
            )
    return [
        Evaluated(details=EvaluationDetails(details=each), sizes=_sizes(session, each.job.id))
        for each in details_of(session, jobs)
    ]


def compare(storage: Storage, evaluated: Sequence[Evaluated], baseline: str | None) -> dict[str, Any]:
    """Differences to the baseline, the first one unless it is named; reads files, so no transaction may be open."""
    first = baseline or evaluated[0].id
    base = next((each for each in evaluated if each.id == first), None)
    if base is None:
        raise BadSpec(f"{first} is none of ids; name one of them, or leave baseline out", field="baseline")
    others = [each for each in evaluated if each is not base]
    found = [row for each in base.details.section.benchmarks for row in _benchmark(storage, base, others, each)]
    return {"baseline": base.id, "comparisons": found}


def _benchmark(
    storage: Storage, base: Evaluated, others: Sequence[Evaluated], measured: Benchmark
) -> Iterator[dict[str, Any]]:
    label = catalog.label(measured.name)
    before = _read(storage, base, label)
    after = [_read(storage, each, label) for each in others]
    notes = [note for each in (before, *after) if (note := each.lacking)]
    notes += [note for each in after for note in _notes(before, each, measured, label)]
    for metric in _metrics(measured.name):
        yield {
            "benchmark": measured.name,
            "metric": metric.name,
            "values": {each.id: each.value(measured.name, metric.name) for each in (base, *others)},
            "differences": [row for each in after if (row := _difference(metric, before, each, base)) is not None],
            "notes": list(dict.fromkeys(notes)),
        }


def _metrics(name: str) -> Sequence[Metric]:
    try:
        return catalog.find(name).metrics
    except BadBenchmark:  # of another version
        return ()


def _difference(metric: Metric, before: _Samples, after: _Samples, base: Evaluated) -> dict[str, Any] | None:
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
    if theirs is not None and catalog.values(theirs) != catalog.values(measured):
        yield f"{after.of.id}: parameters differ from the baseline's"


def _read(storage: Storage, of: Evaluated, label: str) -> _Samples:
    if of.benchmark(label) is None:
        return _Samples(of=of, lacking=f"{of.id} has not measured it")
    size = of.sizes.get(label)
    if size is None:
        return _Samples(of=of, lacking=f"{of.id} has no samples of it")
    if size > MOST_BYTES:
        return _Samples(
            of=of, lacking=f"the samples of {of.id} are more than {MOST_BYTES >> 20} MB; measure fewer (num_samples)"
        )
    try:
        lines = storage.read(artifact_key(of.id, samples_file(label))).splitlines()
        return _Samples(of=of, samples=[Sample.from_line(line) for line in lines])
    except (NotFound, ValueError) as error:
        text = error.message if isinstance(error, TrainyardError) else str(error)
        return _Samples(of=of, lacking=f"the samples of {of.id} can't be read: {text}")


def _sizes(session: Session, job_id: str) -> dict[str, int]:
    """Bytes of the files of samples, by label."""
    begin, end = samples_file("|").split("|")
    mine = (Artifact.job_id == job_id, ~Artifact.pending, Artifact.path.startswith(begin, autoescape=True))
    rows = session.execute(select(Artifact.path, Artifact.size_bytes).where(*mine))
    return {row.path.removeprefix(begin).removesuffix(end): row.size_bytes for row in rows if row.path.endswith(end)}
