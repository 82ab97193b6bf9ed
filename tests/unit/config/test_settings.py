"""The only reader of the environment: parses every setting and reports all problems at once."""

from dataclasses import FrozenInstanceError
from itertools import product
from pathlib import Path

import pytest

from config.environment import client_environment
from config.settings import SettingsError, load_settings, settings_table, variable_name

PROXY = {"TRAINYARD_FETCH_PROXY": "http://proxy.example:3128"}


def test_no_environment_makes_valid_settings(tmp_path):
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path)})

    assert settings.database.url == f"sqlite:///{tmp_path}/trainyard.db"
    assert settings.storage.url == f"file://{tmp_path}/files"
    assert settings.lease.ttl_seconds == 15.0


def test_every_setting_accepts_its_own_default_and_has_a_meaning():
    assert settings_table() != []
    for variable, default, meaning in settings_table():
        settings = load_settings({variable: default} if default else {})

        assert settings == load_settings({}), variable
        assert meaning.strip(), variable


def test_a_variable_reaches_its_field():
    settings = load_settings({"TRAINYARD_SCHEDULER_POLL_SECONDS": "0.25", "TRAINYARD_NODE_KEEP_RUNS": "yes"})

    assert variable_name("scheduler", "poll_seconds") == "TRAINYARD_SCHEDULER_POLL_SECONDS"
    assert settings.scheduler.poll_seconds == 0.25
    assert settings.node.keep_runs is True


def test_lists_are_split_as_documented(tmp_path):
    settings = load_settings(
        {"TRAINYARD_STORAGE_ROOTS": f"{tmp_path}:/srv/models", "TRAINYARD_FETCH_ALLOW": "10.0.0.0/8, hub.example"}
    )

    assert settings.storage.roots == (tmp_path, Path("/srv/models"))
    assert settings.storage_roots[1:] == settings.storage.roots
    assert settings.fetch.allow == ("10.0.0.0/8", "hub.example")


