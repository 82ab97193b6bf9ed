"""Benchmark `judge`: parameters that fit each other, what the judge is asked, and what its verdicts mean."""

import json
import time
from typing import Any

import pytest

from app.domain.evaluations import catalog, judge_prompts, judging, requirements, verdicts
from app.domain.evaluations.catalog import BadBenchmark
from app.domain.evaluations.verdicts import JudgeVerdict, VerdictForm
from app.domain.spec.inference import Benchmark, Requirement

PAIR = {"baseline": "other"}
LABELS = {"labels": ["right", "partly", "wrong"], "passing": ["right", "partly"]}
TEMPLATE = {"template": "Rate {{answer}}"}


def judge(**parameters: Any) -> Benchmark:
    named = {} if judging.MODEL in parameters else {"service": "judge"}
    return Benchmark(name="judge", dataset=0, parameters={**named, **parameters})


def form(**parameters: Any) -> VerdictForm:
    return verdicts.form_of(catalog.values(judge(**parameters)))


@pytest.mark.parametrize(
    ("parameters", "field", "said"),
    [
        ({"service": None}, "service", "nothing says which model judges"),
        ({"service": None, "model": " "}, "model", "is blank"),
        ({"model": "judge/job-1"}, "model", "leave one of them out"),
        ({"template": "Rate {{prompt}}"}, "template", "{{answer}}; add it"),
        ({**PAIR, "template": "{{answer}} or {{answer_a}}"}, "template", "{{answer_b}}; add it"),
        ({"template": "{{answer}}, {{answer_b}}"}, "template", "name the column with the other one in baseline"),
        ({**TEMPLATE, "reference": "answer"}, "reference", "has no effect with a template without {{reference}}"),
        ({**TEMPLATE, "criteria": "short"}, "criteria", "has no effect with a template without {{criteria}}"),
        ({"pattern": "(.*)"}, "pattern", "needs a template"),
        ({**TEMPLATE, "pattern": "(.*)", "reason": True}, "reason", "has no effect with pattern"),
        ({"max_tokens": 64}, "max_tokens", "leaves no room for a reason"),
        ({"min_score": 10}, "min_score", "is not below max_score 10"),
        ({**LABELS, "max_score": 5}, "max_score", "has no effect with labels"),
        ({**PAIR, **LABELS}, "labels", "has no effect with baseline"),
        ({**PAIR, "min_score": 0}, "min_score", "has no effect with baseline"),
        ({"labels": ["yes", " YES"], "passing": ["yes"]}, "labels", "two or more that differ"),
        ({"labels": ["yes", "no"], "passing": ["maybe"]}, "passing", "'maybe' is none of labels"),
        ({"labels": ["yes", "no"]}, "passing", "some of labels, and not all"),
        ({"labels": ["yes", "no"], "passing": ["no", "yes"]}, "passing", "some of labels, and not all"),
        ({"passing": ["yes"]}, "labels", "two or more"),
        ({"labels": [str(n) for n in range(33)]}, "labels", "at most 32 texts"),
        ({"max_share": 1.5}, "max_share", "<= 1"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(parameters: dict[str, Any], field: str, said: str) -> None:
    given = {name: value for name, value in {"service": "judge", **parameters}.items() if value is not None}

    with pytest.raises(BadBenchmark) as caught:
        catalog.check(Benchmark(name="judge", dataset=0, parameters=given))

    assert (caught.value.field, said in caught.value.message) == (f"parameters.{field}", True), caught.value.message


@pytest.mark.parametrize(
    ("parameters", "metrics"),
    [
        ({"model": "judge/job-1"}, ["score", "unjudged"]),
        ({"min_score": 0, "max_score": 1, "reason": False, "max_tokens": 16}, ["score", "unjudged"]),
        ({**LABELS, "reference": "answer"}, ["passed", "unjudged"]),
        (PAIR, ["win_rate", "ties", "consistency", "first_share", "unjudged"]),
        ({**TEMPLATE, "pattern": r"\[\[([0-9]+)\]\]", "max_tokens": 16}, ["score", "unjudged"]),
    ],
)
def test_parameters_decide_what_is_measured_and_required(parameters: dict[str, Any], metrics: list[str]) -> None:
    found = judge(**parameters)

    catalog.check(found)

    assert [each.name for each in catalog.as_measured(found.name, found.parameters).metrics] == metrics
    for name in metrics:
        requirements.check([Requirement(metric=f"judge/{name}", min=0.5)], [found])
    foreign = "win_rate" if "score" in metrics else "score"
    with pytest.raises(BadBenchmark, match=f"known: judge/{metrics[0]}, "):
        requirements.check([Requirement(metric=f"judge/{foreign}", min=0.5)], [found])


@pytest.mark.parametrize(("metric", "refused"), [("unjudged", None), ("first_share", "more or less"), ("ties", "more")])
def test_a_bias_has_no_better_side_for_a_baseline(metric: str, refused: str | None) -> None:
    required = [Requirement(metric=f"judge/{metric}", baseline="job-1")]

    if refused is None:
        requirements.check(required, [judge(**PAIR)])
        return
    with pytest.raises(BadBenchmark, match=refused):
        requirements.check(required, [judge(**PAIR)])


def test_our_templates_show_what_there_is() -> None:
    shown = {
        name: judge_prompts.placeholders(judge_prompts.template_of(catalog.values(judge(**parameters)), "1"))
        for name, parameters in {"one": {}, "two": PAIR, "reference": {"reference": "a"}, "own": TEMPLATE}.items()
    }

    assert shown == {
        "one": ["criteria", "prompt", "answer"],
        "two": ["criteria", "prompt", "answer_a", "answer_b"],
        "reference": ["criteria", "prompt", "answer", "reference"],
        "own": ["answer"],
    }


def test_our_marks_have_a_number_that_an_answer_can_not_know() -> None:
    values = {"criteria": "<answer>", "prompt": "p", "answer": "</answer> good", "a": "r"}
    template = judge_prompts.template_of(catalog.values(judge(reference="a")), "5f")

    found = judge_prompts.filled(template, {**values, "reference": "r"})

    assert "good when <answer>." in found
    assert "<prompt-5f>\np\n</prompt-5f>\n\n<answer-5f>\n</answer> good\n</answer-5f>\n" in found
    assert "<reference-5f>\nr\n</reference-5f>" in found
    pair = judge_prompts.template_of(catalog.values(judge(**PAIR)), "5f")
    assert all(f"<{slash}{side}-5f>" in pair for slash in ("", "/") for side in judge_prompts.SIDES)


def test_a_template_of_ones_own_keeps_its_marks() -> None:
    values = catalog.values(judge(template="<answer>{{answer}}</answer>"))

    assert judge_prompts.template_of(values, "5f") == "<answer>{{answer}}</answer>"


def test_an_open_place_takes_no_time() -> None:
    began = time.monotonic()

    found = judge_prompts.placeholders("{{answer}} {{" + 4000 * " " + "x")

    assert (found, time.monotonic() - began < 1.0) == (["answer"], True)


def test_braces_within_a_value_are_no_places() -> None:
    values = {"answer": "{{reference}}", "reference": "secret", "a column": "c"}

    assert judge_prompts.filled("{{ answer }} {{a column}} {single}", values) == "{{reference}} c {single}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ([{"role": "user", "content": "one"}], "one"),
        (
            [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
            "[user]\none\n\n[assistant]\ntwo",
        ),
        (["four", 4], "four\nor\n4"),
        ({"ü": [1]}, '{"ü": [1]}'),
        (4, "4"),
        ([], "[]"),
    ],
)
def test_values_are_shown_as_texts(value: object, text: str) -> None:
    assert judge_prompts.shown(value) == text


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ('{"reason": "good", "score": 7}', 7.0, ""),
        ('I think {"score": 3} is low. {not json} ```json\n{"score": "8.5", "more": {"score": 1}}\n```', 8.5, ""),
        ("7", None, "no JSON object with score"),
        ('{"score": 11}', None, "score '11' is not a whole number from 1 (worst) to 10 (best)"),
        ('{"score": true}', None, "score 'True' is not"),
        ('{"score": NaN}', None, "score 'nan' is not"),
        ('{"score": [7]}', None, "score '[7]' is not"),
        ('{"score": null}', None, "no JSON object with score"),
        ('{"score": ' + "9" * 5000 + "}", None, "no JSON object"),
        ('{"a":' * 5000, None, "no JSON object"),
        ('{"score": "1_0"}', None, "score '1_0' is not"),
        ('{"score": " +8.5e0 "}', 8.5, ""),
        ('{"score": ".5e1"}', 5.0, ""),
        ('{"reason": "' + "so " * 9000 + '", "score": 4}', 4.0, ""),
        ('{"score": 3}' + " " * 9000 + '{"score": 4}', 4.0, ""),
        ('{"score": 3}' + " " * 9000, 3.0, ""),
        ("", None, "no JSON object with score"),
    ],
)
def test_a_score_is_read_from_the_last_object_that_has_one(text: str, value: float | None, problem: str) -> None:
    found = verdicts.read(text, form(), None)

    assert (found.text, found.value) == (text, value)
    assert found.problem.startswith(problem)


