"""A fine-tuning by OpenAI's client: OPENAI_BASE_URL and OPENAI_API_KEY say where."""

import sys
import time
from pathlib import Path

from openai import OpenAI


def main(path: str, model: str = "tiny") -> None:
    with OpenAI() as client:
        data = client.files.create(file=Path(path), purpose="fine-tune")
        data = client.files.wait_for_processing(data.id, poll_interval=0.5)
        if data.status != "processed":
            sys.exit(f"{path}: {data.status_details}")
        job = client.fine_tuning.jobs.create(
            training_file=data.id,
            model=model,
            suffix="docs",
            seed=7,
            method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 1, "batch_size": 32}}},
        )
        seen: set[str] = set()
        while job.status not in {"succeeded", "failed", "cancelled"}:
            time.sleep(0.5)
            job = client.fine_tuning.jobs.retrieve(job.id)
            for event in reversed(client.fine_tuning.jobs.list_events(job.id, limit=100).data):
                if event.id not in seen:
                    seen.add(event.id)
                    print(event.message)
        for checkpoint in client.fine_tuning.jobs.checkpoints.list(job.id):
            print("checkpoint", checkpoint.fine_tuned_model_checkpoint)
        print(job.status, job.fine_tuned_model)


if __name__ == "__main__":
    main(*sys.argv[1:])
