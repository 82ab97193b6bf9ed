"""Python graders run in a sandbox, and whatever they do is an answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings, load_settings
from workers.prepare.grading.run import NO_SANDBOX, run_grader
from workers.sandbox.sandbox import PROCESS

GRADE = "def grade(sample, item):\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"TRAINYARD_DATA_DIR": str(tmp_path / "data")})


def run(settings: Settings, source: str, *, seconds: float = 60.0, **item: Any) -> dict[str, Any]:
    question = json.dumps({"source": source, "sample": {"output_text": "Paris", "output_tools": []}, "item": item})
    return run_grader(settings, {"grading": question, "seconds": seconds})


def test_grader_gets_sample_and_item(settings: Settings) -> None:
    source = f"{GRADE}    print('for the log')\n    return 0.5 * (sample['output_text'] == item['capital'])"

    assert run(settings, source, capital="Paris") == {"reward": 0.5}
    assert run(settings, source, capital="Rome") == {"reward": 0.0}


def test_grader_of_the_guide_finds_its_library(settings: Settings) -> None:
    source = (
        "from rapidfuzz import fuzz, utils\n"
        f"{GRADE}    return fuzz.WRatio(sample['output_text'], item['answer'], processor=utils.default_process) / 100.0"
    )

    assert run(settings, source, answer="paris") == {"reward": 1.0}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return item['capital']", "line 2: KeyError: 'capital'"),
        ("raise SystemExit(3)", "line 2: SystemExit: 3"),
        ("return 'much'", "TypeError: grade returned 'much', which is no number"),
        ("return float('nan')", "grade returned nan, which is no finite number"),
        ("return len(bytearray(1 << 32))", "line 2: MemoryError (a grader has 2 GiB of memory)"),
        ("print('x' * (1 << 21))", "line 2: OSError: [Errno 27] File too large (a grader may write 1,048,576 bytes)"),
        ("import os; os._exit(0)", "grade has no result: it ended with exit code 0"),
        ("import os; os._exit(4)", "grade has no result: it ended with exit code 4"),
    ],
)
def test_grader_that_gives_no_number_says_why(settings: Settings, body: str, said: str) -> None:
    assert run(settings, f"{GRADE}    {body}") == {"runtime_error": said}


def test_number_that_is_too_large_for_any_reward_is_none(settings: Settings) -> None:
    lines = [
        "import contextlib, os",
        "for fd in range(3, 32):",
        "    with contextlib.suppress(OSError):",
        "        os.write(fd, b'{\"value\": 1' + b'0' * 400 + b'}\\n')",
        "os._exit(0)",
    ]

    found = run(settings, GRADE + "".join(f"    {line}\n" for line in lines))

    assert found["runtime_error"].startswith("grade has no result")


def test_source_without_the_function_is_none(settings: Settings) -> None:
    assert run(settings, "grade = 1") == {"runtime_error": "the source defines no function grade(sample, item)"}


@pytest.mark.long
def test_grader_that_does_not_end_is_ended(settings: Settings) -> None:
    found = run(settings, f"{GRADE}    while True: pass", seconds=2.0)

    assert found == {"runtime_error": "grade has no result: it took longer than 2 s"}


def test_grader_sees_neither_network_nor_what_is_ours(settings: Settings, tmp_path: Path) -> None:
    secret = tmp_path / "data" / "secret.key"
    secret.parent.mkdir()
    secret.write_text("ours")
    found = run(
        settings,
        f"import os, socket\n{GRADE}    seen = os.path.exists(item['path']), len(socket.if_nameindex())\n"
        "    raise ValueError(seen, [each for each in os.environ if each.startswith('TRAINYARD')])",
        path=str(secret),
    )

    assert found == {"runtime_error": "line 4: ValueError: ((False, 1), [])"}


STARTING = """
import ctypes, multiprocessing, os, subprocess, threading

def grade(sample, item):
    started = []
    clone = ctypes.CDLL(None, use_errno=True).syscall
    ways = (
        os.fork,
        lambda: subprocess.run(["true"]),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: multiprocessing.get_context("fork").Process(target=print).start(),
        lambda: clone(56, 17, 0, 0, 0, 0) < 0 and 1 / 0,
    )
    for way in ways:
        try:
            way()
        except (OSError, ZeroDivisionError):
            continue
        started.append(way)
    thread = threading.Thread(target=started.extend, args=([],))
    thread.start()
    thread.join()
    return len(started)
"""


def test_grader_is_one_process_with_threads(settings: Settings) -> None:
    assert run(settings, STARTING) == {"reward": 0.0}


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("mmap.mmap(-1, 1 << 32)", "OSError: [Errno 12] Cannot allocate memory"),
        ("mmap.mmap(-1, 1 << 32, flags=mmap.MAP_PRIVATE)", "OSError: [Errno 12] Cannot allocate memory"),
        ("mmap.mmap(os.open('/dev/zero', os.O_RDWR), 1 << 32)", "OSError: [Errno 12] Cannot allocate memory"),
        ("os.memfd_create('a')", "PermissionError: [Errno 1] Operation not permitted"),
        (
            "open('/dev/shm/a', 'wb').write(bytes(1 << 22))",
            "OSError: [Errno 27] File too large (a grader may write 1,048,576 bytes)",
        ),
    ],
)
def test_memory_that_is_shared_is_no_way_past_the_limit(settings: Settings, way: str, said: str) -> None:
    assert run(settings, f"import mmap, os\n{GRADE}    {way}") == {"runtime_error": f"line 3: {said}"}


def test_without_a_sandbox_no_graders_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    variables = {"TRAINYARD_DATA_DIR": str(tmp_path / "data")}

    lacking = run(load_settings(variables), f"{GRADE}    return 1")
    disabled = run(load_settings({**variables, "TRAINYARD_NODE_SANDBOX": PROCESS}), f"{GRADE}    return 1")

    assert lacking["unavailable"].startswith("this coordinator runs no graders without a sandbox: ")
    assert disabled == {"unavailable": NO_SANDBOX.format("process")}
