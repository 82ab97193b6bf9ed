"""Addresses at which gateways serve sessions and ports of jobs."""

from urllib.parse import urlsplit, urlunsplit

from app.domain.port_addresses import PortsHost

_WEBSOCKET = {"http": "ws", "https": "wss"}


def session_address(gateway_url: str, session_id: str) -> str:
    """The WebSocket of a session at a gateway, of which ``gateway_url`` is the http or https address."""
    return f"{sessions_address(gateway_url)}{session_id}/stream"


def sessions_address(gateway_url: str) -> str:
    """Below which the WebSockets of all sessions are."""
    scheme, host, path, _, _ = urlsplit(gateway_url)
    return urlunsplit((_WEBSOCKET[scheme], host, f"{path.rstrip('/')}/v1/sessions/", "", ""))


def port_address(ports_url: str, job_id: str, name: str) -> str | None:
    """Where browsers reach a port; None where no gateway serves ports (``ports_url`` is empty)."""
    host = PortsHost(ports_url)
    return host.address(job_id, name).url if host else None
