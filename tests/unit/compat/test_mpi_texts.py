"""mpirun in the words of Run:ai and ModelArts: a job that is started by MPI, shown again as it was sent."""

from typing import Any

import pytest

from app.compat.modelarts.from_native import job_of
from app.compat.modelarts.requests import CreateSchema
from app.compat.modelarts.to_native import to_native as modelarts_to_native
from app.compat.runai import from_native as runai
from app.compat.runai.documents.requests import DistributedSchema, TrainingSchema
from app.compat.runai.to_native import to_native as runai_to_native
from app.domain.errors import BadSpec
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from tests.unit.compat import test_modelarts as modelarts
from tests.unit.compat.test_runai import CLUSTER, OWNER, details_of, divided, ignored_fields, translated

BY_MPI = {"launcher": "mpi"}
HOROVOD = "mpirun -np 4 --allow-run-as-root -x NCCL_DEBUG=INFO --hostfile /etc/mpi/hostfile python train.py"


def started(native: Any) -> tuple[Any, Any, Any]:
    """(command, processes of each node, nodes) of a job that mpirun starts."""
    framework = native.document["training_config"]["framework"]
    assert framework["config"] == BY_MPI
    validated(SubmitJobSchema(), native.document)
    per_node = framework["distributed"]["config"]["num_proc_per_node"]
    return framework["custom_command"], per_node, native.document["resource_config"].get("node_count", 1)


class TestRunAi:
    def test_launcher_and_its_workers_are_nodes_with_slots(self) -> None:
        spec = {
            "distributedFramework": "MPI",
            "numWorkers": 2,
            "slotsPerWorker": 2,
            "compute": {"gpuDevicesRequest": 2},
        }
        master = {"command": "bash", "args": f"-c '{HOROVOD}'", "compute": {"cpuCoreRequest": 1}}

        native = divided({"command": "/usr/sbin/sshd", "args": "-D", **spec}, masterSpec=master)

        assert started(native) == (["bash", "-c", "env NCCL_DEBUG=INFO python train.py"], "2", 2)
        assert ignored_fields(native) == ["masterSpec.compute", "spec.args", "spec.command"]
        returned = runai.training_of(details_of(native), OWNER)
        assert (returned["spec"]["slotsPerWorker"], returned["masterSpec"]["args"]) == (2, master["args"])

    def test_variables_of_the_launcher_reach_the_ranks(self) -> None:
        native = divided(
            {"command": "mpirun", "args": "./a.out", "distributedFramework": "MPI", "numWorkers": 3},
            masterSpec={"environmentVariables": [{"name": "A", "value": "1"}]},
        )

        assert started(native) == (["./a.out"], "1", 3)
        assert native.document["training_config"]["environment"] == {"A": "1"}
        assert native.warnings == []

    def test_training_that_is_mpirun_is_started_on_one_node(self) -> None:
        native = translated({"command": HOROVOD, "compute": {"gpuDevicesRequest": 4}})

        assert started(native) == (["env", "NCCL_DEBUG=INFO", "python", "train.py"], "4", 1)
        returned = runai.training_of(details_of(native), OWNER)
        assert returned["spec"]["command"] == HOROVOD

    @pytest.mark.parametrize(
        "spec",
        [
            {"command": "bash", "args": "-c 'mpirun ./a.out | tee log'"},
            {"command": "mpirun ./a.out", "completions": 2},
            {"command": "mpirun ./a.out", "image": "hub.example.com/mpi:1"},
        ],
    )
    def test_training_runs_mpirun_itself_where_the_platform_can_not(self, spec: Any) -> None:
        body = {"name": "t", "projectId": "default", "clusterId": CLUSTER, "spec": spec}
        native = runai_to_native(validated(TrainingSchema(), body), "t", may_read=lambda _: True, uses_images=True)

        assert "config" not in native.document["training_config"]["framework"]
        assert ("image" in native.document["resource_config"]) is ("image" in spec)

    def test_workers_have_the_programs_of_their_nodes(self) -> None:
        spec = {"distributedFramework": "MPI", "command": "mpirun ./a.out", "image": "hub.example.com/mpi:1"}
        body = {"name": "t", "projectId": "default", "clusterId": CLUSTER, "spec": spec}
        native = runai_to_native(
            validated(DistributedSchema(), body), "t", may_read=lambda _: True, uses_images=True, distributed=True
        )

        assert native.warnings == ["spec.image: mpirun starts ranks with the programs of the nodes"]
        assert started(native) == (["./a.out"], "1", 1)

    @pytest.mark.parametrize(
        ("spec", "master", "field"),
        [
            ({"command": "python x.py"}, {}, "spec.command"),
            ({}, {"command": "bash", "args": "run.sh"}, "masterSpec.command"),
            ({"command": "bash", "args": "-c 'mpirun ./a; ./b'"}, {}, "spec.command"),
            ({"command": "mpirun -np 3 ./a", "numWorkers": 2}, {}, "spec.command"),
            ({"numWorkers": 2, "slotsPerWorker": 2}, {"command": "mpirun -np 2 ./a"}, "masterSpec.command"),
            ({}, {"command": "mpirun --hostfile mine ./a"}, "masterSpec.command"),
            ({}, {"command": "mpirun '"}, "masterSpec.command"),
        ],
    )
    def test_what_the_workers_do_not_fit_is_refused(self, spec: Any, master: Any, field: str) -> None:
        with pytest.raises(BadSpec) as refused:
            divided({"distributedFramework": "MPI", **spec}, masterSpec=master)

        assert refused.value.field == field

    def test_launcher_that_has_mpirun_by_a_variable_is_refused(self) -> None:
        variables = [{"name": "MPI", "value": "mpirun"}]
        with pytest.raises(BadSpec, match="has to be one command of mpirun"):
            divided({"distributedFramework": "MPI", "command": "$(MPI) ./a.out", "environmentVariables": variables})

    def test_slots_have_no_effect_without_mpi(self) -> None:
        assert ignored_fields(divided({"slotsPerWorker": 2})) == ["spec.slotsPerWorker"]

    def test_native_job_is_shown_as_it_could_be_sent(self) -> None:
        native = divided({"distributedFramework": "MPI", "command": HOROVOD, "numWorkers": 2})
        details = details_of(native._replace(foreign={}))

        shown = runai.training_of(details, OWNER)["spec"]

        named = {name: shown[name] for name in ("command", "args", "distributedFramework", "numWorkers")}
        again = divided(named)
        assert (named["distributedFramework"], named["numWorkers"]) == ("MPI", 2)
        assert started(again) == started(native)

    def test_native_job_with_a_rank_for_each_device_is_shown_with_its_slots(self) -> None:
        spec = {"distributedFramework": "MPI", "command": "mpirun ./a.out", "numWorkers": 2}
        native = divided({**spec, "compute": {"gpuDevicesRequest": 4}})
        del native.document["training_config"]["framework"]["distributed"]

        shown = runai.training_of(details_of(native._replace(foreign={})), OWNER)["spec"]

        assert (shown["command"], shown["slotsPerWorker"]) == ("mpirun", 4)


