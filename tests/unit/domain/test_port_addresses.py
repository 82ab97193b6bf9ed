"""Addresses of ports, with one host for all of them and with a host for each."""

import pytest

from app.domain.port_addresses import PortsHost

JOB = "job-01234567-89ab-7cde-8123-0123456789ab"
PATHS, HOSTS = PortsHost("http://jobs.localhost:8100"), PortsHost("https://*.jobs.example.com")


def test_a_port_has_a_path_or_a_host_of_its_own() -> None:
    assert PATHS.address(JOB, "web").url == f"http://jobs.localhost:8100/jobs/{JOB}/ports/web/"
    assert HOSTS.address(JOB, "web").url == "https://web-0123456789ab7cde81230123456789ab.jobs.example.com/"
    assert (PATHS.has_own_origins, HOSTS.has_own_origins) == (False, True)


def test_the_longest_name_fits_into_a_label() -> None:
    assert len(HOSTS.address(JOB, "a" * 30).host.split(".")[0]) == 63


@pytest.mark.parametrize("host", [PATHS, HOSTS])
@pytest.mark.parametrize("name", ["web", "a", "8", "tensor-board", "a" * 30])
def test_what_is_served_at_an_address_is_meant_by_it(host: PortsHost, name: str) -> None:
    address = host.address(JOB, name)

    assert host.meant(address.host, f"{address.prefix}/x?y") == address
    assert host.meant(address.host.upper().partition(":")[0] + ":9", address.prefix) == address


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/jobs",
        f"/jobs/{JOB}/ports",
        f"/jobs/{JOB}/ports/",
        f"/jobs/{JOB}/ports/-a/",
        f"/jobs/{JOB}/ports/A/",
        f"/jobs/{JOB}/ports/{'a' * 31}/",
        f"//jobs/{JOB}/ports/web/",
        f"/x/jobs/{JOB}/ports/web/",
        f"/jobs/{JOB}%2fports/web/",
        f"/jobs/{JOB.upper()}/ports/web/",
        f"/jobs/{JOB}/ports/web%2f",
    ],
)
def test_other_paths_mean_no_port(path: str) -> None:
    assert PATHS.meant("jobs.localhost", path) is None


@pytest.mark.parametrize(
    "host", ["", "example.com", "evil-jobs.example.com", "jobs.example.com.evil.com", "jobs.example.com:x"]
)
def test_other_hosts_serve_no_ports(host: str) -> None:
    assert not HOSTS.serves(host)
    assert HOSTS.meant(host, "/") is None


@pytest.mark.parametrize("label", ["web", f"web-{JOB}", "-0123456789ab7cde81230123456789ab", "a.b"])
def test_other_hosts_below_serve_ports_and_mean_none(label: str) -> None:
    assert HOSTS.serves(f"{label}.jobs.example.com")
    assert HOSTS.meant(f"{label}.jobs.example.com", "/") is None


def test_without_a_url_no_host_serves_ports() -> None:
    assert not PortsHost("")
    assert not PortsHost("").serves("")
    assert PortsHost("").meant("", f"/jobs/{JOB}/ports/web/") is None
