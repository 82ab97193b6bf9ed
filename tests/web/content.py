"""What the pages show in tests: jobs in every kind of state, with text in them that would like to be markup."""

from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, kw_only=True)
class Content:
    """Ids of jobs. Each counts or has ended; `waiting` needs more devices than are free."""

    completed: str
    failed: str
    running: str
    waiting: str
    sweep: str
    webhook: str

    @property
    def paths(self) -> dict[str, str]:
        """Every page that a person can open, by a name for its picture."""
        job, tabs = f"/ui/jobs/{self.completed}", ("log", "events", "attempts", "checkpoints", "results", "document")
        return {
            "overview": "/ui/",
            "jobs": "/ui/jobs",
            "jobs-none": "/ui/jobs?name=no-such-name",
            "job-completed": job,
            **{f"job-{tab}": f"{job}/{tab}" for tab in (*tabs, "system")},
            "job-failed": f"/ui/jobs/{self.failed}",
            "job-running": f"/ui/jobs/{self.running}",
            "job-waiting": f"/ui/jobs/{self.waiting}",
            "job-access": f"/ui/jobs/{self.running}/access",
            "compare": f"/ui/compare?job={self.completed}&job={self.failed}",
            "sweeps": "/ui/sweeps",
            "sweep": f"/ui/sweeps/{self.sweep}",
            "sweep-new": "/ui/sweeps/new",
            "sweep-fork": f"/ui/sweeps/{self.sweep}/fork",
            "sweep-of-job": f"/ui/sweeps/new?clone={self.completed}",
            "evaluations": "/ui/evaluations",
            "evaluation-new": "/ui/evaluations/new",
            "evaluation-of-job": f"/ui/evaluations/new?job={self.completed}",
            "nodes": "/ui/nodes",
            "node": "/ui/nodes/h100-1",
            "shares": "/ui/shares",
            "submit": "/ui/submit",
            "submit-clone": f"/ui/submit?clone={self.completed}",
            "admin": "/ui/admin",
            "keys": "/ui/admin/keys",
            "projects": "/ui/admin/projects",
            "queues": "/ui/admin/queues",
            "webhooks": "/ui/admin/webhooks",
            "webhook": f"/ui/admin/webhooks/{self.webhook}",
            "audit": "/ui/admin/audit",
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
    return Content(
        completed=completed, failed=failed, running=running, waiting=waiting, sweep=sweep, webhook=hook["webhook_id"]
    )


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
