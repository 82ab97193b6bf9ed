"""Proxies before ports of jobs: addresses have tokens, which no log may have."""

import re
from pathlib import Path

DEPLOY = Path(__file__).parents[4] / "deploy"
SECRET = (
    "$request ",
    "$request'",
    '$request"',
    "$request_uri",
    "$args",
    "$query_string",
    "$http_referer",
    "$http_cookie",
)


def test_nginx_logs_paths_of_ports_without_their_query() -> None:
    text = (DEPLOY / "nginx/trainyard.conf").read_text()
    (server,) = [each for each in text.split("\nserver {") if "server_name *." in each]
    (written,) = re.findall(r"log_format trainyard_ports (.*?);", text, re.DOTALL)

    assert re.search(r"^    access_log \S+ trainyard_ports;$", server, re.MULTILINE)
    assert re.search(r"^    error_log +\S+ crit;", server, re.MULTILINE)
    assert not [each for each in SECRET if each in written]


def test_caddy_has_no_log_of_ports() -> None:
    sites = (DEPLOY / "caddy/Caddyfile").read_text().partition("\n*.")[2]

    assert sites
    assert not re.search(r"^\s*log\b", sites, re.MULTILINE)
