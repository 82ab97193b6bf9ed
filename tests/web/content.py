"""What the pages show in tests: jobs in every kind of state, with text in them that would like to be markup."""

from dataclasses import dataclass
from typing import Any

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import WebhookDelivery
from app.models.base import utc_now
from tests.builders.factories import make_job, make_node
from tests.builders.shards import batch_document
from tests.systems.engines import engine_on
from tests.systems.running_up import wait_until
from tests.web.site import Site

HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
_TRAINS = f"""
import json, math, time
from pathlib import Path
from trainyard import hooks

run = hooks.init(can_checkpoint=True)
for step in range(1, 241):
    run.log_metrics({{"loss": 3 / math.sqrt(step), "grad_norm": 1 + math.sin(step / 9)}}, step=step)
    if step % 20 == 0:
        run.log_metrics({{"eval_loss": 3.2 / math.sqrt(step)}}, step=step)
        print(f"evaluated at step {{step}} {HOSTILE}", flush=True)
    if step % 80 == 0:
        with run.checkpoint(step=step) as path:
            (Path(path) / "weights.json").write_text(json.dumps({{"step": step}}))
    run.progress(step, 240)
(Path(run.output_dir) / "result.txt").write_text("done")
"""
_FAILS = f"""
def lost(batch):
    raise ValueError("{HOSTILE} batch " + str(batch))

print("starts", flush=True)
lost(7)
"""
_PORTS = [{"name": "demo", "port": 7860}, {"name": "database", "port": 5432, "protocol": "tcp"}]
_TRIAL = """
from trainyard import hooks

run = hooks.init()
rate = float(run.hyperparameters["learning_rate"])
for step in range(1, 11):
    run.log_metrics({"loss": (rate - 0.01) ** 2 + 1 / step}, step=step)
    run.progress(step, 10)
"""


LOST_NODE = "lost-1"


@dataclass(frozen=True, kw_only=True)
class Content:
    """Ids of jobs. Each counts or has ended; `waiting` needs more devices than are free."""

    completed: str
    failed: str
    running: str
    waiting: str
    paused: str
    cancelled: str
    sweep: str
    webhook: str
    evaluation: str
    delivery: str
    key: str
    audit_entry: str

    @property
    def paths(self) -> dict[str, str]:
        """Every page that a person can open, by a name for its picture."""
        job, hook = f"/ui/jobs/{self.completed}", f"/ui/admin/webhooks/{self.webhook}"
        tabs = ("curves", "log", "events", "attempts", "checkpoints", "results", "document", "system")
        both = f"/ui/compare?job={self.completed}&job={self.failed}"
        return {
            "sign-in": "/ui/login",
            "overview": "/ui/",
            "jobs": "/ui/jobs",
            "jobs-none": "/ui/jobs?name=no-such-name",
            "job-completed": job,
            **{f"job-{tab}": f"{job}/{tab}" for tab in tabs},
            "job-failed": f"/ui/jobs/{self.failed}",
            "job-running": f"/ui/jobs/{self.running}",
            "job-waiting": f"/ui/jobs/{self.waiting}",
            "job-paused": f"/ui/jobs/{self.paused}",
            "job-cancelled": f"/ui/jobs/{self.cancelled}",
            "job-retry": f"/ui/jobs/{self.failed}/retry",
            "job-change": f"/ui/jobs/{self.waiting}/change",
            "job-access": f"/ui/jobs/{self.running}/access",
            "compare": both,
            "compare-one": f"/ui/compare?job={self.completed}",
            "compare-groups": f"{both}&group=team",
            "sweeps": "/ui/sweeps",
            "sweep": f"/ui/sweeps/{self.sweep}",
            "sweep-new": "/ui/sweeps/new",
            "sweep-fork": f"/ui/sweeps/{self.sweep}/fork",
            "sweep-of-job": f"/ui/sweeps/new?clone={self.completed}",
            "evaluations": "/ui/evaluations",
            "evaluation": f"/ui/evaluations/{self.evaluation}",
            "evaluation-new": "/ui/evaluations/new",
            "evaluation-of-job": f"/ui/evaluations/new?job={self.completed}",
            "nodes": "/ui/nodes",
            "nodes-utilization": "/ui/nodes?show=utilization",
            "nodes-memory": "/ui/nodes?show=memory",
            "node": "/ui/nodes/h100-1",
            "node-lost": f"/ui/nodes/{LOST_NODE}",
            "shares": "/ui/shares",
            "share": "/ui/shares/default",
            "submit": "/ui/submit",
            "submit-clone": f"/ui/submit?clone={self.completed}",
            "admin": "/ui/admin",
            "keys": "/ui/admin/keys",
            "key": f"/ui/admin/keys/{self.key}",
            "projects": "/ui/admin/projects",
            "queues": "/ui/admin/queues",
            "webhooks": "/ui/admin/webhooks",
            "webhook": hook,
            "delivery": f"{hook}/deliveries/{self.delivery}",
            "audit": "/ui/admin/audit",
            "audit-entry": f"/ui/admin/audit/{self.audit_entry}",
            "people": "/ui/admin/people",
            "sign-ins": "/ui/admin/sign-ins",
            "project": "/ui/admin/projects/default",
            "queue": "/ui/admin/queues/default",
            "sessions": "/ui/sessions",
            "missing": "/ui/jobs/job-01900000-0000-7000-8000-000000000000",
        }


