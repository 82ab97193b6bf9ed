"""Options of mpirun: how many ranks there are, what has no effect, and what the platform can't do."""

import shlex
import subprocess

import pytest

from app.compat.launchers import parse_launcher, ranks_per_node
from app.domain.errors import BadSpec

FIELD = "spec.command"


def parse(words):
    return parse_launcher(words, FIELD, {})


def launch(text):
    return parse(shlex.split(text))


@pytest.mark.parametrize(
    ("text", "nodes", "more", "expected"),
    [
        ("-np 8", 2, {}, "4"),
        ("-np 8", 2, {"slots": 4}, "4"),
        ("", 2, {"slots": 4}, "4"),
        ("", 2, {}, "auto"),
        ("", 2, {"usual": "1"}, "1"),
        ("-N 3", 2, {}, "3"),
        ("-N 0000000000003", 2, {}, "3"),
        ("--pernode", 2, {}, "1"),
        ("-np 6 --map-by ppr:3:node", 2, {}, "3"),
        ("-np 2 -H localhost", 1, {}, "2"),
        ("-H localhost:2", 1, {}, "2"),
        ("-np 2 -H localhost:4", 1, {}, "2"),
        ("-H localhost:4 -N 2", 1, {}, "2"),
    ],
)
def test_ranks_of_each_node(text, nodes, more, expected):
    assert ranks_per_node(launch(f"mpirun {text} ./a.out"), nodes, FIELD, **more) == expected


@pytest.mark.parametrize(
    ("text", "nodes", "slots", "why"),
    [
        ("-np 5", 2, None, "5 processes, and 2 nodes with 2 processes each make 4"),
        ("-np 1", 2, None, "1 processes, and 2 nodes with 1 processes each make 2"),
        ("-np 0", 1, None, "0 processes"),
        ("-np 8", 2, 2, "8 processes, and 2 nodes with 2 processes each make 4"),
        ("-N 4", 2, 2, "4 processes per node"),
        ("-np 6 -N 4", 2, None, "6 processes, and 2 nodes with 4 processes each make 8"),
        ("-H localhost:2", 2, None, "is one machine, and the job has 2 nodes"),
    ],
)
def test_numbers_that_the_request_contradicts_are_refused(text, nodes, slots, why):
    with pytest.raises(BadSpec, match=why) as refused:
        ranks_per_node(launch(f"mpirun {text} ./a.out"), nodes, FIELD, slots=slots)

    assert refused.value.field == FIELD


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--hostfile hosts", "there is no host file here"),
        ("-machinefile=/srv/hosts", "there is no host file here"),
        ("-H node-a:4,node-b:4", "the platform chooses nodes"),
        ("-np $N", "'\\$N' is no number"),
        ("-np -1", "is no number"),
        ("-N ٤", "is no number"),
        ("-wdir /srv", "ranks start in the directory of the job"),
        ("--tune file", "write --mca NAME VALUE"),
        ("--dvm x", "no option of mpirun that is known"),
    ],
)
def test_what_only_the_platform_knows_is_refused_with_a_way_out(options, why):
    for words in (["mpirun", *options.split(), "./a.out"], ["sh", "-c", f"mpirun {options} ./a.out"]):
        with pytest.raises(BadSpec, match=why) as refused:
            parse(words)
        assert refused.value.field == FIELD


@pytest.mark.parametrize("words", [["mpirun", "-np"], ["mpirun", "-mca", "a"]])
def test_option_without_a_value_is_refused(words):
    with pytest.raises(BadSpec, match="has no value"):
        parse(words)


def test_several_programs_are_refused():
    with pytest.raises(BadSpec, match="several programs"):
        launch("mpirun -np 1 ./a : -np 2 ./b")


@pytest.mark.parametrize("words", [["mpirun"], ["mpirun", "-np", "2"], ["bash", "-c", "mpirun -np 2"]])
def test_mpirun_without_a_program_is_refused(words):
    with pytest.raises(BadSpec, match="without a program"):
        ranks_per_node(parse(words), 1, FIELD)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--bind-to core", "-bind-to"),
        ("--map-by node", "-map-by"),
        ("--tag-output", "-tag-output"),
        ("--prefix /opt/mpi", "-prefix"),
        ("-x LD_LIBRARY_PATH=/opt", "-x LD_LIBRARY_PATH"),
        ("-x RANK=3", "-x RANK"),
        ("--mca plm_rsh_args '-p 22'", "-mca plm_rsh_args"),
        ("--mca btl_tcp_if_include eth0", "-mca btl_tcp_if_include"),
        ("--mca orte_base_help_aggregate 0", "-mca orte_base_help_aggregate"),
    ],
)
def test_option_that_changes_no_result_is_named(options, named):
    found = launch(f"mpirun {options} ./a.out")

    assert (found.command, [each.partition(":")[0] for each in found.ignored]) == (["./a.out"], [named])


@pytest.mark.parametrize(
    "options", ["-x A=1 -mca pml ob1", """-x "A=1" --mca 'pml' "ob1\"""", "-x 'A'=1 -mca pml ob1 -x B='2 3' -x HOME"]
)
def test_ranks_have_the_variables_that_a_shell_reads(options):
    """In real shells."""
    words = ["sh", "-c", f'mpirun {options} sh -c "echo \\$A \\$OMPI_MCA_pml $1" ', "sh", "of the shell"]

    ran = subprocess.run(parse(words).command, capture_output=True, text=True, check=True)

    assert ran.stdout == "1 ob1 of the shell\n"
