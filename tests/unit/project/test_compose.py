"""docker-compose.yml names the parts that run Trainyard for real, and shows no secret to who lists processes."""

import re
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from app.services.operations.redis_acl import acl_file
from config.settings import load_settings

ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OURS = ("migrate", "api", "gateway", "coordinator", "node-cpu", "node-gpu", "flower", "tensorboard")
EXAMPLE = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
LASTING = sorted(set(SERVICES) - {"migrate"})


def test_every_part_is_there():
    assert set(SERVICES) == {"postgres", "redis", *OURS}


def test_our_parts_share_one_image():
    assert {SERVICES[name]["image"] for name in OURS} == {"trainyard:${TRAINYARD_VERSION:-latest}"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_secret_is_an_argument(name):
    service = SERVICES[name]
    arguments = repr([service.get("command"), service.get("entrypoint"), service.get("healthcheck")])

    # Compose itself would fill ${…} in; $$… is read by the shell inside, which puts it on no command line.
    assert re.findall(r"(?<!\$)\$\{?\w*(?:PASSWORD|SECRET|KEY)", arguments) == []


def test_no_secret_has_a_default():
    values = [str(value) for service in SERVICES.values() for value in service.get("environment", {}).values()]
    secrets = [found for value in values for found in re.findall(r"\$\{(\w*(?:PASSWORD|SECRET|KEY)\w*[^}]*)\}", value)]

    assert secrets
    assert [secret for secret in secrets if ":?" not in secret] == []


@pytest.mark.parametrize("name", LASTING)
def test_every_lasting_part_is_watched_and_started_again(name):
    assert SERVICES[name]["healthcheck"]["test"]
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", ["api", "flower", "tensorboard"])
def test_what_is_published_is_published_to_this_machine_alone(name):
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


def test_databases_are_not_published():
    assert [name for name in ("postgres", "redis") if "ports" in SERVICES[name]] == []


def test_our_parts_wait_for_the_schema_and_the_broker():
    for name in set(OURS) - {"migrate"}:
        assert set(SERVICES[name]["depends_on"]) == {"migrate", "redis"}


def test_gpu_node_gets_gpus_and_only_when_asked_for():
    devices = SERVICES["node-gpu"]["deploy"]["resources"]["reservations"]["devices"]

    assert devices[0]["capabilities"] == ["gpu"]
    assert SERVICES["node-gpu"]["profiles"] == ["gpu"]


def test_every_secret_is_asked_for_in_the_example():
    needed = set(re.findall(r"(?<!\$)\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text()))

    assert needed == {name for name, value in EXAMPLE.items() if not value}


def test_example_lists_every_variable_with_its_default():
    text = (ROOT / "docker-compose.yml").read_text()
    defaults = dict(re.findall(r"(?<!\$)\$\{(\w+):-([^}]*)\}", text))

    assert defaults == {name: value for name, value in EXAMPLE.items() if value}


def test_further_settings_come_from_an_optional_file():
    for name in OURS:
        assert SERVICES[name]["env_file"] == [{"path": "trainyard.env", "required": False}]
    assert "trainyard.env" in (ROOT / ".gitignore").read_text().split()
    assert "trainyard.env" in (ROOT / ".dockerignore").read_text().split()


def test_the_broker_keeps_its_data_and_evicts_nothing():
    script = SERVICES["redis"]["command"][-1]

    assert all(
        words in script for words in ("aclfile", "appendonly yes", "maxmemory-policy noeviction", "proto-max-bulk-len")
    )
    assert SERVICES["redis"]["volumes"][0] == "broker:/data"


def test_users_of_redis_have_the_rules_of_each_process():
    variables = {"admin": "REDIS_PASSWORD"}
    variables |= {name: f"REDIS_{name.upper()}_PASSWORD" for name in ("api", "coordinator", "flower")}
    variables |= {"node-cpu-1": "REDIS_NODE_CPU_PASSWORD", "node-gpu-1": "REDIS_NODE_GPU_PASSWORD"}
    rules = acl_file({user: f"@{variable}@" for user, variable in variables.items()}, ["cpu-1", "gpu-1"])
    for variable in variables.values():
        rules = rules.replace(f"#{sha256(f'@{variable}@'.encode()).hexdigest()}", f">@{variable}@")

    place, _, inside = SERVICES["redis"]["volumes"][1].partition(":")

    assert (ROOT / place).read_text() == rules
    assert inside.removesuffix(":ro") in SERVICES["redis"]["command"][-1]
    assert set(variables.values()) == set(SERVICES["redis"]["environment"])


@pytest.mark.parametrize("name", sorted({*OURS} - {"migrate"}))
def test_each_process_is_a_user_of_redis_of_its_own(name):
    users = {"coordinator": "coordinator", "flower": "flower", "node-cpu": "node-cpu-1", "node-gpu": "node-gpu-1"}
    url = SERVICES[name]["environment"]["TRAINYARD_BROKER_URL"]

    user, _, password = url.removeprefix("redis://").partition(":")

    assert user == users.get(name, "api")
    assert password.startswith(f"${{REDIS_{user.removesuffix('-1').replace('-', '_').upper()}_PASSWORD:?")


def test_directories_under_volumes_are_made_for_our_user():
    made = re.search(r"install --directory --owner=trainyard --group=trainyard (.*)", (ROOT / "Dockerfile").read_text())
    covered = {
        str(volume).split(":")[1]
        for name in OURS
        for volume in SERVICES[name].get("volumes", [])
        if re.match(r"\w[\w-]*:", str(volume))
    }

    assert made is not None
    assert covered <= set(made[1].split())
    assert "/srv/trainyard/files" in covered


def test_every_variable_for_our_parts_is_a_setting():
    for name in OURS:
        # Compose has filled ${…} in before they read it.
        given = {
            key: re.sub(r"\$\{\w+:-(.+?)\}|\$\{.*?\}", lambda match: match[1] or "x", value)
            for key, value in SERVICES[name]["environment"].items()
        }
        settings = load_settings(given)
        assert settings.database.url == given["TRAINYARD_DATABASE_URL"]


@pytest.mark.parametrize("name", ["node-cpu", "node-gpu"])
def test_a_node_is_watched_by_its_own_name(name):
    service = SERVICES[name]

    assert service["command"][-2:] == ["--name", service["healthcheck"]["test"][-1]]


def test_named_volumes_are_declared():
    used = {
        str(volume).split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if re.match(r"\w[\w-]*:", str(volume))
    }

    assert used == set(COMPOSE["volumes"])
