"""POST /v1/evaluations/compare: differences on the same samples, and what makes evaluations less comparable."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.evaluations import catalog
from app.domain.evaluations.results import samples_file
from app.domain.evaluations.samples import Sample, digest
from app.domain.lifecycle.states import JobState
from app.models import Artifact
from app.services.evaluations import comparing
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
    content: bytes | None = None,
) -> str:
    """An evaluation, of exact_match by default, with a right or wrong answer to each record from the first on."""
    benchmark = {"name": "exact_match", "dataset": 0, **(benchmark or {})}
    document = batch_document(benchmarks=1, inference={"benchmarks": [benchmark], "seed": seed})
    label = catalog.label(benchmark["name"])
    metric = next((each.name for each in catalog.find(benchmark["name"]).metrics), "acc")
    value = sum(rights) / len(rights)
    result = {"metrics": {metric: {"value": value, "stderr": 0.1}}, "n": len(rights), "seconds": 1.5}
    lines = [
        Sample(index=i, doc_hash=digest(i), prompt_hash=digest(i), scores={metric: float(right)}).to_line()
        for i, right in enumerate(rights, start=first)
    ]
    content = ("\n".join(lines) + "\n").encode() if content is None else content
    with api.db.write() as session:
        job = make_job(session, state=state, document=document, report={"benchmarks": {label: result}})
        path = samples_file(label)
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


def test_metrics_of_a_task_are_those_that_the_baseline_has_measured(api: Api) -> None:
    task = {"name": "lm_eval:arc", "dataset": None, "parameters": {"task_dir": "/srv/tasks"}}
    base, better = (measured(api, rights, benchmark=task) for rights in ([0, 0, 1], [1, 1, 1]))

    (row,) = compared(api, base, better)["comparisons"]

    assert (row["metric"], row["values"][better]) == ("acc", 1.0)
    (difference,) = row["differences"]
    assert (difference["changes"], difference["p_value"], difference["n"]) == (2, 0.5, 3)


def test_metrics_of_a_judge_are_those_that_its_parameters_measure(api: Api) -> None:
    judge = {"name": "judge", "parameters": {"service": "judge"}}
    base, better = (measured(api, rights, benchmark=judge) for rights in ([4, 7], [6, 9]))

    (row,) = compared(api, base, better)["comparisons"]

    assert (row["metric"], row["values"]) == ("score", {base: 5.5, better: 7.5})
    assert (row["differences"][0]["difference"], row["differences"][0]["interval"]) == (2.0, [2.0, 2.0])


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


@pytest.mark.parametrize(
    "line",
    [
        b'{"index": 0, "scores": {"exact_match": null}}',
        b'{"index": 0, "doc_hash": [], "scores": {}}',
        b'{"index": 0, "scores": {"exact_match": 1' + b"0" * 400 + b"}}",
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_file_that_is_none_of_samples_is_a_note(api: Api, line: bytes) -> None:
    base, other = measured(api, [0, 1]), measured(api, [1, 1], content=line + b"\n")

    (row,) = compared(api, base, other)["comparisons"]

    assert (row["values"], row["differences"]) == ({base: 0.5, other: 1.0}, [])
    assert row["notes"][0].startswith(f"the samples of {other} can't be read: ")


@pytest.mark.parametrize(
    ("name", "score"), [("bleu", "[1, 2]"), ("bleu", "[0,1,1,1,1,1,1,1,1,1]"), ("reward", "1e308"), ("f1", "-Infinity")]
)
def test_numbers_of_any_size_are_no_error(api: Api, name: str, score: str) -> None:
    lines = [f'{{"index": {n}, "doc_hash": "{n}", "scores": {{"{name}": {score}}}}}\n' for n in range(2)]
    content, benchmark = "".join(lines).encode(), {"name": name}

    answer = compared(api, *(measured(api, [1], benchmark=benchmark, content=content) for _ in range(2)))

    assert [row["benchmark"] for row in answer["comparisons"]] == [name]


def test_two_metrics_with_one_file_name_are_not_compared(api: Api) -> None:
    base, other = (measured(api, [1], benchmark={"name": f"custom:/{n}/brevity.py"}) for n in (1, 2))

    (row,) = compared(api, base, other)["comparisons"]

    assert (row["values"], row["differences"]) == ({base: 1.0, other: None}, [])
    assert row["notes"] == [f"{other} has not measured it, but custom:/2/brevity.py"]


def test_limits_of_a_comparison_are_named_with_the_way_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [measured(api, [0, 1, 1]), measured(api, [1, 1, 1])]

    def refused() -> str:
        return str(api.problem(api.post("/v1/evaluations/compare", {"ids": ids}), 400))

    monkeypatch.setattr(comparing, "MOST_BYTES", 600)
    assert "compare fewer evaluations at once" in refused()
    monkeypatch.setattr(comparing, "MOST_BYTES", 64 << 20)
    monkeypatch.setattr(comparing, "MOST_SAMPLES", 4)
    (row,) = compared(api, *ids)["comparisons"]
    assert "they are more than 2; compare fewer evaluations at once" in row["notes"][0]
    monkeypatch.setattr(comparing, "MOST_DIFFERENCES", 0)
    assert "at most 0; compare fewer evaluations at once" in refused()


def test_bad_comparisons_name_the_rule(api: Api) -> None:
    done, running = measured(api, [1, 0]), measured(api, [1], state=JobState.EVALUATING)

    def refused(status: int, *ids: str, **more: Any) -> str:
        answer = api.post("/v1/evaluations/compare", {"ids": list(ids), **more})
        return str(api.problem(answer, status))

    assert "wait until it is COMPLETED" in (waits := refused(409, done, running))
    assert "is none of ids" in refused(400, done, measured(api, [1, 1]), baseline="job-1")
    assert "of kind training, not evaluation" in (foreign := refused(404, done, api.submit()))
    assert ("'ids.1'" in waits, "'ids.1'" in foreign) == (True, True)
    assert "no evaluation" in refused(404, done, "job-1")
    assert "must not be empty" in refused(422, done, running, baseline="")
    assert "2 to 8" in refused(422, done)
    assert "named twice" in refused(422, done, done)
