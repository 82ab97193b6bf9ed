"""Tools: calls in the text of an answer, and the form of required ones."""

import json
from typing import Any

import pytest

from workers.trainers.inference.serving.openai.tool_calls import ToolText, tools_of

TEMPLATES = {"tagged": "{{ tools }}<tool_call>", "json": "{% if tools %}", "plain": "{{ messages }}"}
CALL = '{"name": "weather", "arguments": {"place": "Bern"}}'


def tool(name: str = "weather", **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **parameters}}}


def divided(template: str, *texts: str) -> tuple[str, list[str]]:
    """The content, and the names of calls with their arguments."""
    text = tools_of({"tools": [tool()]}, TEMPLATES[template]).text()
    content = "".join(text.add(each) for each in texts)
    rest, calls = text.end()
    return content + rest, [f"{call.name} {call.arguments}" for call in calls]


@pytest.mark.parametrize(
    ("template", "texts", "content", "calls"),
    [
        ("tagged", ["I ask. <tool", "_call>\n" + CALL, "\n</tool_call>"], "I ask. ", 1),
        ("tagged", [f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>"], "", 2),
        ("tagged", ["<tool_call>", CALL], "", 1),
        ("tagged", ["a < b and ", "<tool"], "a < b and <tool", 0),
        ("tagged", ["<tool_call>no JSON</tool_call>"], "<tool_call>no JSON</tool_call>", 0),
        ("json", [CALL[:5], CALL[5:]], "", 1),
        ("json", [f"[{CALL}, {CALL}]"], "", 2),
        ("json", ['{"name": "weather", ', '"parameters": {"place": "Bern"}}'], "", 1),
        ("json", ["\n", "It is ", CALL], f"\nIt is {CALL}", 0),
        ("json", ['{"name": "other"}'], '{"name": "other"}', 0),
        ("plain", [CALL], CALL, 0),
    ],
)
def test_text_is_divided_into_content_and_calls(template: str, texts: list[str], content: str, calls: int) -> None:
    assert divided(template, *texts) == (content, ['weather {"place": "Bern"}'] * calls)


def test_content_is_passed_on_as_soon_as_it_can_be_no_call() -> None:
    text = ToolText({"weather"}, "tagged")

    assert [text.add(each) for each in ("It is <", "b> and <tool_", "box>", "<tool_call>")] == [
        *("It is ", "<b> and ", "<tool_box>", "")
    ]


def test_only_the_first_call_is_taken_where_one_is_wanted() -> None:
    text = tools_of({"tools": [tool()], "parallel_tool_calls": False}, TEMPLATES["json"]).text()
    text.add(f"[{CALL}, {CALL}]")

    assert len(text.end()[1]) == 1


def test_tools_are_given_unless_the_request_declines_them() -> None:
    assert tools_of({"tools": [tool()]}, "").given
    assert not tools_of({"tools": [tool()], "tool_choice": "none"}, "").given


def test_required_call_is_of_one_of_the_tools() -> None:
    tools = [tool("weather", **{"$defs": {"a": {}}}), tool("time", **{"$defs": {"b": {}}})]

    found = tools_of({"tools": tools, "tool_choice": "required"}, "").response_format

    assert found is not None
    schema = found["schema"]
    assert [each["properties"]["name"]["enum"] for each in schema["anyOf"]] == [["weather"], ["time"]]
    assert schema["$defs"] == {"a": {}, "b": {}}
    assert "$defs" not in json.dumps(schema["anyOf"])
