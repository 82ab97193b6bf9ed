"""Which rows are taken: slices, filters, sampling, columns; deterministic and in their order."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.trainers.data.selection import selected
from workers.trainers.data.sources import DataFile, sources_of
from workers.trainers.failures import DataInvalid

ROWS = [{"n": number, "name": f"r{number}", "even": number % 2 == 0} for number in range(20)]


@pytest.fixture
def numbers(write, make_spec):
    """The numbers of the rows that a source's document selects of 20 (or so many) rows."""

    def chosen(count=20, *, one_pass=False, **document):
        rows = [{"n": number, "name": f"r{number}", "even": number % 2 == 0} for number in range(count)]
        (source,) = sources_of(make_spec((write(*rows), document)))
        return [row.values["n"] for _, row in selected(source, one_pass=one_pass)]

    return chosen


def test_everything_is_taken_where_nothing_is_said(numbers):
    assert numbers() == list(range(20))


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[5:8]", [5, 6, 7]),
        ("train[:10%]", [0, 1]),
        ("validation[90%:]", [18, 19]),
        ("test[17:]", [17, 18, 19]),
        ("train[18:900]", [18, 19]),
        ("train[50%:11]", [10]),
    ],
)
def test_slice_takes_rows_by_number_and_by_share(numbers, split, expected):
    assert numbers(split=split) == expected


def test_slice_counts_over_all_files_of_a_source(write, make_spec):
    files = [write(*ROWS[:7], name="a.jsonl"), write(*ROWS[7:], name="b.jsonl")]
    spec = make_spec((files[0], {"split": "train[25%:9]"}))
    spec.sources[0]["files"].append({"path": str(files[1].path), "name": "b.jsonl"})
    (source,) = sources_of(spec)

    found = [(file.name, row.number, row.values["n"]) for file, row in selected(source)]

    assert found == [("a.jsonl", 6, 5), ("a.jsonl", 7, 6), ("b.jsonl", 1, 7), ("b.jsonl", 2, 8)]


@given(share=st.integers(1, 99), count=st.integers(1, 40))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_two_complementary_slices_share_no_row_and_lose_none(numbers, share, count):
    splits = (f"train[:{share}%]", f"train[{share}%:]")

    assert numbers(count, split=splits[0]) + numbers(count, split=splits[1]) == list(range(count))


@pytest.mark.parametrize(
    ("column", "op", "value", "expected"),
    [
        ("n", "==", 3, [3]),
        ("n", "eq", 3.0, [3]),
        ("n", "!=", 3, [0, 1, 2, 4]),
        ("n", "<", 2, [0, 1]),
        ("n", "ge", 3.5, [4]),
        ("n", "in", [1, "x", 4], [1, 4]),
        ("n", "not_in", [1, 4], [0, 2, 3]),
        ("name", "contains", "3", [3]),
        ("name", "not_contains", "3", [0, 1, 2, 4]),
        ("name", ">", "r2", [3, 4]),
        ("even", "==", True, [0, 2, 4]),
        ("name", "is_null", None, []),
        ("name", "not_null", None, [0, 1, 2, 3, 4]),
    ],
)
def test_filter_keeps_what_it_holds_for(numbers, column, op, value, expected):
    assert numbers(5, filters=[{"column": column, "op": op, "value": value}]) == expected


def test_all_filters_must_hold(numbers):
    filters = [{"column": "n", "op": ">", "value": 3}, {"column": "even", "op": "==", "value": False}]

    assert numbers(10, filters=filters) == [5, 7, 9]


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [("==", 1, [1]), ("!=", 1, [0, 2]), ("is_null", None, [0, 2]), ("in", [1], [1]), ("not_contains", 1, [0, 2])],
)
def test_missing_value_is_not_the_one_that_is_looked_for(write, make_spec, op, value, expected):
    rows = [{"n": 0, "a": None}, {"n": 1, "a": [1] if "contains" in op else 1}, {"n": 2}]
    (source,) = sources_of(make_spec((write(*rows), {"filters": [{"column": "a", "op": op, "value": value}]})))

    assert [row.values["n"] for _, row in selected(source)] == expected


