"""`trainyard up --simulate`: what its option means, and that node workers take what is written for them."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from app.cli.local.simulated_nodes import SimulatedNode, simulate_option, write_node_configs
from workers.node.inventory import take_inventory
from workers.node.node_config import read_node_config


@click.command()
@simulate_option
def names(simulated: list[SimulatedNode]) -> None:
    click.echo(" ".join(f"{node.name}:{node.count}" for node in simulated))


def run(*values: str) -> Result:
    return CliRunner().invoke(names, [part for value in values for part in ("--simulate", value)])


def test_nodes_are_named_after_their_type_and_counted() -> None:
    assert run("h100:2", "a100-80gb:1", "h100:64").stdout == "h100-1:2 a100-80gb-1:1 h100-2:64\n"
    assert run().stdout == "\n"


@pytest.mark.parametrize("value", ["h100", "h100:", ":2", "h100:0", "h100:65", "h100:x", "h100:²", "a/b:2", "h:100:2"])
def test_what_is_no_type_and_count_is_refused_with_an_example(value: str) -> None:
    answer = run(value)

    assert answer.exit_code == 2
    assert "is not TYPE:COUNT, such as h100:4" in " ".join(answer.stderr.split())


@pytest.mark.parametrize("value", ["nvidia:2", "80gb:1", "cpu:2"])
def test_what_no_job_could_name_as_a_gpu_is_refused(value: str) -> None:
    answer = run(value)

    assert answer.exit_code == 2
    assert "is not a GPU type that a job can request" in " ".join(answer.stderr.split())


def test_a_node_worker_offers_what_was_written_down(tmp_path: Path) -> None:
    one, other = write_node_configs(
        [SimulatedNode("h100-1", "h100", 2), SimulatedNode("a100-1", "a100-80gb", 1)], tmp_path
    )

    offered = [take_inventory(read_node_config(node.config), tmp_path).devices for node in (one, other)]

    assert (one.name, other.name) == ("h100-1", "a100-1")
    assert [[(device.type, device.simulated) for device in devices] for devices in offered] == [
        [("h100", True)] * 2,
        [("a100", True)],
    ]
    assert write_node_configs([], tmp_path) == []
