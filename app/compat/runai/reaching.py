"""Ports, exposed URLs and readiness of Run:ai's workloads ↔ ``interactive_config`` of native documents. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.interactive import HTTP, NOTEBOOK_PORT, TCP, InteractiveConfig, Port, ReadinessProbe
from app.schemas.spec.field_verdicts import warning
from app.schemas.spec.interactive_config import MOST_PORTS, PORT_NAME

URLS, PORTS, PROBE = "exposedUrls", "ports", "probes.readiness"
AddressOf = Callable[[str], str | None]  # name of a port → its address; None where no gateway serves ports
_USERS, _GROUPS = "authorizedUsers", "authorizedGroups"
_LISTS = {_USERS: "authorized_users", _GROUPS: "authorized_groups"}
# Where the node asks: all of these are the sandbox itself.
_HERE = ("", "localhost", "127.0.0.1", "::1", "[::1]")
_NO_PATH = re.compile(r"[^\x21-\x7e]")
_PROBE_SECONDS = {
    "initialDelaySeconds": "initial_delay_seconds",
    "periodSeconds": "period_seconds",
    "timeoutSeconds": "timeout_seconds",
    "successThreshold": "success_threshold",
    "failureThreshold": "failure_threshold",
}


def interactive_of(
    spec: Mapping[str, Any], master: Mapping[str, Any], warnings: list[str], *, knows_groups: bool
) -> dict[str, Any]:
    """The section ``interactive_config``; empty without ports and probes. Raises BadSpec.

    ``knows_groups``: whether an identity provider says in which groups people are.
    """
    found: dict[str, Any] = {}
    if ports := _ports(spec, master, warnings, knows_groups=knows_groups):
        found["ports"] = ports
    part, asked = _part(spec, master, "probes")
    if readiness := (asked.get("probes") or {}).get("readiness"):
        found["readiness_probe"] = _probe(readiness, f"{part}.{PROBE}", warnings)
    return {"interactive_config": found} if found else {}


def of_native(config: InteractiveConfig) -> dict[str, Any]:
    """The fields of a spec that say the same; a notebook is a port that the workload cannot ask for."""
    urls = [_url_of(port) for port in config.ports if port.protocol == HTTP]
    ports = [{"container": port.port, "name": port.name} for port in config.ports if port.protocol == TCP]
    found: dict[str, Any] = {URLS: urls} if urls else {}
    found |= {PORTS: ports} if ports else {}
    return found | ({"probes": {"readiness": _readiness_of(config.readiness_probe)}} if config.readiness_probe else {})


def with_addresses(spec: Mapping[str, Any], config: InteractiveConfig, address_of: AddressOf) -> dict[str, Any]:
    """The spec with the address of each exposed URL that is served."""
    if not spec.get(URLS):
        return dict(spec)
    names = {port.port: port.name for port in config.ports if port.protocol == HTTP}
    return {**spec, URLS: [_with_address(each, names, address_of) for each in spec[URLS]]}


def addresses_of(config: InteractiveConfig, address_of: AddressOf) -> list[str]:
    """Of all ports that browsers reach, the notebook's too."""
    found = [address_of(port.name) for port in config.all_ports if port.protocol == HTTP]
    return [each for each in found if each is not None]


def _with_address(url: Mapping[str, Any], names: Mapping[int, str], address_of: AddressOf) -> dict[str, Any]:
    name = None if url.get("exclude") else names.get(url["container"])
    address = address_of(name) if name else None
    return {**url, "url": address} if address else dict(url)


def _part(spec: Mapping[str, Any], master: Mapping[str, Any], field: str) -> tuple[str, Mapping[str, Any]]:
    """Where the field counts, and its name: ports are those of the first rank, so that its own come first."""
    return ("masterSpec", master) if master.get(field) else ("spec", spec)


