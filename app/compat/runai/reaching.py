"""Ports, URLs, readiness and terminals of Run:ai's workloads ↔ ``interactive_config`` of native documents. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from app.domain.errors import BadSpec
from app.domain.spec.interactive import HTTP, NOTEBOOK_PORT, TCP, InteractiveConfig, Port, ReadinessProbe
from app.schemas.spec.field_verdicts import warning
from app.schemas.spec.interactive_config import MOST_PORTS, PORT_NAME

URLS, PORTS, PROBE = "exposedUrls", "ports", "probes.readiness"
_Listener = tuple[str | None, int]  # the role whose first instance listens, and on which port
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
    spec: Mapping[str, Any], master: Mapping[str, Any], warnings: list[str], *, knows_groups: bool, worker: str = ""
) -> dict[str, Any]:
    """The section ``interactive_config``; empty without ports, probes and a terminal. Raises BadSpec.

    ``knows_groups``: whether an identity provider says in which groups people are. ``worker``: the workers' role where
    the master differs; ports of the workers beside the master's own are those of its first instance.
    """
    found: dict[str, Any] = {}
    asked = _Asked(spec, master, worker)
    if ports := _ports(asked, warnings, knows_groups=knows_groups):
        found["ports"] = ports
    if spec.get("tty"):
        found["terminal"] = True
    warnings += asked.unreached()
    part, of_probe = ("masterSpec", master) if master.get("probes") else ("spec", spec)
    if readiness := (of_probe.get("probes") or {}).get("readiness"):
        found["readiness_probe"] = _probe(readiness, f"{part}.{PROBE}", warnings)
    return {"interactive_config": found} if found else {}


def of_native(config: InteractiveConfig) -> dict[str, Any]:
    """The fields of a spec that say the same; a notebook is a port that the workload cannot ask for."""
    urls = [_url_of(port) for port in config.ports if port.protocol == HTTP]
    ports = [{"container": port.port, "name": port.name} for port in config.ports if port.protocol == TCP]
    found: dict[str, Any] = {URLS: urls} if urls else {}
    found |= {PORTS: ports} if ports else {}
    found |= {"tty": True} if config.terminal else {}
    return found | ({"probes": {"readiness": _readiness_of(config.readiness_probe)}} if config.readiness_probe else {})


def with_addresses(
    spec: Mapping[str, Any], config: InteractiveConfig, address_of: AddressOf, *, worker: str | None = None
) -> dict[str, Any]:
    """The spec with the address of each exposed URL that is served. ``worker``: only of ports of this role."""
    if not spec.get(URLS):
        return dict(spec)
    # Of one number in two places the first is the master's.
    served = [port for port in reversed(config.ports) if port.protocol == HTTP]
    names = {port.port: port.name for port in served if worker is None or port.role == worker}
    return {**spec, URLS: [_with_address(each, names, address_of) for each in spec[URLS]]}


def addresses_of(config: InteractiveConfig, address_of: AddressOf) -> list[str]:
    """Of all ports that browsers reach, the notebook's too."""
    found = [address_of(port.name) for port in config.all_ports if port.protocol == HTTP]
    return [each for each in found if each is not None]


def _with_address(url: Mapping[str, Any], names: Mapping[int, str], address_of: AddressOf) -> dict[str, Any]:
    name = None if url.get("exclude") else names.get(url["container"])
    address = address_of(name) if name else None
    return {**url, "url": address} if address else dict(url)


class _Asked(NamedTuple):
    """What a workload asks for: ports that the master has itself are the first rank's, before the workers'."""

    spec: Mapping[str, Any]
    master: Mapping[str, Any]
    worker: str

    def items(self, field: str) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
        """(path, item, native fields of its place) of each item that is not excluded."""
        parts: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [("spec", self.spec, {})]
        if self.worker and (self.master.get(URLS) or self.master.get(PORTS)):  # one place for both lists of a part
            parts = [("masterSpec", self.master, {}), ("spec", self.spec, {"role": self.worker, "index": 0})]
        elif self.master.get(field):
            parts = [("masterSpec", self.master, {})]
        for part, asked, place in parts:
            for number, each in enumerate(asked.get(field) or []):
                if not each.get("exclude"):
                    yield f"{part}.{field}.{number}", each, place

    def unreached(self) -> Iterator[str]:
        """Warnings of what the workers ask for, and only the master gets."""
        for field in (URLS, PORTS):
            is_masters = self.master.get(field) and not self.worker
            if is_masters and _included(self.spec, field) not in ([], _included(self.master, field)):
                yield warning(f"spec.{field}", "pods are equal, and masterSpec names those of the first one")
        own, probes = self.master.get("probes"), self.spec.get("probes")
        if own and probes and own != probes:
            yield warning(f"spec.{PROBE}", "the workload is ready when its master is, by masterSpec.probes")


def _included(asked: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    return [each for each in asked.get(field) or [] if not each.get("exclude")]


def _ports(asked: _Asked, warnings: list[str], *, knows_groups: bool) -> list[dict[str, Any]]:
    """Exposed URLs are HTTP, other ports are TCP; a port in both lists is HTTP. Raises BadSpec."""
    found: dict[_Listener, dict[str, Any]] = {}
    for path, url, place in asked.items(URLS):
        number = url["container"]
        _check_number(number, place, found, path)
        found[_listener(number, place)] = {
            "name": _free_name(url, found.values()),
            "port": number,
            "protocol": HTTP,
            **place,
            **_authorized(url, path, warnings, knows_groups=knows_groups),
        }
    exposed = set(found)
    for path, port, place in asked.items(PORTS):
        number = port["container"]
        if (key := _listener(number, place)) in exposed:
            exposed.remove(key)  # given twice in this list, it is refused
            continue
        _check_number(number, place, found, path)
        found[key] = {"name": _free_name(port, found.values()), "port": number, "protocol": TCP, **place}
    return list(found.values())


def _listener(number: int, place: Mapping[str, Any]) -> _Listener:
    return place.get("role"), number


def _check_number(number: int, place: Mapping[str, Any], found: Mapping[_Listener, Any], path: str) -> None:
    """Raises BadSpec."""
    if _listener(number, place) in found:
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
