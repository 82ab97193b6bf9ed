"""The table of all checks, ordered by dependency, and their execution."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from app.domain.errors import TrainyardError
from app.services.operations.diagnosis import broker, database, machine, mail, outcomes, processes, secrets, stuck
from app.services.operations.diagnosis.findings import Finding, Findings, Level, failed, skipped
from app.services.operations.diagnosis.site import Site


@dataclass(frozen=True)
class Check:
    """A check; ``needs`` names one that must succeed first."""

    name: str
    run: Callable[[Site], Findings]
    needs: str = ""


DATABASE, SCHEMA, SECRET_KEY, BROKER, STORAGE = "database", "schema", "secret key", "broker", "storage"

CHECKS = (
    Check(SECRET_KEY, secrets.secret_key),
    Check("files of secrets", secrets.files_of_secrets),
    Check(DATABASE, database.reachable),
    Check(SCHEMA, database.schema, DATABASE),
    Check("database rights", database.rights, SCHEMA),
    Check("database server", database.configuration, DATABASE),
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
    Check("search process", machine.search_process),
    Check("host users", machine.own_users),
    Check("images", machine.images),
    Check("warm starts", machine.warm_starts),
    Check("GPU driver", machine.gpu_driver),
    Check("mail server", mail.server),
    Check("API address", machine.api_address),
    Check("Flower address", machine.flower_address),
    Check("coordinators", processes.coordinators, SCHEMA),
    Check("nodes", processes.nodes, SCHEMA),
    Check("isolation", processes.isolation, SCHEMA),
    Check("clocks", processes.clocks, SCHEMA),
    Check("jobs", stuck.jobs, SCHEMA),
    Check("leases", stuck.leases, SCHEMA),
    Check("messages", stuck.messages, SCHEMA),
    Check("ends of attempts", outcomes.written, SCHEMA),
    Check("suspected nodes", outcomes.suspected_nodes, SCHEMA),
)


# Those that only read some rows and files: pages may run them.
OF_PAGES = {
    *(SECRET_KEY, "files of secrets", SCHEMA, "sealed secrets", "disk space"),
    *("jobs", "leases", "messages", "ends of attempts", "suspected nodes"),
}


def run_checks(site: Site, names: Collection[str] = ()) -> Iterator[tuple[str, Finding]]:
    """Yield (check, finding) as each check ends; of these checks, or of all."""
    broken: set[str] = set()
    for check in CHECKS:
        if names and check.name not in names:
            continue
        findings = skipped(f"needs the {check.needs}") if check.needs in broken else _run(check, site)
        if any(finding.level in (Level.FAILED, Level.SKIPPED) for finding in findings):
            broken.add(check.name)
        for finding in findings:
            yield check.name, finding


def _run(check: Check, site: Site) -> Findings:
    try:
        return check.run(site)
    except TrainyardError as error:
        return failed(error.message, f"check the {check.name}")
    except Exception as error:  # noqa: BLE001  any failure of a component is the result
        # The class name only: library messages may contain a URL's password.
        return failed(f"cannot be checked ({type(error).__name__})", "is it running, and is its address correct?")
