"""What is made before the first start: by one process or by several at once, and again without harm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select

from app.database.engine import Database, make_engine
from app.database.from_settings import open_database
from app.models import ApiKey, Project, Queue
from app.security.permissions import Role
from app.services.access import api_keys
from app.services.operations import bootstrap
from app.services.operations.data_dir import keep_secret, prepare_directory, replace_secret
from config.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"TRAINYARD_DATA_DIR": str(tmp_path / "data")})


def admin_keys(settings: Settings) -> int:
    db = open_database(settings.database)
    with db.read() as session:
        count = session.scalar(select(func.count()).select_from(ApiKey))
    db.close()
    return count or 0


def test_a_fresh_directory_gets_everything(settings: Settings) -> None:
    prepared = bootstrap.prepare(settings)

    db = open_database(prepared.database)
    assert api_keys.authenticate(db, settings.admin_key_file.read_text().strip()).role is Role.SUPER_ADMIN
    with db.read() as session:
        assert [project.name for project in session.scalars(select(Project))] == ["default"]
        assert [queue.name for queue in session.scalars(select(Queue))] == ["default"]
    db.close()


def test_secrets_are_for_the_owner_alone(settings: Settings) -> None:
    bootstrap.prepare(settings)

    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in settings.data.dir.iterdir()}
    assert modes["admin.key"] == modes["secret.key"] == modes["flower.password"] == "0o600"
    assert modes["files"] == modes["run"] == modes["log"] == "0o700"


def test_a_second_time_nothing_changes(settings: Settings) -> None:
    first = bootstrap.prepare(settings)
    key = settings.admin_key_file.read_text()

    second = bootstrap.prepare(settings)

    assert second.security == first.security
    assert second.flower == first.flower
    assert settings.admin_key_file.read_text() == key
    assert admin_keys(settings) == 1


def test_the_secrets_are_what_later_processes_read(settings: Settings) -> None:
    prepared = bootstrap.prepare(settings)

    again = load_settings({"TRAINYARD_DATA_DIR": str(settings.data.dir)})

    assert again.security == prepared.security
    assert again.flower == prepared.flower


def test_a_secret_that_was_configured_is_not_written_down(tmp_path: Path) -> None:
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_FLOWER_PASSWORD": "mine"})

    assert prepare_directory(settings).flower.password == "mine"

    assert not (tmp_path / "flower.password").exists()


@pytest.mark.parametrize("lost", ["file", "database"])
def test_an_admin_key_that_is_of_no_use_is_replaced(settings: Settings, lost: str) -> None:
    bootstrap.prepare(settings)
    if lost == "file":
        settings.admin_key_file.unlink()
    else:
        (settings.data.dir / "trainyard.db").unlink()

    bootstrap.prepare(settings)

    db = open_database(settings.database)
    assert api_keys.authenticate(db, settings.admin_key_file.read_text().strip()).role is Role.SUPER_ADMIN
    db.close()


@pytest.mark.long
def test_processes_that_start_together_agree(settings: Settings) -> None:
    code = "from app.services.operations.bootstrap import prepare; from config.settings import load_settings; "
    code += "print(prepare(load_settings()).security.secret_key)"
    environment = {**os.environ, "TRAINYARD_DATA_DIR": str(settings.data.dir)}

    started = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    secrets = {process.communicate(timeout=60)[0] for process in started}

    assert [process.returncode for process in started] == [0, 0, 0, 0]
    assert len(secrets) == 1
    assert admin_keys(settings) == 1


@pytest.mark.both_databases
def test_preparing_twice_works_on_both_databases(database_url: str, tmp_path: Path) -> None:
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path / "d"), "TRAINYARD_DATABASE_URL": database_url})

    bootstrap.prepare(settings)
    bootstrap.prepare(settings)

    db = Database().bind(make_engine(database_url))
    with db.read() as session:
        assert session.scalar(select(func.count()).select_from(Project)) == 1
    db.close()


def test_the_first_to_keep_a_secret_wins_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    assert keep_secret(path, "first") == "first"
    assert keep_secret(path, "second") == "first"
    replace_secret(path, "third")

    assert path.read_text() == "third\n"
    assert list(tmp_path.iterdir()) == [path]
