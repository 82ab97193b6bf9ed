"""A training job by Huawei Cloud's SDK for ModelArts, from its start to its log."""

import os
import time
from typing import Any

from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkmodelarts.v1 import ModelArtsClient, model

PROJECT = "default"  # what ModelArts calls project_id is the name of a project


def main() -> None:
    credentials = BasicCredentials(os.environ["ACCESS_KEY"], os.environ["SECRET_KEY"], PROJECT)
    endpoint = os.environ["TRAINYARD_URL"]
    client: Any = ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(endpoint).build()
    job = model.Job(
        kind="job",
        metadata=model.JobMetadata(name="count", description="three steps"),
        algorithm=model.JobAlgorithm(command="for step in 1 2 3; do echo step $step; sleep 1; done"),
        spec=model.Spec(resource=model.SpecResource(flavor_id="trainyard.cpu.1", node_count=1)),
    )
    job_id = client.create_training_job(model.CreateTrainingJobRequest(body=job)).metadata.id
    phase = ""
    while phase not in ("Completed", "Failed", "Terminated"):
        time.sleep(1)
        shown = client.show_training_job_details(model.ShowTrainingJobDetailsRequest(training_job_id=job_id))
        phase = shown.status.phase
    asked = model.ShowTrainingJobLogsPreviewRequest(training_job_id=job_id, task_id="worker-0")
    print(job_id, phase)
    print(client.show_training_job_logs_preview(asked).content)
    client._http_client._executor.shutdown()  # noqa: SLF001 – the SDK ends its threads nowhere else


if __name__ == "__main__":
    main()
