"""A training by Run:ai's client, from its start to its pods."""

import os
import time

from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.models.training_creation_request import TrainingCreationRequest
from runai.models.training_spec_spec import TrainingSpecSpec
from runai.runai_client import RunaiClient

PROJECT = "default"  # or its number, 1
CLUSTER = "71f69d83-ba66-4822-adf5-55ce55efd210"  # any UUID: there is one cluster, and it is returned


def main() -> None:
    configuration = Configuration(
        client_id=os.environ["ACCESS_KEY"],
        client_secret=os.environ["SECRET_KEY"],
        runai_base_url=os.environ["TRAINYARD_URL"],
    )
    client = RunaiClient(ApiClient(configuration))
    spec = TrainingSpecSpec(command="sh", args="-c 'for step in 1 2 3; do echo step $step; sleep 1; done'")
    wanted = TrainingCreationRequest(name="count", projectId=PROJECT, clusterId=CLUSTER, spec=spec)
    workload = client.workloads.trainings.create_training1(wanted).data["workloadId"]
    phase = ""
    while phase not in ("Completed", "Failed", "Stopped"):
        time.sleep(1)
        phase = client.workloads.trainings.get_training(workload).data["actualPhase"]
    pods = client.workloads.pods.get_workload_pods(workload).data["pods"]
    print(workload, phase)
    print([each["name"] for each in pods])


if __name__ == "__main__":
    main()
