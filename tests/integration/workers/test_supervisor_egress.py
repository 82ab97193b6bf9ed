"""A job in a sandbox that reaches a listed service through the gate, and nothing else."""

from collections.abc import Callable
from pathlib import Path

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.host import processes
from app.services.access import projects
from tests.doubles.scripted_server import running
from tests.doubles.tls import tls_before
from tests.systems.supervising import World
from tests.systems.system import wait_for

SCRIPT = """
import os, ssl, urllib.error, urllib.request
assert os.environ.pop("no_proxy") == os.environ.pop("NO_PROXY")
assert os.environ["https_proxy"] == os.environ["HTTPS_PROXY"] == "http://127.0.0.1:3128"
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def read(url):
    try:
        with urllib.request.urlopen(url, timeout=10, context=context) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode().strip()}"
    except OSError as error:
        return str(error)
print("listed", read("https://localhost:PORT/"))
print("unlisted", read("http://localhost:PLAIN/"))
del os.environ["http_proxy"], os.environ["HTTP_PROXY"]
print("around", read("http://127.0.0.1:PLAIN/"))
"""


def test_job_reaches_listed_services_and_its_history_says_so(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = make_world(TRAINYARD_FETCH_ALLOW="localhost")
    with running() as plain, tls_before(plain.server_address[1], tmp_path) as (port, _):
        plain.script(lambda handler: handler.reply(200, b"hello"))
        with world.db.write() as session:
            projects.ensure(session, "default", actor="test").egress = [f"localhost:{port}"]
        script = SCRIPT.replace("PORT", str(port)).replace("PLAIN", str(plain.server_address[1]))
        job_id = world.start(script, resources={"network": "gate"})
        job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    listed, unlisted, around = world.log(job_id)
    assert listed == "listed hello"
    assert unlisted == "unlisted 403 Trainyard's proxy: it is not in the list of the project's services (egress)"
    assert "Connection refused" in around
    made, refused = (event for event in world.events(job_id) if event.type == EventType.CONNECTION)
    assert made.message.startswith(f"1 connection to localhost:{port}, ")
    assert made.data["received_bytes"] > 100
    assert refused.message.startswith(f"1 connection to localhost:{plain.server_address[1]} refused: it is not")
    wait_for(lambda: not left_gates(), seconds=10, what="no gate outlives its supervisor")


def left_gates() -> list[int]:
    """Those of tests beside this one have their supervisors."""
    lines = {pid: command_line(pid).split(b"\0") for pid in processes.descendants(1)}
    supervisors = {pid: line[line.index(b"--die-with") + 1] for pid, line in lines.items() if b"workers.egress" in line}
    return [pid for pid, supervisor in supervisors.items() if not Path("/proc", supervisor.decode()).exists()]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def test_job_whose_project_has_lost_its_services_fails_with_the_way_out(world: World) -> None:
    job_id = world.start("print('never')", resources={"network": "gate"})

    assert world.wait_for_end(job_id).state is JobState.FAILED, world.describe(job_id)
    attempt = world.attempt(job_id)
    assert attempt.cause == "INVALID_CONFIG"
    assert "projects egress default --add HOST:PORT" in (attempt.end_reason or "")
    assert world.log(job_id) == []


def test_job_that_asks_for_no_gate_has_none(world: World) -> None:
    with world.db.write() as session:
        projects.ensure(session, "default", actor="test").egress = ["example.org:443"]
    job_id = world.start("import os\nprint([name for name in os.environ if 'proxy' in name.lower()])\n")

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    assert world.log(job_id) == ["[]"]
