"""Rules of ``interactive_config``: which jobs have ports, a readiness probe, a notebook and a sandbox that stays."""

from collections.abc import Callable

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom
from app.domain.spec.frameworks.custom import launcher
from app.domain.spec.interactive import NOTEBOOK_PORT
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.domain.spec.roles import numbered
from app.domain.spec.rules.packages import FIELD as PACKAGES

FIELD = "interactive_config"


def check(document: JobDocument, rules: ReadingRules) -> None:
    """Raise BadSpec for groups where no identity provider says who is in one."""
    if rules.knows_groups:
        return
    for number, port in enumerate(document.interactive_config.ports):
        if port.authorized_groups:
            raise BadSpec(
                "groups are those of an identity provider, and this installation has none (TRAINYARD_OIDC_ISSUER); "
                "name people and keys by authorized_users, or leave both out: then every key that may see the job may "
                "open the port",
                field=f"{FIELD}.ports.{number}.authorized_groups",
            )


def sandbox_belongs_to_a_script(document: JobDocument) -> None:
    """Built-in trainers listen on no port, and what they leave behind when they fail is no one's to look at."""
    config = document.interactive_config
    if is_custom(document):
        return
    asked = {
        "ports": bool(config.ports),
        "readiness_probe": config.readiness_probe is not None,
        "notebook": config.notebook,
        "terminal": config.terminal,
        "keep_on_failure_seconds": config.keep_on_failure_seconds > 0,
    }
    for name, is_given in asked.items():
        if is_given:
            raise BadSpec(
                f"{name} is for scripts of your own (framework CUSTOM), not for built-in trainers; leave it out: "
                "shells and commands (trainyard exec JOB) reach jobs of every framework while they run",
                field=f"{FIELD}.{name}",
            )


def ports_differ(document: JobDocument) -> None:
    names: dict[str, int] = {}
    numbers: dict[tuple[str | None, int, int], int] = {}
    for at, port in enumerate(document.interactive_config.ports):
        field = f"{FIELD}.ports.{at}"
        if port.name == NOTEBOOK_PORT:
            raise BadSpec(
                f"{NOTEBOOK_PORT} is the port of the job's own JupyterLab (notebook: true); choose another name",
                field=f"{field}.name",
            )
        if port.name in names:
            raise BadSpec(
                f"two ports have the name {port.name}, numbers {names[port.name]} and {at}; name each differently",
                field=f"{field}.name",
            )
        number = port.role, port.index, port.port
        if number in numbers:
            raise BadSpec(
                f"port {port.port} is given twice, numbers {numbers[number]} and {at}; leave one of them out",
                field=f"{field}.port",
            )
        names[port.name] = at
        numbers[number] = at


def ports_are_of_instances(document: JobDocument) -> None:
    """Of the whole job: the document of one of its roles knows no others."""
    counts = {role.role: role.count for role in document.tasks}
    for at, port in enumerate(document.interactive_config.ports):
        field = f"{FIELD}.ports.{at}"
        if port.role is None:
            if "index" in port.given:
                raise BadSpec(
                    "index is the number of an instance of a role; give role, too, or leave index out: the port is "
                    "then on the node of rank 0",
                    field=f"{field}.index",
                )
        elif port.role not in counts:
            known = f"known: {', '.join(counts)}" if counts else "the job has no tasks; leave role out"
            raise BadSpec(f"there is no role {port.role!r:.40}; {known}", field=f"{field}.role")
        elif port.index >= counts[port.role]:
            has = numbered(counts[port.role], "instance")
            raise BadSpec(f"index is {port.index}, and the role {port.role} has {has}", field=f"{field}.index")


def prefix_is_of_http(document: JobDocument) -> None:
    for at, port in enumerate(document.interactive_config.ports):
        if port.keep_prefix and port.protocol != "http":
            raise BadSpec(
                f"keep_prefix is about paths of HTTP requests, and the port has protocol {port.protocol}; leave one of "
                "them out",
                field=f"{FIELD}.ports.{at}.keep_prefix",
            )


def probe_can_answer(document: JobDocument) -> None:
    probe = document.interactive_config.readiness_probe
    if probe is not None and probe.timeout_seconds > probe.period_seconds:
        raise BadSpec(
            f"timeout_seconds {probe.timeout_seconds} is longer than period_seconds {probe.period_seconds}, after "
            "which the job is asked again; lower the timeout, or raise the period",
            field=f"{FIELD}.readiness_probe.timeout_seconds",
        )


def terminal_is_of_ranks(document: JobDocument) -> None:
    if document.interactive_config.terminal and launcher(document):
        raise BadSpec(
            "mpirun passes on what its ranks write, and connects them with no terminal; leave it out",
            field=f"{FIELD}.terminal",
        )


def notebook_can_be_installed(document: JobDocument) -> None:
    """Nothing to refuse but a contradiction that is visible: exact packages without JupyterLab.

    Of the whole job: its notebook has the packages of rank 0, which the first of its roles has.
    """
    first = next(iter(document.tasks), None)
    own = first.training_config.packages if first is not None else None
    packages = own if own is not None else document.training_config.packages
    if not document.interactive_config.notebook or packages is None or not packages.lock:
        return
    if "jupyterlab" not in packages.lock.lower():
        raise BadSpec(
            "notebook starts the JupyterLab of the job's packages, and this lock has no jupyterlab; add it to what is "
            "locked, or leave notebook out",
            field=f"{'tasks.0.' if own is not None else ''}{PACKAGES}.lock",
        )


RULES: tuple[Callable[[JobDocument], None], ...] = (
    sandbox_belongs_to_a_script,
    ports_differ,
    prefix_is_of_http,
    probe_can_answer,
    terminal_is_of_ranks,
)