def test_all_problems_are_reported_at_once():
    with pytest.raises(SettingsError) as caught:
        load_settings(
            {"TRAINYARD_API_PORT": "eighty", "TRAINYARD_NODE_KEEP_RUNS": "perhaps", "TRAINYARD_SCHEDULER_TICK": "1"}
        )

    reported = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 3
    assert all(
        name in reported for name in ("TRAINYARD_API_PORT", "TRAINYARD_NODE_KEEP_RUNS", "TRAINYARD_SCHEDULER_TICK")
    )


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"TRAINYARD_LEASE_FENCE_SECONDS": "13"}, "TRAINYARD_LEASE_TTL_SECONDS"),
        ({"TRAINYARD_LEASE_RENEW_SECONDS": "6"}, "TRAINYARD_LEASE_RENEW_SECONDS"),
        ({"TRAINYARD_NODE_HEARTBEAT_SECONDS": "5"}, "TRAINYARD_NODE_LOST_SECONDS"),
        ({"TRAINYARD_API_MAX_STREAMS": "192"}, "TRAINYARD_API_THREADS is 192"),
        ({"TRAINYARD_API_MAX_ANSWERS": "80"}, r"80 for models \(TRAINYARD_API_MAX_ANSWERS\)"),
        ({"TRAINYARD_WEB_MAX_STREAMS": "100"}, "100 for tabs of the dashboard"),
        ({"TRAINYARD_API_THREADS": "3"}, "raise the threads"),
        ({"TRAINYARD_NODE_SANDBOX": "docker"}, "TRAINYARD_NODE_SANDBOX"),
        ({"TRAINYARD_NODE_UIDS": "0-10"}, "TRAINYARD_NODE_UIDS.*user IDs of 1000 to 4294967293"),
        ({"TRAINYARD_NODE_UIDS": "70010-70000"}, "TRAINYARD_NODE_UIDS"),
        ({"TRAINYARD_NODE_UIDS": "60000-70000"}, "TRAINYARD_NODE_UIDS.*without 65534 and 65535"),
        ({"TRAINYARD_NODE_UIDS": "65535-65535"}, "TRAINYARD_NODE_UIDS.*stand for no user"),
        ({"TRAINYARD_NODE_UIDS": "70000"}, "TRAINYARD_NODE_UIDS.*FIRST-LAST"),
        ({"TRAINYARD_FETCH_S3_KEY": "key"}, "TRAINYARD_FETCH_S3_SECRET"),
        ({"TRAINYARD_FETCH_OBS_SECRET": "secret"}, "TRAINYARD_FETCH_OBS_KEY"),
        ({"TRAINYARD_FETCH_PVC_SHARED_WRITABLE": "all"}, "PVC_SHARED_WRITABLE: all: name it in TRAINYARD_FETCH_PVC"),
        ({"TRAINYARD_BROKER_URL": "rediss://redis.example:6379/0"}, "TRAINYARD_BROKER_URL"),
        ({"TRAINYARD_FETCH_PROXY": "http://proxy:99999"}, "TRAINYARD_FETCH_PROXY: expected http://HOST:PORT"),
        ({"TRAINYARD_FETCH_PROXY": "http://proxy:0"}, "TRAINYARD_FETCH_PROXY: expected http://HOST:PORT"),
        ({"TRAINYARD_FETCH_PROXY_USER": "node"}, "TRAINYARD_FETCH_PROXY_USER: set TRAINYARD_FETCH_PROXY, too"),
        ({**PROXY, "TRAINYARD_FETCH_PROXY_USER": "a:b"}, "TRAINYARD_FETCH_PROXY_USER: must not contain a colon"),
        ({**PROXY, "TRAINYARD_FETCH_PROXY_USER": "юзер"}, "TRAINYARD_FETCH_PROXY_USER: expected printable ASCII"),
        (
            {
                **PROXY,
                "TRAINYARD_FETCH_NO_PROXY": "*.corp,http://x,10.0.0.0/99,hub:8080,ok.example,.lan,::1,10.0.0.0/8",
            },
            r"NO_PROXY: \*\.corp, http://x, 10\.0\.0\.0/99, hub:8080: expected hosts",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environment, named):
    with pytest.raises(SettingsError, match=named):
        load_settings(environment)


@pytest.mark.parametrize("web", ["true", "false"])
@pytest.mark.parametrize("threads", [4, 5, 8, 16, 33, 64, 128, 192, 1000])
def test_what_waits_by_default_leaves_threads_to_other_requests(threads, web):
    settings = load_settings({"TRAINYARD_API_THREADS": str(threads), "TRAINYARD_WEB_ENABLED": web})

    shares = settings.thread_shares

    assert shares.total == threads
    assert shares.others == threads // 8
    assert min(shares.streams, shares.answers, shares.previews, shares.openings) >= 1
    assert (shares.viewers > 0) is (web == "true" and threads >= 8)


def test_every_time_is_finite_and_positive():
    variables = [row[0] for row in settings_table() if row[0].endswith("_SECONDS")]
    values = ("nan", "inf", "-inf", "0", "-1", "1e999")

    assert variables != []
    assert [each for each in product(variables, values) if each[0] not in refusal(*each)] == []


def refusal(variable: str, value: str) -> str:
    """What is said of this value; empty if it is accepted."""
    try:
        load_settings({variable: value})
    except SettingsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("TRAINYARD_SCHEDULER_POLL_SECONDS", ["2.1", "30"]),
        ("TRAINYARD_NODE_POLL_SECONDS", ["2.1", "60"]),
        ("TRAINYARD_API_PORT", ["-1", "65536", "99999999"]),
        ("TRAINYARD_FLOWER_PORT", ["-1", "65536"]),
        ("TRAINYARD_API_WORKERS", ["0", "-2"]),
        ("TRAINYARD_DATABASE_POOL_SIZE", ["0"]),
        ("TRAINYARD_LOG_LEVEL", ["loud", ""]),
        ("TRAINYARD_NODE_NAME", ["a:b", "a/b", "a b", "ü", "..", "x" * 64, "box\n"]),
        ("TRAINYARD_FLOWER_USER", ["a:b", "a,b", ""]),
        ("TRAINYARD_FLOWER_PASSWORD", ["a,b"]),
        ("TRAINYARD_FETCH_MAX_BYTES", ["0"]),
        ("TRAINYARD_FETCH_MAX_REDIRECTS", ["-1"]),
        ("TRAINYARD_FETCH_S3_ENDPOINT", ["s.example", "ftp://s.example", "https://", "https://s/?a=1", "http://u:p@s"]),
        ("TRAINYARD_CACHE_MAX_BYTES", ["0"]),
    ],
)
def test_values_that_cannot_work_are_refused(variable, values):
    for value in values:
        with pytest.raises(SettingsError, match=variable):
            load_settings({variable: value})


