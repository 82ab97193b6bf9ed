"""Python graders run in processes of their own, which end what takes too long or goes wrong."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from app.domain.graders.grading import PYTHON_RUNTIME, NoGrade
from workers.trainers.graders.python_graders import PythonGraders

COUNTS = """
calls = 0
def grade(sample, item):
    global calls
    calls += 1
    return calls
"""


@pytest.fixture
def graders():
    with PythonGraders(seconds=20) as found:
        yield found


def body(*lines: str) -> str:
    return "\n    ".join(["def grade(sample, item):", *lines])


def test_function_gets_sample_and_item_and_may_import(graders):
    source = body("import json, rapidfuzz", "return len(sample['output_text']) + json.loads(item['n'])")

    assert graders.run(source, {"output_text": "abc"}, {"n": "0.5"}) == 3.5


@pytest.mark.parametrize(("said", "value"), [("True", 1.0), ("7", 7.0), ("float('nan')", math.nan)])
def test_numbers_of_any_kind_are_taken(graders, said, value):
    assert graders.run(body(f"return {said}"), {}, {}) == pytest.approx(value, nan_ok=True)


def test_source_is_loaded_once_and_two_do_not_meet(graders):
    assert [graders.run(source, {}, {}) for source in (COUNTS, COUNTS, COUNTS + "\n", COUNTS)] == [1, 2, 1, 3]


def test_what_it_prints_and_reads_is_no_answer(graders, capfd):
    source = body("print('hello')", "import sys", "return len(sys.stdin.read())")

    assert graders.run(source, {}, {}) == 0
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "hello\n")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (body("pass", "return item['x']"), "line 3: KeyError: 'x'"),
        (body("return 'high'"), "TypeError: grade returned 'high', which is no number"),
        (body("return None"), "TypeError: grade returned None, which is no number"),
        (body("raise SystemExit(3)"), "line 2: SystemExit: 3"),
        (body("return grade(sample, item)"), "RecursionError"),
        (body("import os", "os._exit(3)"), "grade ended its process (exit status 3)"),
        (body("x = bytearray(3 * 1024 ** 3)"), "MemoryError (a grader has 2 GiB of memory)"),
        ("1 / 0\n" + body("return 1"), "line 1: ZeroDivisionError: division by zero"),
        ("grade = 3", "the source defines no function grade(sample, item)"),
    ],
)
def test_error_is_reported_and_the_next_call_works(graders, source, why):
    with pytest.raises(NoGrade) as failed:
        graders.run(source, {}, {})

    assert (failed.value.kind, why in failed.value.message) == (PYTHON_RUNTIME, True), failed.value.message
    assert graders.run(body("return 1"), {}, {}) == 1


@pytest.mark.parametrize("loop", ["while True: pass", "sum(range(10 ** 12))"])
def test_what_takes_too_long_is_ended(loop):
    with PythonGraders(seconds=1) as graders:
        with pytest.raises(NoGrade, match="grade took more than 1 seconds"):
            graders.run(body(loop), {}, {})

        assert graders.run(body("return 1"), {}, {}) == 1


def test_calls_of_several_threads_have_processes_of_their_own():
    with PythonGraders(processes=2) as graders, ThreadPoolExecutor(4) as threads:
        source = body("import os, time", "time.sleep(0.2)", "return os.getpid()")

        assert len(set(threads.map(lambda _: graders.run(source, {}, {}), range(4)))) == 2


def test_large_texts_pass(graders):
    assert graders.run(body("return len(sample['output_text'])"), {"output_text": "é" * 10**6}, {}) == 10**6


def test_values_that_json_lacks_are_texts_as_in_templates(graders):
    source = body("return item['on'].startswith('2026-') and 'x' in item['data']")

    assert graders.run(source, {}, {"on": datetime(2026, 1, 2, tzinfo=UTC), "data": b"x"}) == 1


FORKS = body("import os, time", "if os.fork() == 0: time.sleep(60)", "return 1")


def test_what_a_grader_has_forked_is_ended_with_it():
    begun = time.monotonic()
    with PythonGraders(seconds=20) as graders:
        assert graders.run(FORKS, {}, {}) == 1

    assert time.monotonic() - begun < 15


def test_time_limit_holds_for_a_grader_that_has_forked():
    begun = time.monotonic()
    with PythonGraders(seconds=1) as graders, pytest.raises(NoGrade, match="more than 1 seconds"):
        graders.run(FORKS.replace("return 1", "time.sleep(60)"), {}, {})

    assert time.monotonic() - begun < 15


def test_fork_that_returns_gives_no_second_answer(graders):
    source = body("import os", "return float(os.fork() != 0)")

    assert [graders.run(source, {}, {}) for _ in range(3)] == [1, 1, 1]


def test_grader_that_closes_its_pipe_and_stays_is_ended():
    source = body("import os, time", "os.closerange(3, 64)", "time.sleep(60)")
    begun = time.monotonic()

    with PythonGraders(seconds=1) as graders, pytest.raises(NoGrade, match="more than 1 seconds"):
        graders.run(source, {}, {})

    assert time.monotonic() - begun < 15


def test_close_ends_calls_at_work_and_those_that_wait(tmp_path):
    graders, said = PythonGraders(seconds=60), []
    source = body("import pathlib, time", f"pathlib.Path({str(tmp_path)!r}, 'begun').touch()", "time.sleep(60)")

    def run() -> None:
        with pytest.raises(NoGrade) as failed:
            graders.run(source, {}, {})
        said.append(failed.value.message)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    graders.close()
    for thread in threads:
        thread.join(20)

    assert sorted(said) == ["grade ended its process (exit status -9)", "the run ends"]
