"""What the demo says where it cannot run."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli.local import demo
from app.cli.main import main
from trainyard.client import Client


def test_an_installed_package_without_the_examples_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "CHECKOUT", tmp_path)

    answer = CliRunner().invoke(main, ["demo"])

    assert answer.exit_code == 1
    assert "clone the repository" in answer.stderr


@pytest.mark.parametrize(
    ("nodes", "wanted"), [([["h100"]], 1), ([["h100"] * 8, ["cpu"] * 64], 2), ([["cpu"], ["cpu"] * 2], 2), ([], 2)]
)
def test_no_more_gpus_are_asked_for_than_one_node_has(
    nodes: list[list[str]], wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client("http://127.0.0.1:9", "key")
    found: list[Any] = [{"devices": [{"type": kind} for kind in kinds]} for kinds in nodes]
    monkeypatch.setattr(client.nodes, "list", lambda: iter(found))

    assert demo._devices(client, at_most=2) == wanted
