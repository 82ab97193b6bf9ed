"""The retry budget of a job: counters of its failures, reset whenever it has made progress that lasts."""

from app.models import Job


def refill(job: Job) -> None:
    """Reset the counters: what is stored now is further than all that was stored before."""
    job.retries_used = job.in_place_restarts = job.hangs = job.host_losses = job.disk_waits = 0
    job.excluded_nodes, job.no_room_on = [], []
