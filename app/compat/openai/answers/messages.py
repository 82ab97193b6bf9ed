"""Messages of a chat, and the tools that it names."""

import re
from typing import Any

from marshmallow import ValidationError, fields, validate, validates_schema

from app.compat.openai.answers.answer_fields import Only
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, FreeObject, Matching, SectionField, Text, says

SYSTEM, DEVELOPER, USER, ASSISTANT, TOOL = "system", "developer", "user", "assistant", "tool"
ROLES = (SYSTEM, DEVELOPER, USER, ASSISTANT, TOOL)
FUNCTION = "function"
MOST_TOOLS, MOST_PARTS, MOST_CALLS = 128, 1000, 128
LONGEST_TEXT = 8 << 20
NAME = re.compile(r"[A-Za-z0-9_\-]{1,64}")
NAME_RULE = "must be 1 to 64 letters, digits, underscores and dashes"
TOOL_CHOICES = ("none", "auto", "required")
_NOT_SAID = "messages of answers have it, and nothing reads it"


class TextPartSchema(DocumentSchema):
    type = Choice(("text",), required=True, **says("Images, audio and files are refused: models here read text"))
    text = Text(longest=LONGEST_TEXT, required=True)


_PART = TextPartSchema()


class ContentField(fields.Field[Any]):
    """A text, or a list of parts, each of which is text."""

    def __init__(self) -> None:
        text = {"type": "string", "maxLength": LONGEST_TEXT}
        part = {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": text},
            "additionalProperties": False,
        }
        parts = {"type": "array", "items": part, "minItems": 1, "maxItems": MOST_PARTS}
        super().__init__(metadata={"description": "A text, or parts of type text", "anyOf": [text, parts]})

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if isinstance(value, str):
            return value
        if not isinstance(value, list) or not 0 < len(value) <= MOST_PARTS:
            raise ValidationError(f"must be a text, or a list of 1 to {MOST_PARTS} parts")
        faults = {index: found for index, part in enumerate(value) if (found := _PART.validate(part))}
        if faults:
            raise ValidationError(faults)
        return value


class CalledFunctionSchema(DocumentSchema):
    name = Text(shortest=1, longest=64, required=True)
    arguments = Text(longest=LONGEST_TEXT, required=True, **says("JSON, as the model has written it"))


class ToolCallSchema(DocumentSchema):
    id = Text(shortest=1, longest=128, required=True)
    type = Choice((FUNCTION,), required=True)
    function = SectionField(CalledFunctionSchema, required=True)


class MessageSchema(DocumentSchema):
    role = Choice(ROLES, required=True)
    content = ContentField()
    name = Text(longest=64)
    tool_calls = fields.List(fields.Nested(ToolCallSchema), validate=validate.Length(1, MOST_CALLS))
    tool_call_id = Text(shortest=1, longest=128, **says("role tool: the call that it answers"))
    refusal = Text(longest=LONGEST_TEXT, **says(_NOT_SAID))
    reasoning_content = Text(longest=LONGEST_TEXT, **says(_NOT_SAID))
    annotations = fields.List(fields.Raw(), validate=validate.Length(max=0), **says(_NOT_SAID))
    audio = Only(otherwise="models here read text")
    function_call = Only(otherwise="calls are tool_calls")

    @validates_schema
    def _fits_its_role(self, values: dict[str, Any], **_: Any) -> None:
        role = values["role"]
        if "content" not in values and not (role == ASSISTANT and "tool_calls" in values):
            raise ValidationError("is missing", "content")
        if role == TOOL and "tool_call_id" not in values:
            raise ValidationError("names the call that this message answers", "tool_call_id")
        for field, owner in (("tool_calls", ASSISTANT), ("tool_call_id", TOOL)):
            if field in values and role != owner:
                raise ValidationError(f"is of messages with role {owner}", field)


class FunctionSchema(DocumentSchema):
    name = Matching(NAME, NAME_RULE, required=True)
    description = Text(longest=100_000)
    parameters = FreeObject(most=1000, **says("A JSON schema of the arguments"))
    strict = Flag()


class ToolSchema(DocumentSchema):
    type = Choice((FUNCTION,), required=True)
    function = SectionField(FunctionSchema, required=True)


class ToolChoice(fields.Field[Any]):
    """``none``, ``auto``, ``required``, or the one function that is called."""

    def __init__(self) -> None:
        function = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
        named = {
            "type": "object",
            "required": ["type", FUNCTION],
            "properties": {"type": {"const": FUNCTION}, FUNCTION: function},
        }
        meaning = "Whether a tool is called, or which one"
        super().__init__(metadata={"description": meaning, "anyOf": [{"enum": list(TOOL_CHOICES)}, named]})

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if isinstance(value, str) and value in TOOL_CHOICES:
            return value
        function = value.get(FUNCTION) if isinstance(value, dict) and value.get("type") == FUNCTION else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValidationError(f"must be one of {', '.join(TOOL_CHOICES)}, or name a function")
        return {"type": FUNCTION, FUNCTION: {"name": function["name"]}}