@pytest.mark.parametrize(
    ("column", "op", "value", "message"),
    [
        ("n", "<", "3", r"^data.jsonl line 1, column n: int 0 can't be compared with str '3' \(< in filters\)$"),
        ("n", "==", True, r"int 0 can't be compared with bool True"),
        ("even", ">", 0, r"bool True can't be compared with int 0"),
        ("n", "in", ["a", "b"], r"int 0 can't be compared with str 'b'"),
        ("n", "contains", "a", r"only a text can contain a text"),
        (
            "nmae",
            "==",
            1,
            r"^data.jsonl has no column nmae, which data_config.sources.0.filters names; it has n, name, even$",
        ),
    ],
)
def test_filter_that_can_mean_nothing_names_file_row_and_column(numbers, column, op, value, message):
    with pytest.raises(DataInvalid, match=message):
        numbers(filters=[{"column": column, "op": op, "value": value}])


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("<=", 12, ["a", "b"]),
        ("==", 12, ["b"]),
        (">", 2.5, ["b", "c"]),
        ("in", [2, 30], ["a", "c"]),
        ("==", "12", ["b"]),
        ("is_null", None, ["d"]),
    ],
)
def test_cells_of_csv_are_read_as_what_they_are_compared_with(write, make_spec, op, value, expected):
    file = write("name,words\na,2\nb,12\nc,30\nd,\n", name="a.csv")
    (source,) = sources_of(make_spec((file, {"filters": [{"column": "words", "op": op, "value": value}]})))

    assert [row.values["name"] for _, row in selected(source)] == expected


def test_cell_of_csv_that_is_no_number_is_named(write, make_spec):
    file = write("name,words\na,2\nb,many\n", name="a.csv")
    (source,) = sources_of(make_spec((file, {"filters": [{"column": "words", "op": "<", "value": 3}]})))

    with pytest.raises(DataInvalid, match=r"^a.csv line 3, column words: str 'many' can't be compared with int 3"):
        list(selected(source))


@given(fraction=st.floats(0.01, 1), count=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_fraction_is_exact_deterministic_and_in_order(numbers, fraction, count, seed):
    sampling = {"fraction": fraction, "seed": seed}
    found = numbers(count, sampling=sampling)

    assert len(found) == max(1, round(count * fraction))
    assert found == sorted(set(found))
    assert found == numbers(count, sampling=sampling)


def test_count_takes_so_many_of_those_that_the_filters_leave(numbers):
    filters = [{"column": "even", "op": "==", "value": True}]

    found = numbers(100, filters=filters, sampling={"count": 7, "seed": 3})
    assert len(found) == 7
    assert all(number % 2 == 0 for number in found)
    assert found != numbers(100, filters=filters, sampling={"count": 7, "seed": 4})
    assert numbers(10, filters=filters, sampling={"count": 7}) == [0, 2, 4, 6, 8]


def test_seed_of_the_job_is_that_of_the_sampling(write, make_spec):
    file = write(*ROWS)

    def drawn(job_seed, **sampling):
        (source,) = sources_of(make_spec((file, {"sampling": {"count": 5, **sampling}}), seed=job_seed))
        return [row.values["n"] for _, row in selected(source)]

    assert drawn(1) == drawn(2, seed=1)
    assert drawn(1) != drawn(2)


def test_one_pass_leaves_out_what_needs_two(numbers):
    assert numbers(one_pass=True, sampling={"count": 3}) == list(range(20))
    assert numbers(one_pass=True, split="train[:10%]") == list(range(20))
    assert numbers(one_pass=True, split="train[3:5]") == [3, 4]
    assert 50 < len(numbers(200, one_pass=True, sampling={"fraction": 0.5})) < 150


def test_columns_are_kept_after_filters_have_used_the_others(write, make_spec):
    document = {"columns": ["name", "n"], "filters": [{"column": "even", "op": "==", "value": True}]}
    (source,) = sources_of(make_spec((write(*ROWS[:3]), document)))

    assert [row.values for _, row in selected(source)] == [{"name": "r0", "n": 0}, {"name": "r2", "n": 2}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.csv"])
def test_unknown_column_is_named_with_the_known_ones(tmp_path, write, make_spec, name):
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / name)
        file = DataFile(tmp_path / name, name)
    else:
        file = write(*ROWS, name=name) if name == "a.jsonl" else write("n,name,even\n1,2,3\n", name=name)
    (source,) = sources_of(make_spec((file, {"columns": ["n", "txet"]})))

    with pytest.raises(
        DataInvalid, match=rf"^{name} has no column txet, which .*sources.0.columns names; it has n, name, even"
    ):
        list(selected(source))


def test_column_that_only_some_records_have_is_kept_where_it_is(write, make_spec):
    (source,) = sources_of(make_spec((write({"a": 1}, {"a": 2, "b": 3}), {"columns": ["b"]})))

    assert [row.values for _, row in selected(source)] == [{}, {"b": 3}]
