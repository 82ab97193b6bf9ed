"""Graders as documents of users have them: what is read, and which field each error names."""

from typing import Any

import pytest

from app.domain.errors import BadSpec, InvalidRequest, NotSupportedYet
from app.domain.graders import document
from app.domain.graders.document import columns_of, models_of, parse, singles

CHECK = {"type": "string_check", "input": "{{sample.output_text}}", "reference": "{{item.answer}}", "operation": "eq"}
ALIKE = {
    "type": "text_similarity",
    "name": "alike",
    "input": "{{ sample.output_json.text }}",
    "reference": "{{ item.texts[0].best }}",
    "evaluation_metric": "rouge_l",
    "pass_threshold": 0.5,
}
SCORE = {
    "type": "score_model",
    "name": "style",
    "model": "judge",
    "input": [{"role": "user", "content": "How good is {{sample.output_text}} for {{item.question}}?"}],
    "range": [0, 10],
    "sampling_params": {"seed": 3, "max_completions_tokens": 40, "temperature": None},
}
LABEL = {
    "type": "label_model",
    "name": "polite",
    "model": "labeller",
    "input": [
        {"type": "message", "role": "developer", "content": {"type": "input_text", "text": "Label it."}},
        {"role": "user", "content": ["It is: ", {"type": "output_text", "text": "{{sample.output_text}}"}]},
    ],
    "labels": ["yes", "no"],
    "passing_labels": ["yes"],
}
PYTHON = {
    "type": "python",
    "name": "code",
    "source": "import re\ndef grade(sample, item):\n    return bool(re.match('\\d', sample['output_text']))\n",
    "image_tag": "2025-05-08",
}
MULTI = {"type": "multi", "graders": {"a": CHECK, "b": SCORE, "c": PYTHON}, "calculate_output": "0.5 * a + b / 20"}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (CHECK, document.StringCheck),
        (ALIKE, document.TextSimilarity),
        (SCORE, document.ScoreModel),
        (LABEL, document.LabelModel),
        (PYTHON, document.Python),
        (MULTI, document.Multi),
    ],
)
def test_each_type_is_read(given: dict[str, Any], kind: type) -> None:
    assert isinstance(parse(given), kind)


def test_names_are_those_given_or_of_the_place() -> None:
    assert [each.name for each in singles(parse(MULTI))] == ["a", "style", "code"]
    assert (parse(CHECK).name, parse(MULTI).name) == ("string_check", "multi")


def test_models_and_columns_are_known() -> None:
    assert models_of(parse(MULTI)) == {"judge"}
    assert columns_of(parse(MULTI)) == {"answer", "question"}
    assert columns_of(parse(ALIKE)) == {"texts"}
    assert models_of(parse(CHECK)) == columns_of(parse(PYTHON)) == set()


def test_verdict_has_a_range_and_sampling_in_the_names_of_chat_completions() -> None:
    grader = parse(SCORE)

    assert isinstance(grader, document.ScoreModel)
    assert (grader.low, grader.high, grader.sampling) == (0, 10, {"seed": 3, "max_completion_tokens": 40})


def test_parts_of_a_message_are_one_text() -> None:
    grader = parse(LABEL)

    assert isinstance(grader, document.LabelModel)
    assert [each.content for each in grader.messages] == ["Label it.", "It is: {{sample.output_text}}"]


