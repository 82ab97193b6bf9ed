"""What one would write by hand to store uploads: Flask routes under gunicorn, without hashes, quotas or rows.

The references of `benchmarks.uploads`: `BARE_FOLDER` says where. `/form` has Werkzeug read the form and copy its file,
`/body` writes the request's body as it arrives. Both as durable as ours: flushed to the disk before the answer.
"""

import os
import uuid
from pathlib import Path

from flask import Flask, Response, jsonify, request

PIECE_BYTES = 256 * 1024


def make_app() -> Flask:
    """What gunicorn serves."""
    app = Flask("bare")
    folder = Path(os.environ["BARE_FOLDER"])

    @app.post("/form")
    def store_form() -> Response:
        target = folder / uuid.uuid4().hex
        with target.open("xb") as copy:
            request.files["file"].save(copy)
            copy.flush()
            os.fsync(copy.fileno())
        return jsonify({"bytes": target.stat().st_size})

    @app.post("/body")
    def store_body() -> Response:
        target = folder / uuid.uuid4().hex
        with target.open("xb", buffering=0) as copy:
            while piece := request.stream.read(PIECE_BYTES):
                copy.write(piece)
            os.fsync(copy.fileno())
        return jsonify({"bytes": target.stat().st_size})

    return app
