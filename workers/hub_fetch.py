"""A process that fetches one model from a hub into the node's cache and prints where it lies, as one line of JSON.

It says ``{"path"}`` or ``{"error_type", "message"}``. HF_ENDPOINT and HF_TOKEN are read by the hub's own client.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

from workers.processes import die_with_parent, hide_from_same_user

# The same weights in the forms of other frameworks.
NOT_NEEDED = ["*.msgpack", "*.h5", "*.ot", "*.onnx", "*.tflite", "*.gguf", "onnx/*", "original/*"]


def main() -> int:
    arguments = _arguments()
    die_with_parent(arguments.die_with)
    hide_from_same_user()  # HF_TOKEN
    answer = fetch(arguments.model, arguments.revision or None, arguments.cache_dir)
    print(json.dumps(answer))  # noqa: T201 – the answer to our parent
    return 0 if "path" in answer else 1


def fetch(model_id: str, revision: str | None, cache_dir: Path) -> dict[str, str]:
    """Where the model lies now, or why it could not be had."""
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    name = f"{model_id} at revision {revision}" if revision else model_id
    try:
        return {"path": snapshot_download(model_id, revision=revision, cache_dir=cache_dir, ignore_patterns=NOT_NEEDED)}
    except GatedRepoError:
        return _failed("MODEL_NOT_FOUND", f"base model {name}: {hub} demands an accepted licence and a token for it")
    except RevisionNotFoundError:
        return _failed("MODEL_NOT_FOUND", f"base model {model_id} has no revision {revision} at {hub}")
    except RepositoryNotFoundError:
        return _failed("MODEL_NOT_FOUND", f"base model {name} is neither on this node nor at {hub}")
    except (HfHubHTTPError, OSError) as error:
        # The network may be back in a moment: a cause that another attempt can cure.
        return _failed("STORAGE_ERROR", f"base model {name} is not on this node, and {hub} failed: {error}"[:1000])


def _failed(error_type: str, message: str) -> dict[str, str]:
    return {"error_type": error_type, "message": message}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.hub_fetch", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--revision", default="")
    parser.add_argument("--cache-dir", required=True, type=Path)
    parser.add_argument("--die-with", required=True, type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
