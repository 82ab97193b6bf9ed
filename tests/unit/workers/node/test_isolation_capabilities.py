"""What a node offers by its sandbox and its control groups."""

import pytest

from workers.node.inventory import found_capabilities
from workers.sandbox.control_groups import CONTROLLERS, Hierarchies
from workers.sandbox.sandbox import PROCESS


@pytest.mark.parametrize(("controllers", "offers"), [(CONTROLLERS, True), (("pids",), False), ((), False)])
def test_node_offers_limits_where_it_can_hold_all_of_them(tmp_path, monkeypatch, controllers, offers):
    found = Hierarchies(dict.fromkeys(controllers, tmp_path), 1)
    monkeypatch.setattr("workers.node.inventory.find_hierarchies", lambda: found)

    assert ("limits" in found_capabilities(PROCESS, tmp_path)) is offers


@pytest.mark.parametrize(
    ("sandbox", "controllers", "offered"),
    [
        ("auto", CONTROLLERS, ["sandbox:full", "sandbox:namespaces"]),
        ("bubblewrap", ("memory",), ["sandbox:namespaces"]),
        (PROCESS, CONTROLLERS, []),
    ],
)
def test_node_offers_the_isolation_that_it_has_and_each_weaker_one(
    tmp_path, monkeypatch, sandbox, controllers, offered
):
    found = Hierarchies(dict.fromkeys(controllers, tmp_path), 1)
    monkeypatch.setattr("workers.node.inventory.find_hierarchies", lambda: found)

    assert [name for name in found_capabilities(sandbox, tmp_path) if name.startswith("sandbox:")] == offered
