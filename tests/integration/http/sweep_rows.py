"""Rows of the table of routes and callers: those of sweeps. Each asks for a completed sweep with one trial."""

from tests.builders.sweeps import make_sweep_document
from tests.integration.compat.foreign_routes import MISSING, USER, VIEWER, Row

SWEEPS: dict[tuple[str, str], Row] = {
    ("POST", "/v1/sweeps"): Row(USER, 201, body=make_sweep_document()),
    ("GET", "/v1/sweeps"): Row(VIEWER),
    ("GET", "/v1/sweeps/<sweep_id>"): Row(VIEWER, foreign=MISSING),
    ("PATCH", "/v1/sweeps/<sweep_id>"): Row(USER, foreign=MISSING, body={"labels": {}}),
    ("DELETE", "/v1/sweeps/<sweep_id>"): Row(USER, 204, foreign=MISSING),
    ("POST", "/v1/sweeps/<sweep_id>/pause"): Row(USER, 409, foreign=MISSING),
    ("POST", "/v1/sweeps/<sweep_id>/resume"): Row(USER, 409, foreign=MISSING),
    ("POST", "/v1/sweeps/<sweep_id>/stop"): Row(USER, 409, foreign=MISSING),
    ("POST", "/v1/sweeps/<sweep_id>/cancel"): Row(USER, 409, foreign=MISSING),
    # its row was not made by the API, so that its job differs in defaults
    ("POST", "/v1/sweeps/<sweep_id>/fork"): Row(USER, 400, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/best"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/events"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/replay"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/trials"): Row(VIEWER, foreign=MISSING),
    ("POST", "/v1/sweeps/<sweep_id>/trials"): Row(USER, 409, foreign=MISSING, body={"values": {}}),
    ("GET", "/v1/sweeps/<sweep_id>/trials/<number>"): Row(VIEWER, foreign=MISSING),
    ("POST", "/v1/sweeps/<sweep_id>/trials/<number>/stop"): Row(USER, 409, foreign=MISSING),
    ("POST", "/v1/sweeps/<sweep_id>/trials/<number>/promote"): Row(USER, 409, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/figures/history"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/figures/parallel"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/figures/slice"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/figures/importance"): Row(VIEWER, foreign=MISSING),
    # It has no early stopping, and one objective.
    ("GET", "/v1/sweeps/<sweep_id>/figures/rungs"): Row(VIEWER, 400, foreign=MISSING),
    ("GET", "/v1/sweeps/<sweep_id>/figures/front"): Row(VIEWER, 400, foreign=MISSING),
}
