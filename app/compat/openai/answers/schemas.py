"""Bodies of requests for answers. Loading one gives what an engine gets: fields without an effect are left out."""

import re
from typing import Any, ClassVar

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from app.compat.openai.answers.answer_fields import (
    Biases,
    Documents,
    Only,
    ResponseFormat,
    SignedWhole,
    Stops,
    TextsOrTokens,
)
from app.compat.openai.answers.messages import MessageSchema, ToolChoice, ToolSchema
from app.domain.spec.rules.inference import (
    HOTTEST,
    LARGEST_PENALTY,
    LEAST_PENALTY,
    LEAST_TEMPERATURE,
    MOST_ANSWER_TOKENS,
    MOST_ANSWERS,
    MOST_TOP_K,
)
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, Number, SectionField, Text, TextMap, Whole, says

MOST_MESSAGES, MOST_PROMPTS, MOST_TEXTS, MOST_DOCUMENTS = 10_000, 128, 2048, 1024
MOST_TOP_LOGPROBS, MOST_LOGPROBS = 20, 5
_PAIR = re.compile(r"[\s\S]{1,64}")
_NO_TIERS = "there is one tier of service"
_NOT_STORED = "answers are not stored"


class StreamOptionsSchema(DocumentSchema):
    include_usage = Flag(**says("A last chunk has the counts of tokens"))
    include_obfuscation = Only(False, otherwise="chunks are not padded")


class AskingSchema(DocumentSchema):
    """What all requests for answers may say; those names are accepted and have no effect."""

    silent: ClassVar[tuple[str, ...]] = ("user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier")

    model = Text(
        shortest=1,
        longest=1024,
        required=True,
        **says("A service's name, SERVICE/JOB for an adapter, a name of GET /v1/models, or a job's id"),
    )
    user = Text(longest=1024, **says("Accepted; no effect"))
    safety_identifier = Text(longest=1024, **says("Accepted; no effect"))
    prompt_cache_key = Text(longest=1024, **says("Accepted; no effect"))
    metadata = TextMap(
        keys=_PAIR, rule="must be 1 to 64 characters", most=16, longest=512, **says("Accepted; no effect")
    )
    service_tier = Only("auto", "default", otherwise=_NO_TIERS)

    @post_load
    def _heard(self, values: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in self.silent}


class GenerationSchema(AskingSchema):
    """Sampling of answers, in OpenAI's words and those of other engines."""

    stream = Flag(**says("Chunks, as they are made"))
    stream_options = SectionField(StreamOptionsSchema, **says("Only with stream"))
    n = Whole(1, MOST_ANSWERS, **says("Answers to each prompt"))
    max_tokens = Whole(1, MOST_ANSWER_TOKENS, **says("Most tokens of an answer"))
    temperature = Number(0, HOTTEST, **says("0 to 2; 0: the likeliest token"))
    top_p = Number(0, 1, **says("Sample from the likeliest tokens with this probability together"))
    top_k = Whole(0, MOST_TOP_K, **says("Sample from so many tokens; 0: all"))
    min_p = Number(0, 1, **says("Sample from tokens with this share of the likeliest's probability"))
    repetition_penalty = Number(0, LARGEST_PENALTY, **says("Above 1: repeated tokens become less likely"))
    frequency_penalty = Number(-2, 2)
    presence_penalty = Number(-2, 2)
    logit_bias = Biases()
    seed = SignedWhole("The same seed and system_fingerprint: the same answer")
    stop = Stops()

    @validates_schema
    def _fits_together(self, values: dict[str, Any], **_: Any) -> None:
        if "stream_options" in values and not values.get("stream"):
            raise ValidationError("has a meaning only with stream true", "stream_options")
        if values.get("top_p") == 0:
            raise ValidationError("must be above 0", "top_p")
        if 0 < (values.get("temperature") or 0) < LEAST_TEMPERATURE:
            raise ValidationError(
                f"must be 0, which takes the likeliest token, or at least {LEAST_TEMPERATURE}", "temperature"
            )
        if (values.get("repetition_penalty") or 1) < LEAST_PENALTY or values.get("repetition_penalty") == 0:
            raise ValidationError(f"must be at least {LEAST_PENALTY}; 1 is none", "repetition_penalty")


