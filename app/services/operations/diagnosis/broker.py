"""Checks of Redis: reachability, eviction policy, persistence and authentication."""

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from app.services.operations.diagnosis.findings import Findings, failed, fine, warning
from app.services.operations.diagnosis.site import Site

FULL = 0.9


def reachable(site: Site) -> Findings:
    if not site.settings.broker.url:
        return failed("no broker is configured", "set TRAINYARD_BROKER_URL, or start `trainyard up` on this directory")
    with site.broker() as client:
        client.ping()
    parts = urlsplit(site.settings.broker.url)
    return fine(f"{parts.scheme}://{parts.hostname}:{parts.port or 6379} answers")


def memory(site: Site) -> Findings:
    info = _info(site, "memory")
    findings: Findings = []
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        findings += failed(
            f"its maxmemory-policy is {policy}: under pressure it drops wake-ups", "set maxmemory-policy noeviction"
        )
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if most and used > most * FULL:
        findings += warning(f"{used} of {most} bytes of its memory are in use", "raise maxmemory")
    return findings or fine("nothing is evicted")


def persistence(site: Site) -> Findings:
    info = _info(site, "persistence")
    if not int(info.get("aof_enabled", 0)):
        return warning(
            "it does not persist its data: states shown by Flower and pending wake-ups are lost on a restart",
            "set appendonly yes; jobs themselves are safe in the database either way",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return failed("it can't write its append-only file", "check its log; is its disk full?")
    return fine("it persists its data")


def protection(site: Site) -> Findings:
    parts = urlsplit(site.settings.broker.url)
    alone = is_loopback(parts.hostname or "")
    if not parts.password:
        found = failed if not alone else warning
        return found(
            "it requires no password: anyone who reaches it can end jobs",
            "set requirepass, and redis://:PASSWORD@… in the URL",
        )
    if parts.scheme != "rediss" and not alone:
        return warning(
            f"its password and messages go to {parts.hostname} in the clear",
            "use rediss:// (docs/how-to/secure-connections.md), unless the network is private",
        )
    return fine("it requires a password" + (", by TLS" if parts.scheme == "rediss" else ""))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "")


def _info(site: Site, section: str) -> dict[str, Any]:
    # INFO instead of CONFIG GET, which hosted servers forbid.
    with site.broker() as client:
        info = client.info(section)
    return dict(info) if isinstance(info, dict) else {}
