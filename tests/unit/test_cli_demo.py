"""What the demo says where it cannot run."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import demo
from app.cli.main import main


def test_an_installed_package_without_the_examples_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "CHECKOUT", tmp_path)

    answer = CliRunner().invoke(main, ["demo"])

    assert answer.exit_code == 1
    assert "clone the repository" in answer.stderr
