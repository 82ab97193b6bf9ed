"""Templates: what they are filled with."""

import pytest

from app.domain.graders.templates import LONGEST, InvalidTemplate, MissingVariable, TooLong, check, columns, render

ITEM = {"answer": "4", "n": 5, "parts": [{"name": "x y"}], "ok": True, "none": None, "é": "e"}
SAMPLE = {"output_text": "five", "output_json": {"a": {"b": [1, 2]}}, "output_tools": []}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain { } text", "plain { } text"),
        ('{"a": {{item.n}}} {{{item.n}}}', '{"a": 5} {5}'),
        ("{{sample.output_text}} is not {{ item.answer }}", "five is not 4"),
        ("{{item.n}} {{item.ok}} {{item.none}}", "5 true null"),
        ("{{item.parts[0].name}}", "x y"),
        ("{{item['parts'][0][\"name\"]}}", "x y"),
        ("{{item.parts}}", '[{"name": "x y"}]'),
        ("{{ sample.output_json.a.b[1] }}", "2"),
        ("{{item.é}}", "e"),
    ],
)
def test_variables_are_replaced(template: str, text: str) -> None:
    check(template)
    assert render(template, ITEM, SAMPLE) == text


def test_values_are_no_templates() -> None:
    assert render("{{item.answer}}", {"answer": "{{item.answer}}"}, SAMPLE) == "{{item.answer}}"


@pytest.mark.parametrize(
    ("template", "namespace"),
    [
        ("{{item.question}}", "item"),
        ("{{item.parts[3]}}", "item"),
        ("{{item.parts.name}}", "item"),
        ("{{item.answer[0]}}", "item"),
        ("{{item.n.digits}}", "item"),
        ("{{sample.output_json.c}}", "sample"),
        ("{{sample.output_tools[0].function.name}}", "sample"),
    ],
)
def test_missing_value_says_where_it_should_be(template: str, namespace: str) -> None:
    check(template)
    with pytest.raises(MissingVariable) as missing:
        render(template, ITEM, SAMPLE)

    assert (missing.value.namespace, str(missing.value)) == (namespace, f"{template}: there is no such value")


def test_columns_are_those_of_the_record() -> None:
    assert columns("{{item.a.b}} {{sample.output_text}} {{item['c d'][0]}}") == {"a", "c d"}


def test_braces_without_end_are_read_at_once() -> None:
    text = "{{" * 100_000 + "{{item.a}} {{ b" * 10_000
    check(text)
    assert columns(text) == {"a"}


@pytest.mark.parametrize(
    ("template", "place"),
    [
        ("{{item.answer", "{{item.answer"),
        ("{{item.a}} is {{ sample.output_text }", "{{ sample.output_text"),
        ("{{item['a{b']}}", "{{item['a"),
        ("{{{{item.a}}}} {{item", "{{item"),
    ],
)
def test_variable_whose_braces_have_no_end_is_refused(template: str, place: str) -> None:
    with pytest.raises(InvalidTemplate) as refused:
        check(template)

    assert str(refused.value).startswith(f"{place!r} is no variable")


@pytest.mark.parametrize("text", ["{{", "{{ items", "a {{b", "{ {item"])
def test_other_braces_are_text(text: str) -> None:
    check(text)
    assert render(text, ITEM, SAMPLE) == text


def test_braces_around_a_variable_are_text() -> None:
    check("{{{{item.n}}}}")
    assert render("{{{{item.n}}}}", ITEM, SAMPLE) == "{{5}}"


def test_filled_template_has_an_end() -> None:
    text = "x" * (LONGEST // 2)

    assert len(render("{{item.a}}", {"a": text}, SAMPLE)) == len(text)
    with pytest.raises(TooLong, match="more than 262,144 characters"):
        render("{{item.a}}" * 3, {"a": text}, SAMPLE)
