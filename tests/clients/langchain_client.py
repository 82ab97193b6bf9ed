"""LangChain's classes for OpenAI: answers, a stream, tools, structured output, vectors. The argument is the model."""

import asyncio
import sys
from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, ConfigDict

MODEL = sys.argv[1]


class Report(BaseModel):
    """A user's report."""

    # Other fields would be allowed, and a model that has learned nothing writes them without an end.
    model_config = ConfigDict(extra="forbid")
    kind: Literal["bug", "feature"]


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def answers() -> None:
    model = ChatOpenAI(model=MODEL, temperature=0, max_completion_tokens=8, seed=7, timeout=150)
    conversation = [SystemMessage("You answer."), HumanMessage("def f1(x):")]

    answer = model.invoke(conversation)
    pieces = list(model.stream(conversation, stream_usage=True))
    several = model.batch(["def f1(x):", "def f2(x):"])
    chain = ChatPromptTemplate.from_messages([("user", "def {name}(x):")]) | model

    assert isinstance(answer, AIMessage)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] <= 8
    assert answer.response_metadata["system_fingerprint"]
    assert "".join(str(piece.content) for piece in pieces) == answer.content
    assert sum(piece.usage_metadata["output_tokens"] for piece in pieces if piece.usage_metadata) > 0
    assert len(several) == 2
    assert chain.invoke({"name": "f1"}).content == several[0].content
    assert asyncio.run(model.ainvoke(conversation)).content == answer.content
    assert OpenAI(model=MODEL, max_tokens=4, temperature=0, timeout=150).invoke("def f1(x):")


def forms_and_tools() -> None:
    model = ChatOpenAI(model=MODEL, max_completion_tokens=80, timeout=150)

    formed = model.with_structured_output(Report, method="json_schema").invoke("It breaks.")
    called = model.with_structured_output(Report, method="function_calling").invoke("It breaks.")
    asked = model.bind_tools([weather]).invoke(
        [
            HumanMessage("The weather?"),
            AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Bern"}, "id": "call_1"}]),
            ToolMessage("rain in Bern", tool_call_id="call_1"),
        ]
    )

    assert isinstance(formed, Report)
    assert isinstance(called, Report)
    assert isinstance(asked, AIMessage)


def vectors() -> None:
    # By default it cuts texts into the tokens of OpenAI's models, which it downloads.
    embeddings = OpenAIEmbeddings(model=MODEL, check_embedding_ctx_length=False, timeout=150)

    documents = embeddings.embed_documents(["one text", "another"])

    assert len(documents) == 2
    assert all(abs(a - b) < 1e-3 for a, b in zip(embeddings.embed_query("another"), documents[1], strict=True))


answers()
forms_and_tools()
vectors()
sys.stdout.write("done\n")