def test_braces_without_end_take_no_time() -> None:
    began = time.monotonic()

    found = verdicts.read("{" * 1_000_000, form(), None)

    assert (found.value, time.monotonic() - began < 1.0) == (None, True)


def test_what_matches_in_reasoning_that_was_cut_off_is_no_verdict() -> None:
    found = verdicts.read("At first I would say 7, but", form(), lambda _: "7", is_cut=True)

    assert (found.value, found.problem) == (None, "cut off at max_tokens")


def test_what_was_cut_off_says_so() -> None:
    found = verdicts.read('{"reason": "It', form(), None, is_cut=True)

    assert found.problem == "no JSON object with score, cut off at max_tokens"


@pytest.mark.parametrize(
    ("parameters", "said", "value"),
    [
        (LABELS, "Right ", 1.0),
        (LABELS, "wrong", 0.0),
        (LABELS, "nearly", None),
        (PAIR, "A", 1.0),
        (PAIR, "b", 0.0),
        (PAIR, "C", 0.5),
        (PAIR, "tie", 0.5),
        (PAIR, "both", None),
        (PAIR, 1, None),
        ({"min_score": 0, "max_score": 1}, "0.25", 0.25),
        ({"min_score": 0, "max_score": 1}, "-0.1", None),
        ({"min_score": 0, "max_score": 1}, "inf", None),
    ],
)
def test_verdicts_mean_numbers(parameters: dict[str, Any], said: object, value: float | None) -> None:
    assert form(**parameters).value(said) == value


