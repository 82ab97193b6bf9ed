"""Answers of a batch in the order of its requests, whichever rows there are."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.domain.files.lines import Line
from app.services.batches.merging import Lost, merged

MODELS = ("a", "b", "c")


def line(number: int, model: str) -> Line:
    content = json.dumps({"custom_id": f"r{number}", "body": {"model": model}}).encode()
    return Line(number, content, is_too_long=False)


def row(number: int, status: int | None) -> dict[str, Any]:
    response = {"status_code": status, "request_id": "x", "body": {"n": number}} if status is not None else None
    error = None if status is not None else {"code": "DATA_INVALID", "message": "no"}
    return {"line": number, "custom_id": f"r{number}", "response": response, "error": error}


@given(
    st.lists(st.tuples(st.sampled_from(MODELS), st.sampled_from([200, 400, None, "missing"])), max_size=40),
    st.sets(st.sampled_from(MODELS)),
)
def test_each_request_has_one_line_in_its_order(requests: list[tuple[str, Any]], left_out: set[str]) -> None:
    stored: Mapping[str, Iterator[dict[str, Any]]] = {
        model: iter([row(i, how) for i, (of, how) in enumerate(requests) if of == model and how != "missing"])
        for model in MODELS
    }

    def lost(model: str) -> Lost | None:
        return None if model in left_out else Lost(code="gone", message="gone")

    found = list(merged("batch-1", [line(i, of) for i, (of, _) in enumerate(requests)], stored, lost))

    wanted = [(i, how) for i, (of, how) in enumerate(requests) if how != "missing" or of not in left_out]
    shown = [json.loads(each.content) for each in found]
    assert [each["custom_id"] for each in shown] == [f"r{i}" for i, _ in wanted]
    assert [each.is_answer for each in found] == [how == 200 for _, how in wanted]
    assert len({each["id"] for each in shown}) == len(shown)
    for each, (_, how) in zip(shown, wanted, strict=True):
        assert (each["error"] or {}).get("code") == {"missing": "gone", None: "data_invalid"}.get(how)


def test_a_row_without_a_request_hides_no_others() -> None:
    foreign = {**row(2, 200), "custom_id": "of another file"}
    rows = {"a": iter([row(1, 200), foreign, row(3, 200)])}

    found = merged("batch-1", [line(i, "a") for i in (1, 2, 3)], rows, lambda _: Lost(code="gone", message="gone"))

    assert [(json.loads(each.content)["custom_id"], each.is_answer) for each in found] == [
        ("r1", True),
        ("r2", False),
        ("r3", True),
    ]
