"""The table of all checks, in the order in which their failures explain each other, and running them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.domain.errors import TrainyardError
from app.services.operations.diagnosis import broker, database, machine, outcomes, processes, secrets, stuck
from app.services.operations.diagnosis.findings import Finding, Findings, Level, failed, skipped
from app.services.operations.diagnosis.site import Site


@dataclass(frozen=True)
class Check:
    """``needs``: a check without whose success this one can say nothing."""

    name: str
    look: Callable[[Site], Findings]
    needs: str = ""


DATABASE, SCHEMA, SECRET_KEY, BROKER, STORAGE = "database", "schema", "secret key", "broker", "storage"

CHECKS = (
    Check(SECRET_KEY, secrets.secret_key),
    Check("files of secrets", secrets.files_of_secrets),
    Check(DATABASE, database.reachable),
    Check(SCHEMA, database.schema, DATABASE),
    Check("database rights", database.rights, SCHEMA),
    Check("database server", database.keeping, DATABASE),
    Check("database clock", database.clock, DATABASE),
    Check("sealed secrets", secrets.sealed_rows, SCHEMA),
    Check(BROKER, broker.reachable),
    Check("broker memory", broker.memory, BROKER),
    Check("broker persistence", broker.persistence, BROKER),
    Check("broker protection", broker.protection, BROKER),
    Check(STORAGE, machine.storage),
    Check("stored files", machine.stored_files, SCHEMA),
    Check("disk space", machine.disk, STORAGE),
    Check("cache size", machine.cache_size),
    Check("sandbox", machine.sandbox),
    Check("GPU driver", machine.gpu_driver),
    Check("API address", machine.api_address),
    Check("Flower address", machine.flower_address),
    Check("coordinators", processes.coordinators, SCHEMA),
    Check("nodes", processes.nodes, SCHEMA),
    Check("clocks", processes.clocks, SCHEMA),
    Check("jobs", stuck.jobs, SCHEMA),
    Check("leases", stuck.leases, SCHEMA),
    Check("messages", stuck.messages, SCHEMA),
    Check("ends of attempts", outcomes.written, SCHEMA),
    Check("suspected nodes", outcomes.suspected_nodes, SCHEMA),
)


def examined(site: Site) -> Iterator[tuple[str, Finding]]:
    """(check, finding) as each check ends."""
    broken: set[str] = set()
    for check in CHECKS:
        findings = skipped(f"needs the {check.needs}") if check.needs in broken else _looked(check, site)
        if any(finding.level in (Level.FAILED, Level.SKIPPED) for finding in findings):
            broken.add(check.name)
        for finding in findings:
            yield check.name, finding


def _looked(check: Check, site: Site) -> Findings:
    try:
        return check.look(site)
    except TrainyardError as error:
        return failed(error.message, f"look after the {check.name}")
    except Exception as error:  # noqa: BLE001  whatever is wrong with a part is the answer
        # The class alone: what libraries say may hold the password of a URL.
        return failed(f"cannot be looked at ({type(error).__name__})", "is it there, and is its address right?")