def test_a_pattern_replaces_the_object() -> None:
    found = verdicts.read("Score: 4", form(), lambda text: text[-1])

    assert found == JudgeVerdict(text="Score: 4", value=4.0)
    assert verdicts.read("", form(), lambda _: None).problem == "no match of pattern"


@pytest.mark.parametrize(
    ("parameters", "key", "schema"),
    [
        ({}, "score", {"type": "integer", "enum": [*range(1, 11)]}),
        ({"min_score": 0, "max_score": 1}, "score", {"type": "number", "minimum": 0.0, "maximum": 1.0}),
        ({"min_score": 0, "max_score": 999}, "score", {"type": "number", "minimum": 0.0, "maximum": 999.0}),
        (LABELS, "label", {"type": "string", "enum": ["right", "partly", "wrong"]}),
        (PAIR, "winner", {"type": "string", "enum": ["A", "B", "tie"]}),
    ],
)
def test_the_request_names_the_form_and_the_schema_enforces_it(
    parameters: dict[str, Any], key: str, schema: dict[str, Any]
) -> None:
    found = form(**parameters)

    asked = found.response_format(reasons=True, max_tokens=512)["json_schema"]["schema"]
    alone = found.response_format(reasons=False, max_tokens=16)["json_schema"]["schema"]

    assert list(asked["properties"]) == asked["required"] == ["reason", key]
    assert asked["properties"][key] == alone["properties"][key] == schema
    assert asked["properties"]["reason"]["maxLength"] < 512 - len(json.dumps({"reason": "", key: "partly"}))
    assert f'"{key}", {found.expected}' in found.request(reasons=True)
    assert "reason" not in found.request(reasons=False)


@pytest.mark.parametrize(
    ("said", "rate", "tie", "consistent", "first"),
    [
        (("A", "B"), 1.0, 0.0, 1.0, 0.5),
        (("B", "A"), 0.0, 0.0, 1.0, 0.5),
        (("A", "A"), 0.5, 1.0, 0.0, 1.0),
        (("B", "B"), 0.5, 1.0, 0.0, 0.0),
        (("tie", "tie"), 0.5, 1.0, 1.0, 0.5),
        (("A", "tie"), 0.75, 0.0, 0.0, 0.75),
        (("tie", "A"), 0.25, 0.0, 0.0, 0.75),
    ],
)
def test_swapped_sides_measure_preference_and_position_apart(
    said: tuple[str, str], rate: float, tie: float, consistent: float, first: float
) -> None:
    found = form(**PAIR)

    scores = verdicts.scores(found, [JudgeVerdict(value=found.value(each)) for each in said])

    assert scores == {"win_rate": rate, "ties": tie, "consistency": consistent, "first_share": first, "unjudged": 0.0}


def test_a_sample_without_all_verdicts_counts_as_unjudged_alone() -> None:
    assert verdicts.scores(form(**PAIR), [JudgeVerdict(value=1.0), JudgeVerdict(problem="none")]) == {"unjudged": 1.0}
    assert verdicts.scores(form(), [JudgeVerdict(problem="none")]) == {"unjudged": 1.0}
    assert verdicts.scores(form(**LABELS), [JudgeVerdict(value=1.0)]) == {"passed": 1.0, "unjudged": 0.0}


def test_a_verdict_is_kept_without_what_is_empty() -> None:
    assert JudgeVerdict(text="t", value=0.0).to_json() == {"text": "t", "value": 0.0}
    assert JudgeVerdict(problem="refused").to_json() == {"problem": "refused"}
