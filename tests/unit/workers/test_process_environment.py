"""What processes of the platform inherit: the same settings, and nothing that confuses them."""

import pytest

from config.settings import load_settings
from workers.process_environment import process_environment, settings_environment


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {
            "TRAINYARD_DATABASE_URL": "postgresql://user:p%40ss@db/trainyard",
            "TRAINYARD_STORAGE_ROOTS": "/srv/a:/srv/b",
            "TRAINYARD_FETCH_ALLOW": "10.0.0.0/8, hub.internal",
            "TRAINYARD_NODE_CONFIG": "/etc/node.toml",
            "TRAINYARD_NODE_KEEP_RUNS": "yes",
            "TRAINYARD_LEASE_FENCE_SECONDS": "9.5",
        },
    ],
    ids=["defaults", "everything"],
)
def test_settings_survive_the_way_through_the_environment(tmp_path, variables):
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path), **variables})

    assert load_settings(settings_environment(settings)) == settings


def test_leftover_variables_of_ours_do_not_reach_a_supervisor(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINYARD_URL", "http://elsewhere")
    monkeypatch.setenv("LANG", "C.UTF-8")
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path)})

    environment = process_environment(settings)

    assert "TRAINYARD_URL" not in environment
    assert environment["LANG"] == "C.UTF-8"
    assert environment["PYTHONSAFEPATH"] == "1"
