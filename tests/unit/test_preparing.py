"""What an attempt's sandbox is told to hide, besides the data directory."""

import pytest

from app.storage.storage import Storage
from config.settings import load_settings
from workers.preparing import private_places


def hidden(tmp_path, storage_url, database_url):
    variables = {
        "TRAINYARD_DATA_DIR": str(tmp_path / "data"),
        "TRAINYARD_STORAGE_URL": storage_url,
        "TRAINYARD_DATABASE_URL": database_url,
    }
    settings = load_settings(variables)
    return private_places(settings, Storage(settings.storage.url))


def test_storage_and_database_outside_the_data_directory_are_hidden(tmp_path):
    places = hidden(tmp_path, f"file://{tmp_path}/stored", f"sqlite:///{tmp_path}/db/trainyard.db")

    assert tmp_path / "stored" in places
    assert (tmp_path / "stored").is_dir()
    database = tmp_path / "db"
    assert {database, *(database / f"trainyard.db{end}" for end in ("", "-wal", "-shm"))} <= set(places)


@pytest.mark.parametrize("url", ["postgresql://u:p@db/trainyard", "postgresql:///trainyard"])
def test_database_that_is_no_file_has_nothing_to_hide(tmp_path, url):
    assert hidden(tmp_path, f"file://{tmp_path}/stored", url) == (tmp_path / "stored",)
