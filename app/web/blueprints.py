"""Every page of the dashboard."""

from app.web.routes import (
    compare,
    curves,
    evaluations,
    job,
    job_access,
    job_actions,
    job_results,
    jobs,
    live,
    log,
    nodes,
    oidc,
    overview,
    root,
    shares,
    sign_in,
    static_files,
    submit,
    sweeps,
)
from app.web.routes.admin import audit, keys, projects, queues, sign_ins, start, webhooks

ROOT = root.blueprint  # at `/`
BLUEPRINTS = (
    overview.blueprint,
    jobs.blueprint,
    job.blueprint,
    job_access.blueprint,
    job_actions.blueprint,
    job_results.blueprint,
    curves.blueprint,
    log.blueprint,
    compare.blueprint,
    sweeps.blueprint,
    evaluations.blueprint,
    nodes.blueprint,
    shares.blueprint,
    submit.blueprint,
    *(start.blueprint, keys.blueprint, projects.blueprint, queues.blueprint, webhooks.blueprint),
    *(audit.blueprint, sign_ins.blueprint),
    live.blueprint,
    sign_in.blueprint,
    oidc.blueprint,
    static_files.blueprint,
)