def test_values_at_the_edge_are_accepted():
    settings = load_settings(
        {
            "TRAINYARD_SCHEDULER_POLL_SECONDS": "2",
            "TRAINYARD_API_PORT": "0",
            "TRAINYARD_FLOWER_PORT": "65535",
            "TRAINYARD_LOG_LEVEL": "debug",
            "TRAINYARD_NODE_NAME": "gpu-1.rack_7",
        }
    )

    assert (settings.api.port, settings.flower.port) == (0, 65535)


def test_a_refused_secret_is_not_repeated():
    with pytest.raises(SettingsError) as caught:
        load_settings({"TRAINYARD_FLOWER_PASSWORD": "hush,hush"})

    assert "hush" not in str(caught.value)


def test_what_start_wrote_into_the_data_directory_is_found(tmp_path):
    for name in ("broker.url", "secret.key", "flower.password"):
        (tmp_path / name).write_text(f"from {name}\n")

    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path)})

    assert settings.broker.url == "from broker.url"
    assert settings.security.secret_key == "from secret.key"
    assert settings.flower.password == "from flower.password"


def test_variables_of_clients_and_ranks_are_not_reported_as_typos():
    load_settings({"TRAINYARD_URL": "http://127.0.0.1:8000", "TRAINYARD_JOB_ID": "job-1"})

    assert client_environment({"TRAINYARD_URL": "http://x", "TRAINYARD_API_KEY": "k"}) == ("http://x", "k")
    assert client_environment({}) == ("", "")


def test_settings_do_not_change_once_read():
    settings = load_settings({})

    with pytest.raises(FrozenInstanceError):
        settings.api.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"SENDER": ""}, "set TRAINYARD_SMTP_SENDER, too"),
        ({"SENDER": "Trainyard <t@example.org>"}, "without a name before it"),
        ({"SENDER": "t@example.org\nBcc: x@evil.example"}, "without a name before it"),
        ({"SENDER": "a..b@example.org"}, "an address like"),
        ({"HOST": "smtp..example.org"}, "expected a host name or an IP address"),
        ({"HOST": "smtp.example.org:587"}, "expected a host name or an IP address"),
        ({"TIMEOUT_SECONDS": "301"}, "at most 300 seconds"),
        ({"SECURITY": "ssl"}, "expected starttls, tls or none"),
        ({"SECURITY": "none"}, "a password is not sent without TLS"),
        ({"PASSWORD_FILE": ""}, "set both or neither"),
        ({"DOMAINS": "example.org, @example.com"}, "expected domains like example.org"),
        ({"PER_HOUR": "0"}, "expected a number from 1"),
    ],
)
def test_a_mail_server_is_named_with_all_that_it_needs(changes: dict[str, str], problem: str):
    given = {"HOST": "mail.example.org", "SENDER": "t@example.org", "USER": "t", "PASSWORD_FILE": "/srv/password"}
    assert load_settings({f"TRAINYARD_SMTP_{name}": value for name, value in given.items()}).smtp.allowed_domains == (
        "example.org",
    )

    with pytest.raises(SettingsError, match=problem):
        load_settings({f"TRAINYARD_SMTP_{name}": value for name, value in {**given, **changes}.items()})
