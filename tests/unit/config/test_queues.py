"""Celery's configuration: what keeps messages visible, workers alive and secrets out of command lines."""

import socket
from pathlib import Path

import pytest
from celery import Celery
from celery.exceptions import QueueNotFound

from app.domain.routing import admission_queue
from config.queues import (
    ADMISSION_PREFIX,
    COORDINATOR,
    DEFAULT_ADMISSION_QUEUE,
    NODE,
    celery_config,
    consume_only,
    flower_command,
    node_name,
    worker_command,
    worker_hostname,
)
from config.settings import Settings, SettingsError, load_settings

URL = "redis://:s3cret@127.0.0.1:1/0"


def settings(**variables: str) -> Settings:
    return load_settings({"TRAINYARD_BROKER_URL": URL, "TRAINYARD_FLOWER_PASSWORD": "hush", **variables})


def test_publishers_and_consumers_share_priority_steps_and_keep_kombus_separator() -> None:
    for publisher in (True, False):
        options = celery_config(settings(), publisher=publisher)["broker_transport_options"]

        assert options["priority_steps"] == list(range(10))
        assert "sep" not in options


def test_no_connection_waits_for_ever_and_a_publisher_waits_least() -> None:
    worker = celery_config(settings())["broker_transport_options"]
    publisher = celery_config(settings(), publisher=True)["broker_transport_options"]

    assert worker["socket_timeout"] == 10
    assert publisher["socket_timeout"] == 2
    assert worker["health_check_interval"] > 0
    assert worker["visibility_timeout"] == 300


def test_broker_is_waited_for_without_end() -> None:
    config = celery_config(settings())

    assert config["broker_connection_retry_on_startup"] is True
    assert config["broker_connection_max_retries"] is None


def test_celery_knows_every_option() -> None:
    celery = Celery("test", set_as_current=False)

    celery.conf.update(celery_config(settings()))

    assert celery.conf.task_acks_late
    unknown = celery_config(settings()).keys() - celery.conf.table().keys()
    assert unknown == set()


def test_undeclared_queue_is_refused() -> None:
    celery = Celery("test", set_as_current=False)
    celery.conf.update(celery_config(settings()))

    with pytest.raises(QueueNotFound):
        celery.amqp.router.route({"queue": "undeclared"}, "trainyard.run")


def test_worker_reads_its_own_queues_and_no_other() -> None:
    celery = Celery("test", set_as_current=False)
    celery.conf.update(celery_config(settings()))

    consume_only(celery.amqp.queues, ["cpu.local", "gpu.h200.local"])

    assert set(celery.amqp.queues.consume_from) == {"cpu.local", "gpu.h200.local"}


def test_queue_and_node_names_follow_settings() -> None:
    assert admission_queue("default") == DEFAULT_ADMISSION_QUEUE
    assert admission_queue("x") == f"{ADMISSION_PREFIX}x"
    assert worker_hostname(NODE, "local") == "node@local"
    assert node_name(settings(TRAINYARD_NODE_NAME="box-7")) == "box-7"
    assert node_name(settings()) == socket.gethostname()


@pytest.mark.parametrize("command", [worker_command(COORDINATOR), worker_command(NODE), flower_command()])
def test_no_command_line_holds_a_secret(command: list[str]) -> None:
    assert "hush" not in " ".join(command)
    assert "s3cret" not in " ".join(command)


def test_missing_broker_is_reported_with_a_remedy_instead_of_guessed(tmp_path: Path) -> None:
    for publisher in (True, False):
        with pytest.raises(SettingsError, match=r"TRAINYARD_BROKER_URL.*trainyard up"):
            celery_config(settings(TRAINYARD_BROKER_URL="", TRAINYARD_DATA_DIR=str(tmp_path)), publisher=publisher)
