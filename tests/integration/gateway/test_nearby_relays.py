"""Relays on the gateway's machine are reached by a Unix socket, where there is one, and by TCP else."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from app.models import InteractiveEndpoint
from app.services.attempts.interactive_endpoints import local_socket
from tests.systems.port_sites import HOSTS, PATHS, PortSite, ServedPort
from tests.systems.servers import free_port
from workers.relay.relay import LOCAL_BYTES
from workers.run_dir.layout import run_directory

pytestmark = pytest.mark.skipif(
    int(Path("/proc/sys/net/core/wmem_max").read_text()) < LOCAL_BYTES // 2, reason="the kernel's buffers are too small"
)


def socket_of(port: ServedPort) -> Path:
    return local_socket(port.site.settings.data.dir, port.address.job_id, 1, 0)


def close_tcp(site: PortSite) -> None:
    """Let the endpoint name a port without a listener."""
    with site.db.write() as session:
        for row in session.query(InteractiveEndpoint):
            row.port = free_port()


def test_the_unix_socket_is_taken_and_no_tcp(make_port_site: Callable[..., PortSite], echo: int) -> None:
    site = make_port_site(HOSTS)
    port = site.opened(echo)
    close_tcp(site)

    assert port.ask().status == 200
    assert stat.S_IMODE(socket_of(port).stat().st_mode) & 0o077 == 0


def test_nothing_but_tcp_is_tried_where_there_is_none(make_port_site: Callable[..., PortSite], echo: int) -> None:
    site = make_port_site(PATHS)
    port = site.opened(echo)

    assert not socket_of(port).exists()
    close_tcp(site)
    refused = port.ask()
    assert refused.status == 502
    assert b"the node of the job cannot be reached" in refused.raw


@pytest.mark.parametrize("instead", ["nothing", "file", "deaf socket"])
def test_tcp_is_taken_where_nothing_listens_at_it(
    make_port_site: Callable[..., PortSite], echo: int, instead: str
) -> None:
    port = make_port_site(HOSTS).opened(echo)
    place = socket_of(port)
    if instead != "deaf socket":
        place.unlink()
    if instead == "file":
        place.write_text("")
    if instead == "deaf socket":
        _leave_behind(place)

    assert port.ask().status == 200


def _leave_behind(place: Path) -> None:
    """A socket whose relay was killed."""
    place.unlink()
    directory = os.open(place.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(f"/proc/self/fd/{directory}/{place.name}")
    os.close(directory)


@pytest.mark.parametrize("part", [0, 3])
def test_it_lies_where_ranks_do_not_come_and_goes_with_the_attempt(tmp_path: Path, part: int) -> None:
    run = run_directory(tmp_path, "job-1", 2, part)

    assert local_socket(tmp_path, "job-1", 2, part).parent == run.taken_over
