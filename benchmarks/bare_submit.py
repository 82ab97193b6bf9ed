"""What one would write by hand to take jobs: a Flask route with one INSERT and one Celery send, served by gunicorn.

The reference of `benchmarks.submit`: `BARE_DATABASE_URL` and `BARE_BROKER_URL` say where. As durable as ours: SQLite in
WAL mode with a sync for each commit.
"""

import os
import sqlite3
import uuid
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from flask import Flask, Response, jsonify, request
from sqlalchemy import JSON, Column, DateTime, MetaData, String, Table, create_engine, event, insert
from sqlalchemy.engine import Engine

metadata = MetaData()
jobs = Table(
    "bare_job",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", String(128)),
    Column("status", String(16), index=True),
    Column("document", JSON),
    Column("created_at", DateTime(timezone=True), index=True),
)


def make_app() -> Flask:
    """What gunicorn serves."""
    app = Flask("bare")
    engine = bare_engine(os.environ["BARE_DATABASE_URL"])
    celery = Celery("bare", broker=os.environ["BARE_BROKER_URL"], set_as_current=False)

    @app.post("/jobs")
    def submit() -> tuple[Response, int]:
        document: dict[str, Any] = request.get_json()
        row = {
            "id": f"job-{uuid.uuid4()}",
            "name": document["name"],
            "status": "PENDING",
            "document": document,
            "created_at": datetime.now(UTC),
        }
        with engine.begin() as connection:
            connection.execute(insert(jobs).values(row))
        celery.send_task("bare.admit", args=(row["id"],), queue="jobs.default", ignore_result=True)
        return jsonify({"job_id": row["id"], "status": "PENDING"}), 201

    return app


def bare_engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_size=10, max_overflow=0)
    engine = create_engine(url, connect_args={"timeout": 30, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    return engine
