"""What the test runner itself loads."""

import subprocess
import sys

import pytest

from tests.trainers.supervision import ROOT

LIGHT = "tests/unit/domain/spec/test_megatron.py"
# torch and DeepSpeed offer to be seeded before every test, and take seconds and hundreds of megabytes for it.
PROGRAM = f"""
import sys, pytest
code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", {LIGHT!r}])
print(code == 0, sorted({{"torch", "deepspeed"}} & set(sys.modules)))
"""


@pytest.mark.long
def test_tests_that_train_nothing_import_nothing_that_trains():
    found = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, check=True, capture_output=True, text=True)

    assert found.stdout.splitlines()[-1] == "True []"