def _items(spec: Mapping[str, Any], master: Mapping[str, Any], field: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, item) of each item that is not excluded."""
    part, asked = _part(spec, master, field)
    for number, each in enumerate(asked.get(field) or []):
        if not each.get("exclude"):
            yield f"{part}.{field}.{number}", each


def _ports(
    spec: Mapping[str, Any], master: Mapping[str, Any], warnings: list[str], *, knows_groups: bool
) -> list[dict[str, Any]]:
    """Exposed URLs are HTTP, other ports are TCP; a port in both lists is HTTP. Raises BadSpec."""
    found: dict[int, dict[str, Any]] = {}
    for path, url in _items(spec, master, URLS):
        _check_number(url["container"], found, path)
        found[url["container"]] = {
            "name": _free_name(url, found.values()),
            "port": url["container"],
            "protocol": HTTP,
            **_authorized(url, path, warnings, knows_groups=knows_groups),
        }
    exposed = set(found)
    for path, port in _items(spec, master, PORTS):
        number = port["container"]
        if number in exposed:
            exposed.remove(number)  # given twice in this list, it is refused
            continue
        _check_number(number, found, path)
        found[number] = {"name": _free_name(port, found.values()), "port": number, "protocol": TCP}
    return list(found.values())


def _check_number(number: int, found: Mapping[int, Any], path: str) -> None:
    """Raises BadSpec."""
    if number in found:
        raise BadSpec(f"{number} is given twice; leave one of them out", field=f"{path}.container")
    if len(found) == MOST_PORTS:
        raise BadSpec(f"a workload has at most {MOST_PORTS} ports", field=path)


def _free_name(item: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> str:
    """The item's own name where an address can have it, else one made of its number."""
    taken = {NOTEBOOK_PORT, *(each["name"] for each in others)}
    own, number = item.get("name") or "", item["container"]
    if PORT_NAME.fullmatch(own) and own not in taken:
        return str(own)
    made = (f"port-{number}", *(f"port-{number}-{which}" for which in range(2, MOST_PORTS + 2)))
    return next(each for each in made if each not in taken)


def _authorized(url: Mapping[str, Any], path: str, warnings: list[str], *, knows_groups: bool) -> dict[str, list[str]]:
    """Those who may open it, without both lists all who may see the workload. Raises BadSpec."""
    kind = url.get("authorizationType")
    for name in _LISTS:
        if kind and kind != name and url.get(name):
            raise BadSpec(f"contradicts authorizationType {kind}; leave one of them out", field=f"{path}.{name}")
    if kind in _LISTS and not url.get(kind):
        raise BadSpec(f"is required with authorizationType {kind}", field=f"{path}.{kind}")
    found = {native: list(url[name]) for name, native in _LISTS.items() if url.get(name)}
    if "authorized_groups" in found and not knows_groups:
        why = "groups are those of an identity provider, and this installation has none"
        if "authorized_users" not in found:
            raise BadSpec(f"{why}; name authorizedUsers, or leave both out", field=f"{path}.{_GROUPS}")
        del found["authorized_groups"]
        warnings.append(warning(f"{path.partition('.')[0]}.{URLS}.{_GROUPS}", f"{why}: only {_USERS} may open the URL"))
    return found


def _probe(readiness: Mapping[str, Any], path: str, warnings: list[str]) -> dict[str, Any]:
    """Raises BadSpec."""
    asked = readiness["handler"]["httpGet"]
    found: dict[str, Any] = {"port": asked["port"]}
    if asked.get("scheme") == "HTTPS":
        why = "certificates of workloads are not looked at: it is ready when it accepts connections"
        warnings.append(warning(f"{path}.handler.httpGet.scheme", why))
    else:
        found["path"] = _path(asked.get("path") or "", f"{path}.handler.httpGet.path")
    if asked.get("host", "") not in _HERE:
        why = "the node asks the workload itself, at 127.0.0.1 in its sandbox"
        warnings.append(warning(f"{path}.handler.httpGet.host", why))
    found |= {native: readiness[name] for name, native in _PROBE_SECONDS.items() if name in readiness}
    period = found.get("period_seconds", ReadinessProbe.period_seconds)
    if found.get("timeout_seconds", 0) > period:
        found["timeout_seconds"] = period
        warnings.append(warning(f"{path}.timeoutSeconds", f"an answer must come within periodSeconds, {period}"))
    return found


def _path(path: str, field: str) -> str:
    """As a node of Kubernetes reads it, with a slash at its beginning. Raises BadSpec."""
    if _NO_PATH.search(path):
        raise BadSpec("must have visible ASCII characters alone; encode others as %20", field=field)
    return path if path.startswith("/") else f"/{path}"


def _url_of(port: Port) -> dict[str, Any]:
    users, groups = list(port.authorized_users), list(port.authorized_groups)
    allowed = {**({_USERS: users} if users else {}), **({_GROUPS: groups} if groups else {})}
    return {"container": port.port, "name": port.name, **allowed}


def _readiness_of(probe: ReadinessProbe) -> dict[str, Any]:
    path = {"path": probe.path} if probe.path is not None else {}
    timing = {name: getattr(probe, native) for name, native in _PROBE_SECONDS.items()}
    return {**timing, "handler": {"httpGet": {"port": probe.port, **path}}}
