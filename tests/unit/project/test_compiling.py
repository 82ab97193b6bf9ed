from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.compiling import compile_file, compiled


@pytest.fixture(autouse=True)
def bytecode_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.pycache_prefix", None)


def test_pytest_takes_what_was_compiled_until_the_file_changes(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("def test_one():\n    assert 1 == 2\n")

    compile_file(pytestconfig, file)
    first = rewrite._read_pyc(file, compiled(file))
    file.write_text("def test_one():\n    assert 1 == 3\n")

    assert first is not None
    assert "@pytest_ar" in first.co_names, "its assertions are rewritten"
    assert rewrite._read_pyc(file, compiled(file)) is None


def test_a_file_that_cannot_be_compiled_says_so(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    file = tmp_path / "test_broken.py"
    file.write_text("def test_one(:\n")

    with pytest.raises(SyntaxError):
        compile_file(pytestconfig, file)
    assert not compiled(file).exists()
