"""`make test-times`: what tests took, summed up from the files that runs leave."""

from pathlib import Path

from scripts.durations import main

RUN = """<testsuites><testsuite name="pytest">
<testcase classname="tests.unit.test_a" name="test_one" time="1.5"/>
<testcase classname="tests.unit.test_a" name="test_two" time="0.25"/>
<testcase classname="tests.unit.test_b" name="test_one" time="1.6"><failure message="no"/></testcase>
</testsuite></testsuites>"""


def test_files_and_tests_come_slowest_first(tmp_path: Path) -> None:
    (tmp_path / "test.xml").write_text(RUN)

    assert main([str(tmp_path / "test.xml")]).split("\n") == [
        "     3.4  3 tests in 2 files",
        "",
        "     1.8  tests.unit.test_a",
        "     1.6  tests.unit.test_b",
        "",
        "     1.6  tests.unit.test_b::test_one",
        "     1.5  tests.unit.test_a::test_one",
        "     0.2  tests.unit.test_a::test_two",
    ]


def test_several_runs_are_summed_up_together(tmp_path: Path) -> None:
    for name in ("test.xml", "test-long.xml"):
        (tmp_path / name).write_text(RUN)

    assert main([str(path) for path in sorted(tmp_path.iterdir())]).split("\n")[2] == "     3.5  tests.unit.test_a"
