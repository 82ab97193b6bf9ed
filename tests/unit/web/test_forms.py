"""Texts of forms as values, and tables as files that spreadsheets open."""

from datetime import UTC, datetime
from typing import Any

import pytest
from marshmallow import ValidationError

from app.http.csv_tables import csv_lines
from app.web.form_fields import FormMoment, FormNumber, Lines


@pytest.mark.parametrize(("text", "number"), [("0.5", 0.5), (" 3 ", 3.0), ("1e2", 100.0), ("+1.", 1.0)])
def test_a_number_is_read_as_browsers_send_it(text: str, number: float):
    assert FormNumber(0, 100).deserialize(text) == number


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "0x1", "1_000", "1,5", "101", "-1", "", "٣"])
def test_what_is_no_number_in_range_is_refused(text: str):
    with pytest.raises(ValidationError):
        FormNumber(0, 100).deserialize(text)


@pytest.mark.parametrize("text", ["2026-05-17T09:30", "2026-05-17T09:30:00", "2026-05-17T11:30:00+02:00"])
def test_a_time_without_an_offset_is_in_utc(text: str):
    assert FormMoment().deserialize(text) == datetime(2026, 5, 17, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-05-17", "2026-13-17T09:30", "now"])
def test_what_is_no_time_is_refused(text: str):
    with pytest.raises(ValidationError):
        FormMoment().deserialize(text)


def test_lines_are_a_list_without_blanks():
    assert Lines().deserialize(" a \n\n b\n") == ["a", "b"]


def test_no_cell_is_a_formula():
    rows: list[dict[str, Any]] = [
        {"a": '=HYPERLINK("x")', "b": -1},
        {"a": "x,y", "b": None},
        {"a": {"k": 1}, "b": "@SUM(A1)"},
        {"a": "  =1", "b": "\uff1d1"},
        {"a": "\n=1", "b": "a=1"},
    ]

    assert list(csv_lines(("a", "b"), rows)) == [
        "a,b\r\n",
        '"\'=HYPERLINK(""x"")",-1\r\n',
        '"x,y",\r\n',
        '"{""k"": 1}",\'@SUM(A1)\r\n',
        "'  =1,'\uff1d1\r\n",
        '"\'\n=1",a=1\r\n',
    ]
