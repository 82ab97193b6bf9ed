"""Checks of processes: coordinators, nodes, and their clocks."""

from app.domain.nodes.sandboxes import BUBBLEWRAP, LANDLOCK, WHY_NONE, way_out
from app.domain.spec.frameworks.requirements import FULL
from app.services.operations.diagnosis.findings import Findings, failed, fine, skipped, warning
from app.services.operations.diagnosis.pulses import COORDINATOR, NODE, Pulse
from app.services.operations.diagnosis.site import Site

# No scheduling decision depends on wall clocks, but displayed times and the expiry of keys do.
CLOCK_SECONDS = 2.0


def coordinators(site: Site) -> Findings:
    alive = _alive(site, COORDINATOR)
    if not alive:
        return failed(
            f"no heartbeat from a coordinator within {site.patience_seconds:g} s: no job is admitted or placed",
            "start one: `trainyard coordinator`, or its unit or container; see its log for why it ended",
        )
    return fine(f"{len(alive)} coordinator(s) are alive: {_names(alive)}")


def nodes(site: Site) -> Findings:
    known = [pulse for pulse in site.pulses if pulse.kind == NODE]
    alive = _alive(site, NODE)
    findings: Findings = []
    if not alive:
        return failed(
            "no node is alive: no job can run", "start one: `trainyard node --name NAME`, or its unit or container"
        )
    silent = [pulse for pulse in known if not pulse.is_alive]
    if silent:
        findings += warning(
            f"{len(silent)} of {len(known)} nodes send no heartbeat: {_names(silent)}",
            f"restart them, or remove each with `trainyard nodes remove {silent[0].name}`",
        )
    for lack, why in WHY_NONE.items():
        lacking = [pulse for pulse in alive if pulse.sandbox == lack]
        if lacking:
            findings += failed(f"{_names(lacking)} accept no jobs: each {why}", way_out(lack))
    unconfined = [pulse for pulse in alive if pulse.sandbox not in (BUBBLEWRAP, LANDLOCK, *WHY_NONE)]
    if unconfined:
        findings += warning(
            f"jobs run without a sandbox on {_names(unconfined)}",
            "install bubblewrap there (docs/reference/isolation.md)",
        )
    idle = [pulse for pulse in alive if pulse.state in ("draining", "drained")]
    if idle:
        findings += warning(
            f"{_names(idle)} accept no jobs: drained", "`trainyard nodes enable NAME` after maintenance"
        )
    faulty = [pulse for pulse in alive if pulse.state == "quarantined"]
    if faulty:
        findings += warning(
            f"{_names(faulty)} accept no jobs: quarantined after repeated job failures",
            "`trainyard nodes show NAME` shows the reason; repair the machine, then `trainyard nodes enable NAME`",
        )
    return findings or fine(f"{len(alive)} node(s) are alive: {_names(alive)}")


def isolation(site: Site) -> Findings:
    """How the nodes isolate their jobs."""
    alive = [pulse for pulse in _alive(site, NODE) if pulse.sandbox not in WHY_NONE]
    full = [pulse for pulse in alive if FULL in pulse.capabilities]
    confined = [pulse for pulse in alive if pulse not in full and pulse.sandbox == BUBBLEWRAP]
    findings: Findings = []
    if full:
        findings += fine(f"full on {_names(full)}: jobs run in a sandbox with control groups")
    if confined:
        findings += fine(
            f"namespaces on {_names(confined)}: jobs run in a sandbox without limits of memory, processes and "
            "processor time; a worker that runs as root holds them"
        )
    if landlocked := [pulse for pulse in alive if pulse.sandbox == LANDLOCK]:
        findings += fine(
            f"landlock on {_names(landlocked)}: jobs reach their own files alone, and the network of the machine"
        )
    return findings or skipped("no node that is alive has a sandbox")


def clocks(site: Site) -> Findings:
    wrong = [p for p in site.pulses if p.skew_seconds is not None and abs(p.skew_seconds) > CLOCK_SECONDS]
    if wrong:
        skews = ", ".join(f"{pulse.name} by {pulse.skew_seconds:+.1f} s" for pulse in wrong)
        return warning(f"clocks differ from this one: {skews}", "run NTP on these machines and this one")
    return fine("the clocks of live processes agree with this one")


def _alive(site: Site, kind: str) -> list[Pulse]:
    return [pulse for pulse in site.pulses if pulse.kind == kind and pulse.is_alive]


def _names(pulses: list[Pulse]) -> str:
    shown = ", ".join(pulse.name for pulse in pulses[:5])
    return shown if len(pulses) <= 5 else f"{shown} and {len(pulses) - 5} more"