def populate(site: Site) -> Content:
    labels = {"team": HOSTILE}
    completed = site.submit_script("trains", _TRAINS, labels=labels)
    failed = site.submit_script("fails", _FAILS, labels=labels)
    running = site.submit(
        "counts",
        steps=3600,
        labels=labels,
        resource_config={"gpu_count": 1, "gpu_type": "h100"},
        interactive_config={"ports": _PORTS},
    )
    sweep = site.ask("POST", "/v1/sweeps", _sweep(site))["sweep_id"]
    waiting = site.submit("waits", resource_config={"gpu_count": 8, "gpu_type": "h100"})
    site.wait_for(completed, "COMPLETED")
    site.wait_for(failed, "FAILED")
    site.wait_for(running, "TRAINING")
    wait_until(lambda: site.ask("GET", f"/v1/jobs/{waiting}")["pending_reason"], 180)
    wait_until(lambda: site.ask("GET", f"/v1/sweeps/{sweep}")["status"] == "COMPLETED", 180)
    hook = site.ask(
        "POST", "/v1/webhooks", {"url": "https://hooks.example.org/x", "description": HOSTILE, "project": "default"}
    )
    evaluation, delivery = _planted(site, hook["webhook_id"])
    return Content(
        completed=completed,
        failed=failed,
        running=running,
        waiting=waiting,
        **_stopped(site),
        sweep=sweep,
        webhook=hook["webhook_id"],
        evaluation=evaluation,
        delivery=delivery,
        key=site.ask("GET", "/v1/keys")["keys"][0]["key_id"],
        audit_entry=site.ask("GET", "/v1/audit")["entries"][0]["id"],
    )


def _stopped(site: Site) -> dict[str, str]:
    """A job that is paused, and one that was cancelled; a queue that starts none keeps them from ending before."""
    site.ask("POST", "/v1/queues", {"name": "shut", "paused": True})
    made = {state: site.submit(state, scheduling_config={"queue": "shut"}) for state in ("paused", "cancelled")}
    for job_id, action in zip(made.values(), ("pause", "cancel"), strict=True):
        site.wait_for(job_id, "QUEUED")
        site.ask("POST", f"/v1/jobs/{job_id}/{action}", {})
    return made


def _planted(site: Site, webhook: str) -> tuple[str, str]:
    """An evaluation with results, and a delivery that was given up; a lost node. No request brings these about soon."""
    metrics = {"exact_match": {"value": 0.5, "stderr": 0.1}}
    report = {"benchmarks": {"exact_match": {"metrics": metrics, "n": 20, "seconds": 1.5}}}
    document = batch_document(
        benchmarks=1, inference={"benchmarks": [{"name": "exact_match", "dataset": 0}], "seed": 0}
    )
    opened = Database().bind(engine_on(site.database_url))
    try:
        with opened.write() as session:
            evaluation = make_job(session, name="measured", document=document, state=JobState.COMPLETED, report=report)
            make_node(session, LOST_NODE, device_type="a100", state="lost", lost_at=utc_now())
            delivery = WebhookDelivery(
                id="dlv-01900000-0000-7000-8000-000000000000",
                webhook_id=webhook,
                event_id="evt-01900000-0000-7000-8000-000000000000",
                event_type="job.failed",
                payload={"job": {"name": HOSTILE}},
                state="given_up",
                tries=8,
                problem=f"status 500: {HOSTILE}",
                finished_at=utc_now(),
            )
            session.add(delivery)
            return evaluation.id, delivery.id
    finally:
        opened.close()


def _sweep(site: Site) -> dict[str, Any]:
    script = site.running.data_dir.parent / "trial.py"
    script.write_text(_TRIAL)
    framework = {"type": "CUSTOM", "custom_script_path": script.name}
    return {
        "name": "rates",
        "job": {"training_config": {"framework": framework}, "resource_config": {"gpu_count": 1, "gpu_type": "a100"}},
        "parameters": {
            "learning_rate": {"type": "double", "min": 1e-4, "max": 1e-1, "scale": "log"},
            "batch": {"type": "int", "values": [8, 16]},
        },
        "objective": {"metric": "loss", "goal": "minimize"},
        "method": {"name": "random", "seed": 3},
        "budget": {"max_trials": 4, "parallel_trials": 2},
    }
