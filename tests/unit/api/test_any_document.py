"""Whatever is written into a job document, it is taken or refused; nothing else happens."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.request_body import check_content, validated
from app.domain.errors import TrainyardError
from app.domain.job_spec import JobSpec, from_document
from app.domain.locations import ReadingRules
from app.schemas.jobs import SubmitJobSchema
from tests.factories import make_document

SCHEMA = SubmitJobSchema()
RULES = ReadingRules(roots=("/srv",), data_dir="/srv/.trainyard")
FULL = make_document(
    labels={"a": "b"},
    training_config={
        "framework": {"distributed": {"world_size": 1}, "config": {}},
        "environment": {"A": "b"},
        "evaluation": {"strategy": "no"},
        "resume_from_checkpoint": "ckpt-1",
    },
    data_config={"preprocess": {}, "seed": 1, "validation_split": 0.1},
    output_config={"checkpoint": {"save_steps": 5}, "hub_token": "x"},
    scheduling_config={"queue": "default", "required_capabilities": ["x"]},
)
WORDS = st.text() | st.sampled_from(
    [
        "file://",
        "file:///",
        "http://[",
        "http://[::1%",
        "s3://x",
        "~",
        "..",
        "/srv/../x",
        "CUSTOM",
        "SFT",
        "cpu",
        "A100-80GB",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(found for key, child in items for found in places(child, (*path, key)))]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(places(FULL)[1:]), VALUES)
def test_a_document_is_taken_or_refused(place: tuple[Any, ...], value: Any) -> None:
    document = copy.deepcopy(FULL)
    node: Any = document
    for step in place[:-1]:
        node = node[step]
    node[place[-1]] = value

    outcome = outcome_of(document)

    assert isinstance(outcome, JobSpec | TrainyardError)


def outcome_of(document: dict[str, Any]) -> JobSpec | TrainyardError:
    try:
        check_content(document, max_nesting=32)
        return from_document(validated(SCHEMA, document), RULES)
    except TrainyardError as refusal:
        return refusal


def test_the_full_document_is_taken() -> None:
    assert isinstance(outcome_of(copy.deepcopy(FULL)), JobSpec)
