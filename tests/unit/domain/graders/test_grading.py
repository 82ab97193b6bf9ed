"""What graders give for a completion."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.graders import grading
from app.domain.graders.document import parse
from app.domain.graders.grading import Graded, GradeError, NoGrade, TokenUsage, grade, sample_of
from tests.unit.domain.graders.test_document import ALIKE, CHECK, LABEL, MULTI, PYTHON, SCORE

ITEM = {"answer": "Four", "question": "2 + 2", "texts": [{"best": "it is four"}]}


class Model:
    """Answers each chat completion with one message, and keeps what it was asked."""

    def __init__(self, **message: Any) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self._message = message

    def __call__(self, model: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert body["model"] == model
        self.asked.append(body)
        used = {"prompt_tokens": 7, "completion_tokens": 2}
        return {"choices": [{"message": self._message}], "usage": used}


def result(value: object) -> Model:
    return Model(content=json.dumps({"result": value}))


def no_python(_: str, __: Mapping[str, Any], ___: Mapping[str, Any]) -> float:
    raise NoGrade(grading.PYTHON_RUNTIME, "line 3: KeyError: 'x'")


def graded(grader: dict[str, Any], text: str = "Four", *, ask: Any = None, run_python: Any = no_python) -> Graded:
    return grade(
        parse(grader),
        item=ITEM,
        sample=sample_of(text),
        ask=ask or result(5),
        run_python=run_python,
        fuzzy_match=lambda text, reference: len(text) / len(reference),
    )


@pytest.mark.parametrize(
    ("operation", "text", "reward"),
    [
        ("eq", "Four", 1.0),
        ("eq", "four", 0.0),
        ("eq", " Four", 0.0),
        ("ne", "four", 1.0),
        ("like", "It is Four.", 1.0),
        ("like", "it is four", 0.0),
        ("ilike", "IT IS FOUR", 1.0),
    ],
)
def test_operations_compare_texts(operation: str, text: str, reward: float) -> None:
    assert graded({**CHECK, "operation": operation}, text) == Graded(reward)


def test_similarity_reads_json_of_the_completion() -> None:
    assert graded(ALIKE, '{"text": "it is four"}').reward == pytest.approx(1.0)


def test_fuzzy_match_is_that_of_the_library_given() -> None:
    found = graded({**ALIKE, "evaluation_metric": "fuzzy_match", "input": "{{sample.output_text}}"}, "it is")

    assert found == Graded(5 / 10)


def test_completion_of_another_form_is_worth_nothing() -> None:
    found = graded(ALIKE, "it is four")

    assert (found.reward, [error.kind for error in found.errors]) == (0.0, [grading.SAMPLE_PARSE])


def test_text_that_is_too_long_to_compare_is_an_error() -> None:
    found = graded(CHECK, "x" * 300_000)

    assert (found.reward, [error.kind for error in found.errors]) == (0.0, [grading.OTHER])


def test_record_without_the_column_is_an_error() -> None:
    found = graded({**CHECK, "reference": "{{item.solution}}"})

    expected = GradeError("string_check", grading.INVALID_VARIABLE, "{{item.solution}}: there is no such value")
    assert found == Graded(0.0, errors=(expected,))


def test_model_is_asked_for_a_number_in_the_range() -> None:
    model = result(7.5)

    found = graded(SCORE, ask=model)

    assert (found.reward, found.usage) == (7.5, {"judge": TokenUsage(7, 2)})
    asked = model.asked[0]
    assert asked["messages"] == [{"role": "user", "content": "How good is Four for 2 + 2?"}]
    assert (asked["temperature"], asked["seed"], asked["max_completion_tokens"]) == (0, 3, 40)
    schema = asked["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["result"] == {"type": "number", "minimum": 0, "maximum": 10}


@pytest.mark.parametrize(("label", "reward"), [("yes", 1.0), ("no", 0.0)])
def test_label_passes_or_does_not(label: str, reward: float) -> None:
    model = result(label)

    assert graded(LABEL, ask=model).reward == reward
    asked = model.asked[0]
    assert asked["response_format"]["json_schema"]["schema"]["properties"]["result"]["enum"] == ["yes", "no"]
    assert asked["max_completion_tokens"] == 64 + len("yes")


@pytest.mark.parametrize(
    ("grader", "model", "kind", "message"),
    [
        (SCORE, result(11), grading.MODEL_PARSE, "result 11 is no number from 0 to 10"),
        (SCORE, result(True), grading.MODEL_PARSE, "result True is no number"),
        (LABEL, result("maybe"), grading.MODEL_PARSE, "result 'maybe' is none of the labels yes, no"),
        (LABEL, result(["yes"]), grading.MODEL_PARSE, "is none of the labels"),
        (SCORE, Model(content="seven"), grading.MODEL_PARSE, "the model answered 'seven', which is no"),
        (SCORE, Model(content="[]"), grading.MODEL_PARSE, "the model answered '[]'"),
        (SCORE, Model(content=None), grading.MODEL_PARSE, "the model answered 'None'"),
        (SCORE, Model(refusal="I won't"), grading.MODEL_REFUSAL, "I won't"),
        (SCORE, lambda *_: {"choices": []}, grading.MODEL_PARSE, "is no chat completion"),
    ],
)
def test_answer_that_is_no_verdict_is_an_error(grader: dict[str, Any], model: Any, kind: str, message: str) -> None:
    found = graded(grader, ask=model)

    assert (found.reward, found.errors[0].kind, message in found.errors[0].message) == (0.0, kind, True)


def test_model_that_does_not_answer_is_an_error() -> None:
    def ask(*_: Any) -> Any:
        raise NoGrade(grading.MODEL_SERVER, "judge: no such model")

    assert graded(SCORE, ask=ask).errors == (GradeError("style", grading.MODEL_SERVER, "judge: no such model"),)


def test_python_gets_sample_and_item() -> None:
    def run(source: str, sample: Mapping[str, Any], item: Mapping[str, Any]) -> float:
        assert (source, item) == (PYTHON["source"], ITEM)
        assert sample["choices"][0]["message"]["content"] == sample["output_text"]
        return float(sample["output_json"])

    assert graded(PYTHON, "2.5", run_python=run) == Graded(2.5)


def test_python_that_gives_nan_is_an_error() -> None:
    found = graded(PYTHON, run_python=lambda *_: float("nan"))

    assert found.errors == (
        GradeError("code", grading.PYTHON_RUNTIME, "grade returned nan, which is no finite number"),
    )


def test_formula_makes_one_reward_of_several() -> None:
    found = graded(MULTI, run_python=lambda *_: 1.0)

    assert found == Graded(0.75, {"a": 1.0, "b": 5.0, "c": 1.0}, (), {"judge": TokenUsage(7, 2)})


def test_formula_needs_only_what_it_names() -> None:
    found = graded(MULTI)

    assert (found.reward, found.sub_rewards["c"]) == (0.75, None)
    assert found.errors == (GradeError("c", grading.PYTHON_RUNTIME, "line 3: KeyError: 'x'"),)
    assert graded({**MULTI, "calculate_output": "a + c"}).reward == 0.0


def test_formula_without_a_value_is_an_error() -> None:
    found = graded({**MULTI, "calculate_output": "1 / (a - 1)"})

    assert (found.reward, found.errors[-1].grader, found.errors[-1].kind) == (0.0, "multi", grading.FORMULA)


def test_tools_of_a_completion_are_in_the_sample() -> None:
    call = {"function": {"name": "get_weather", "arguments": "{}"}}

    sample = sample_of("", [call])

    assert (sample["output_tools"], sample["choices"][0]["message"]["tool_calls"]) == ([call], [call])
    assert "output_json" not in sample


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_json_that_is_nested_too_deep_to_be_read_further_is_none(brackets: tuple[str, str]) -> None:
    def nested(depth: int) -> str:
        return f"{brackets[0] * depth}1{brackets[1] * depth}"

    assert "output_json" in sample_of(nested(100))
    assert "output_json" not in sample_of(nested(101))
    assert graded({**CHECK, "input": "{{sample.output_json}}"}, nested(900)).errors[0].kind == grading.SAMPLE_PARSE


@pytest.mark.parametrize("text", ["NaN", "-Infinity", '{"text": [Infinity]}'])
def test_numbers_that_json_lacks_are_no_json(text: str) -> None:
    assert "output_json" not in sample_of(text)


def test_formula_does_not_reward_a_completion_that_can_not_be_read() -> None:
    no_json = {**MULTI, "graders": {"a": ALIKE, "b": CHECK}, "calculate_output": "1 - a"}

    assert graded(no_json, "it is four").reward == 0.0
    assert graded(no_json, '{"text": "it is four"}').reward == pytest.approx(0.0)
    assert graded(no_json, '{"text": "x"}').reward == pytest.approx(1.0)
    assert graded({**no_json, "calculate_output": "1 - b"}, "it is four").reward == 1.0


def test_question_without_a_seed_has_one_of_its_own() -> None:
    warm = {**SCORE, "sampling_params": {"temperature": 1}}
    model = result(5)

    for text in ("Four", "Four", "Five"):
        graded(warm, text, ask=model)

    first, again, other = [each["seed"] for each in model.asked]
    assert first == again != other
    assert 0 <= first < 1 << 53