def test_one_grader_alone_within_multi_goes_by_its_name() -> None:
    grader = parse({"type": "multi", "name": "m", "graders": ALIKE, "calculate_output": "alike"})

    assert isinstance(grader, document.Multi)
    assert list(grader.graders) == ["alike"]


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ([], "", "must be an object with a type"),
        ({}, ".type", "must be one of string_check, text_similarity"),
        ({"type": ["python"]}, ".type", "must be one of"),
        ({**CHECK, "operation": "neq"}, ".operation", "must be one of eq, ne, like, ilike"),
        ({**CHECK, "input": ""}, ".input", "must be a text that is not empty"),
        ({**CHECK, "input": "x" * (64 * 1024 + 1)}, ".input", "has 65,537 characters; at most 65,536"),
        ({**CHECK, "name": None}, ".name", "must be a text"),
        (
            {**CHECK, "reference": "{{row.answer}}"},
            ".reference",
            "{{row.answer}} is no variable: write {{item.COLUMN}}",
        ),
        ({**CHECK, "reference": "{{item}}"}, ".reference", "is no variable"),
        ({**CHECK, "reference": "{{item[0]}}"}, ".reference", "is no variable"),
        ({**CHECK, "reference": "{{sample.text}}"}, ".reference", "sample has output_text, output_json, output_tools"),
        ({**CHECK, "weight": 1}, ".weight", "is unknown; known: type, name, input, reference, operation"),
        ({**ALIKE, "evaluation_metric": "jaccard"}, ".evaluation_metric", "must be one of fuzzy_match"),
        ({**ALIKE, "pass_threshold": "high"}, ".pass_threshold", "must be a number"),
        ({**SCORE, "model": 3}, ".model", "must be a text"),
        ({**SCORE, "input": []}, ".input", "must be a list of 1 to 64 messages"),
        ({**SCORE, "input": ["hi"]}, ".input[0]", "must be an object with role and content"),
        ({**SCORE, "input": [{"role": "tool", "content": "x"}]}, ".input[0].role", "must be one of system"),
        ({**SCORE, "input": [{"role": "user", "content": 3}]}, ".input[0].content", "must be a text, or a list"),
        (
            {**SCORE, "input": [{"role": "user", "content": []}]},
            ".input[0].content",
            "must have 1 to 65,536 characters",
        ),
        ({**SCORE, "input": [{"role": "user", "content": "x", "id": 1}]}, ".input[0].id", "is unknown"),
        ({**SCORE, "input": [{"role": "user", "content": "x", "type": "item"}]}, ".input[0].type", "must be message"),
        ({**SCORE, "range": [1, 0]}, ".range", "must be two numbers, the lower one first"),
        ({**SCORE, "range": [0, float("inf")]}, ".range", "must be two numbers"),
        ({**SCORE, "sampling_params": []}, ".sampling_params", "must be an object"),
        ({**SCORE, "sampling_params": {"top_k": 3}}, ".sampling_params.top_k", "is unknown"),
        ({**SCORE, "sampling_params": {"seed": 0.5}}, ".sampling_params.seed", "must be a whole number from"),
        ({**SCORE, "sampling_params": {"top_p": 2}}, ".sampling_params.top_p", "must be a number from 0 to 1"),
        ({**LABEL, "labels": []}, ".labels", "must be a list of 1 to 100 texts"),
        ({**LABEL, "labels": ["yes", "yes"]}, ".labels", "has a label twice"),
        ({**LABEL, "passing_labels": ["maybe"]}, ".passing_labels", "'maybe' is none of labels"),
        ({**PYTHON, "image_tag": 3}, ".image_tag", "must be a text"),
        ({**PYTHON, "source": "def grade(:"}, ".source", "is no Python: line 1: "),
        ({**PYTHON, "source": "grade = 1\0"}, ".source", "is no Python"),
        ({**PYTHON, "source": "-" * 9000 + "1"}, ".source", "is no Python"),
        (
            {**PYTHON, "source": "def score(sample, item): return 1"},
            ".source",
            "defines no function grade(sample, item)",
        ),
        ({**PYTHON, "source": "#" + "é" * 200_000}, ".source", "has 400,001 bytes; at most 262,144"),
        ({**MULTI, "graders": []}, ".graders", "must be an object with a grader for each name"),
        ({**MULTI, "graders": {f"g{i}": CHECK for i in range(17)}}, ".graders", "has 17 graders; at most 16"),
        ({**MULTI, "graders": {"a b": CHECK}}, ".graders", "'a b' is no name of a grader"),
        ({**MULTI, "graders": {"max": CHECK}}, ".graders", "'max' is no name of a grader"),
        ({**MULTI, "graders": {"a": {**CHECK, "input": 1}}}, ".graders.a.input", "must be a text"),
        ({**MULTI, "graders": {"a": MULTI}}, ".graders.a.type", "can't be a part of another one"),
        ({**MULTI, "calculate_output": "a + d"}, ".calculate_output", "no grader is called d; known: a, b, c"),
        ({**MULTI, "calculate_output": "a +"}, ".calculate_output", "more is expected after a +"),
    ],
)
def test_error_names_the_field(given: Any, field: str, message: str) -> None:
    with pytest.raises(BadSpec) as refused:
        parse(given, "grader")

    assert (refused.value.field, message in refused.value.message) == (f"grader{field}", True), refused.value.message


@pytest.mark.parametrize(
    ("given", "field", "why"),
    [
        ({**ALIKE, "evaluation_metric": "cosine"}, "evaluation_metric", "a model of embeddings"),
        ({**ALIKE, "evaluation_metric": "meteor"}, "evaluation_metric", "WordNet"),
        ({**SCORE, "sampling_params": {"reasoning_effort": "low"}}, "sampling_params.reasoning_effort", "leave it out"),
        ({**SCORE, "input": [{"role": "user", "content": {"type": "input_image"}}]}, "input[0].content", "text alone"),
    ],
)
def test_what_is_not_supported_says_why(given: dict[str, Any], field: str, why: str) -> None:
    with pytest.raises(NotSupportedYet) as refused:
        parse(given)

    assert (refused.value.field, why in refused.value.message) == (f"training_config.grader.{field}", True)


def test_unknown_things_are_refused_as_requests_not_as_faults() -> None:
    for kind in document.TYPES:
        with pytest.raises(InvalidRequest):
            parse({"type": kind, 3: 4})