CODE = {"code_dir": "file:///team/src/"}


def nodes(count: int, flavor: str = "trainyard.nvidia-a100.4") -> dict[str, Any]:
    return {"spec": {"resource": {"flavor_id": flavor, "node_count": count}}}


class TestModelArts:
    def test_command_of_mpirun_counts_the_processes_of_all_nodes(self) -> None:
        parameters = [{"name": "lr", "value": "1 e"}]
        native = modelarts.translated({**CODE, "command": HOROVOD, "parameters": parameters}, **nodes(2))

        assert started(native) == (["bash", "-c", "env NCCL_DEBUG=INFO python train.py '--lr=1 e'"], "2", 2)
        job = job_of(modelarts.details_of(native), (), modelarts.CLUSTER)
        assert (job["algorithm"]["command"], job["spec"]["resource"]["node_count"]) == (HOROVOD, 2)

    def test_directory_and_variables_before_mpirun_are_those_of_the_ranks(self) -> None:
        command = f"cd src && A=1 exec {HOROVOD}"

        native = modelarts.translated({**CODE, "command": command}, **nodes(2))

        assert started(native) == (["bash", "-c", "cd src && A=1 env NCCL_DEBUG=INFO python train.py"], "2", 2)
        job = job_of(modelarts.details_of(native), (), modelarts.CLUSTER)
        assert job["algorithm"]["command"] == command

    def test_without_a_number_there_is_a_rank_for_each_device(self) -> None:
        native = modelarts.translated({**CODE, "command": "mpirun ./a.out"}, **nodes(1))

        assert started(native) == (["bash", "-c", "./a.out"], "auto", 1)

    @pytest.mark.parametrize("engine", [{"engine_name": "Horovod"}, {"engine_id": "mpi-0.16.2-python3.6"}])
    def test_engines_of_mpi_start_the_boot_file_with_mpirun(self, engine: Any) -> None:
        algorithm = {**CODE, "boot_file": "file:///team/src/train.py", "engine": engine}
        native = modelarts.translated(algorithm, **nodes(2))

        framework = native.document["training_config"]["framework"]
        assert (framework["config"], framework["custom_script_path"]) == (BY_MPI, "/team/src/train.py")
        assert framework["distributed"] == {"config": {"num_proc_per_node": "auto"}}
        validated(SubmitJobSchema(), native.document)

    def test_image_has_its_own_mpirun_on_one_node(self) -> None:
        algorithm = {**CODE, "command": HOROVOD, "engine": {"image_url": "hub.example.com/mpi:1"}}

        def with_images(count: int) -> Any:
            body = {"kind": "job", "metadata": {"name": "x"}, "algorithm": algorithm, **nodes(count)}
            return modelarts_to_native(
                validated(CreateSchema(), body), modelarts.NODES, lambda _: True, uses_images=True
            )

        one, two = with_images(1), with_images(2)

        assert one.document["training_config"]["framework"]["custom_command"][-1] == HOROVOD
        assert one.document["resource_config"]["image"]["reference"] == "hub.example.com/mpi:1"
        assert started(two)[1:] == ("2", 2)
        assert two.warnings == ["algorithm.engine.image_url: mpirun starts ranks with the programs of the nodes"]

    @pytest.mark.parametrize(
        "command",
        [
            "mpirun -np 3 ./a.out",
            "pip install x && mpirun ./a.out",
            "mpirun -H a,b ./a.out",
            "mpirun ./a.out && echo",
            "mpirun",
            "mpirun -np $N x",
        ],
    )
    def test_command_that_the_nodes_do_not_fit_is_refused(self, command: str) -> None:
        with pytest.raises(BadSpec) as refused:
            modelarts.translated({**CODE, "command": command}, **nodes(2))

        assert refused.value.field == "algorithm.command"

    @pytest.mark.parametrize("command", ["$MPI -np 2 ./a.out", "nohup 'mpirun' ./a.out"])
    def test_command_that_has_mpirun_by_a_variable_or_in_quotes_is_refused_on_several_nodes(self, command: str) -> None:
        algorithm = {**CODE, "command": command, "environments": {"MPI": "mpirun"}}
        with pytest.raises(BadSpec, match="mpirun is a part of a longer text"):
            modelarts.translated(algorithm, **nodes(2))

        one = modelarts.translated(algorithm, **nodes(1))
        assert one.document["training_config"]["framework"]["custom_command"][-1] == command

    def test_command_of_tasks_is_each_tasks_own(self) -> None:
        native = modelarts.translated({**CODE, "command": "mpirun -np 2 ./a.out"}, tasks=[{"role": "a"}, {"role": "b"}])

        assert [task["training_config"]["custom_command"][-1] for task in native.document["tasks"]] == [
            "mpirun -np 2 ./a.out"
        ] * 2
        validated(SubmitJobSchema(), native.document)

    def test_native_job_is_shown_as_it_could_be_sent(self) -> None:
        native = modelarts.translated({**CODE, "command": HOROVOD}, **nodes(2))
        shown = job_of(modelarts.details_of(native._replace(foreign={})), (), modelarts.CLUSTER)

        again = modelarts.translated({"command": shown["algorithm"]["command"]}, **nodes(2))
        assert started(again)[1:] == ("2", 2)
        assert shown["algorithm"]["command"].startswith("mpirun -np 4 bash -c ")

    def test_native_script_is_shown_with_mpirun(self) -> None:
        algorithm = {**CODE, "boot_file": "file:///team/src/train.py", "engine": {"engine_name": "MPI"}}
        native = modelarts.translated(algorithm, **nodes(2))

        shown = job_of(modelarts.details_of(native._replace(foreign={})), (), modelarts.CLUSTER)["algorithm"]

        assert (shown["code_dir"], shown["command"]) == (CODE["code_dir"], "mpirun python /team/src/train.py")