class ChatSchema(GenerationSchema):
    silent = (*AskingSchema.silent, "store", "modalities", "reasoning_effort", "verbosity")

    messages = fields.List(fields.Nested(MessageSchema), required=True, validate=validate.Length(1, MOST_MESSAGES))
    max_completion_tokens = Whole(1, MOST_ANSWER_TOKENS, **says("Most tokens of an answer; max_tokens is the same"))
    logprobs = Flag(**says("Log-probabilities of the answer's tokens"))
    top_logprobs = Whole(0, MOST_TOP_LOGPROBS, **says("With logprobs: of so many of the likeliest tokens, too"))
    response_format = ResponseFormat()
    tools = fields.List(fields.Nested(ToolSchema), validate=validate.Length(1, 128))
    tool_choice = ToolChoice()
    parallel_tool_calls = Flag(**says("With tools"))
    store = Only(False, otherwise=_NOT_STORED)
    modalities = fields.List(Only("text", otherwise="models here write text"), validate=validate.Length(1, 1))
    reasoning_effort = Only("none", otherwise="models here have no effort to choose")
    verbosity = Only("medium", otherwise="models here have no verbosity to choose")
    audio = Only(otherwise="models here write text")
    prediction = Only(otherwise="predicted outputs are not used")
    web_search_options = Only(otherwise="models here search nothing")
    functions = Only(otherwise="functions are tools")
    function_call = Only(otherwise="which function is called is tool_choice")

    @validates_schema
    def _of_a_chat(self, values: dict[str, Any], **_: Any) -> None:
        if values.get("top_logprobs") is not None and not values.get("logprobs"):
            raise ValidationError("has a meaning only with logprobs true", "top_logprobs")
        if {"max_tokens", "max_completion_tokens"} <= values.keys():
            raise ValidationError("is the same as max_tokens; give one of them", "max_completion_tokens")
        self._check_tools(values)

    def _check_tools(self, values: dict[str, Any]) -> None:
        names = [each["function"]["name"] for each in values.get("tools", ())]
        if len(set(names)) < len(names):
            raise ValidationError("two functions have the same name", "tools")
        for name in ("tool_choice", "parallel_tool_calls"):
            if not names and values.get(name) not in (None, "none"):
                raise ValidationError("has a meaning only with tools", name)
        choice = values.get("tool_choice")
        if isinstance(choice, dict) and choice["function"]["name"] not in names:
            raise ValidationError(f"tools has no function {choice['function']['name'][:64]}", "tool_choice")
        if choice not in (None, "none", "auto") and values.get("response_format", {}).get("type", "text") != "text":
            raise ValidationError("can't be held to while tool_choice asks for a call", "response_format")


class CompletionSchema(GenerationSchema):
    prompt = TextsOrTokens(
        most=MOST_PROMPTS,
        may_be_empty=True,
        meaning="A text, a list of texts, ids of tokens, or a list of lists of them",
        required=True,
    )
    logprobs = Whole(0, MOST_LOGPROBS, **says("Log-probabilities of the answer's tokens, and so many of the likeliest"))
    max_tokens = Whole(0, MOST_ANSWER_TOKENS, **says("Most tokens of an answer; 0, with echo: the prompt alone"))
    echo = Flag(**says("The prompt before the answer, with logprobs also those of its tokens"))
    best_of = Whole(1, MOST_ANSWERS, **says("Only what n is"))
    suffix = Only("", otherwise="text is not inserted before a suffix")

    @validates_schema
    def _of_a_completion(self, values: dict[str, Any], **_: Any) -> None:
        if values.get("best_of", values.get("n", 1)) != values.get("n", 1):
            raise ValidationError("must be n: all answers are returned", "best_of")
        if values.get("max_tokens") == 0 and not values.get("echo"):
            raise ValidationError("may be 0 only with echo; give at least 1", "max_tokens")
        prompts = values["prompt"]
        several = len(prompts) if isinstance(prompts, list) and not isinstance(prompts[0], int) else 1
        if several * values.get("n", 1) > MOST_PROMPTS:
            raise ValidationError(f"one request has at most {MOST_PROMPTS} answers, n to each prompt", "n")


class EmbeddingSchema(AskingSchema):
    input = TextsOrTokens(
        most=MOST_TEXTS,
        may_be_empty=False,
        meaning="A text, a list of texts, ids of tokens, or a list of lists of them",
        required=True,
    )
    encoding_format = Choice(("float", "base64"), **says("base64: 32-bit floats, little-endian", default="float"))
    dimensions = Whole(1, 2**20, **says("So many of a vector's first numbers, normalised again"))


class RerankSchema(AskingSchema):
    """Of Cohere's and Jina's API."""

    query = Text(shortest=1, longest=2**20, required=True, **says("What the documents are to answer"))
    documents = Documents(most=MOST_DOCUMENTS, required=True)
    top_n = Whole(1, MOST_DOCUMENTS, **says("Only so many of the best; default all"))
    return_documents = Flag(**says("Results have their documents", default=False))
    max_tokens_per_doc = Whole(1, 2**20, **says("Of longer documents so many tokens are read; without it they are 400"))
