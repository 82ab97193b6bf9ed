"""POST /v1/evaluations/compare: differences on the same samples, and what makes evaluations less comparable."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.evaluations.samples import Sample, digest
from app.domain.lifecycle.states import JobState
from app.models import Artifact
from tests.builders.factories import make_job
from tests.builders.shards import batch_document
from tests.systems.apps import Api


def measured(
    api: Api,
    rights: Sequence[int],
    *,
    state: JobState = JobState.COMPLETED,
    benchmark: dict[str, Any] | None = None,
    seed: int = 0,
    first: int = 0,
    stores: bool = True,
) -> str:
    """An evaluation of exact_match with a right or wrong answer to each record from the first on."""
    benchmark = {"name": "exact_match", "dataset": 0, **(benchmark or {})}
    document = batch_document(benchmarks=1, inference={"benchmarks": [benchmark], "seed": seed})
    value = sum(rights) / len(rights)
    result = {"metrics": {"exact_match": {"value": value, "stderr": 0.1}}, "n": len(rights), "seconds": 1.5}
    lines = [
        Sample(index=i, doc_hash=digest(i), prompt_hash=digest(i), scores={"exact_match": float(right)}).to_line()
        for i, right in enumerate(rights, start=first)
    ]
    content = ("\n".join(lines) + "\n").encode()
    with api.db.write() as session:
        job = make_job(session, state=state, document=document, report={"benchmarks": {"exact_match": result}})
        path = "samples-exact_match.jsonl"
        if stores:
            session.add(Artifact(job_id=job.id, path=path, size_bytes=len(content), sha256="0" * 64))
    if stores:
        api.app.extensions["trainyard"].plane.storage.write(f"jobs/{job.id}/artifacts/{path}", content)
    return str(job.id)


def compared(api: Api, *ids: str, **more: Any) -> Any:
    return api.data(api.post("/v1/evaluations/compare", {"ids": list(ids), **more}))


@pytest.mark.both_databases
def test_results_have_value_error_and_samples(api: Api) -> None:
    evaluation = measured(api, [1, 0])

    shown = api.get(f"/v1/evaluations/{evaluation}")

    assert shown["results"] == {
        "exact_match": {"metrics": {"exact_match": {"value": 0.5, "stderr": 0.1}}, "n": 2, "seconds": 1.5}
    }


@pytest.mark.both_databases
def test_difference_is_that_of_the_same_samples_with_interval_and_p(api: Api) -> None:
    base, better = measured(api, [0] * 10 + [1] * 10), measured(api, [1] * 8 + [0] * 2 + [1] * 10)

    answer = compared(api, base, better)

    (row,) = answer["comparisons"]
    assert (answer["baseline"], row["benchmark"], row["metric"], row["notes"]) == (
        base,
        "exact_match",
        "exact_match",
        [],
    )
    assert row["values"] == {base: 0.5, better: 0.9}
    (difference,) = row["differences"]
    assert (difference["id"], difference["n"], difference["changes"]) == (better, 20, 8)
    assert difference["difference"] == pytest.approx(0.4)
    low, high = difference["interval"]
    assert 0 < low < 0.4 < high < 0.7
    assert difference["p_value"] == pytest.approx(2 * 0.5**8)
    assert difference["changed"][0] == {"index": 0, "from": 0.0, "to": 1.0}


def test_baseline_is_the_named_one(api: Api) -> None:
    one, two = measured(api, [0, 0]), measured(api, [1, 1])

    answer = compared(api, one, two, baseline=two)

    assert answer["baseline"] == two
    assert answer["comparisons"][0]["differences"][0]["difference"] == -1.0


def test_notes_say_which_samples_seeds_and_parameters_differ(api: Api) -> None:
    base = measured(api, [0, 0, 1])
    other = measured(api, [1, 1, 1], first=1, seed=4, benchmark={"parameters": {"normalize": "squad"}})

    (row,) = compared(api, base, other)["comparisons"]

    notes = " ".join(row["notes"])
    assert ("samples differ: 2 are in both" in notes, "seeds differ: 0 and 4" in notes) == (True, True)
    assert "parameters differ" in notes
    assert row["differences"][0]["n"] == 2


def test_evaluation_without_samples_has_values_alone(api: Api) -> None:
    base, other = measured(api, [0, 1]), measured(api, [1, 1], stores=False)

    (row,) = compared(api, base, other)["comparisons"]

    assert (row["values"], row["differences"]) == ({base: 0.5, other: 1.0}, [])
    assert row["notes"] == [f"{other} has no samples of it"]


def test_bad_comparisons_name_the_rule(api: Api) -> None:
    done, running = measured(api, [1, 0]), measured(api, [1], state=JobState.EVALUATING)

    def refused(status: int, *ids: str, **more: Any) -> str:
        answer = api.post("/v1/evaluations/compare", {"ids": list(ids), **more})
        return str(api.problem(answer, status))

    assert "wait until it is COMPLETED" in refused(409, done, running)
    assert "is none of ids" in refused(400, done, measured(api, [1, 1]), baseline="job-1")
    assert "no evaluation" in refused(404, done, api.submit())
    assert "2 to 8" in refused(422, done)
    assert "named twice" in refused(422, done, done)
