"""Command lines of mpirun: what each rank runs, how many there are, and what the platform can't do."""

import contextlib
import shlex
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.compat.launchers import parse_launcher, ranks_per_node
from app.compat.mpirun_texts import WORD, without_quotes
from app.domain.errors import BadSpec

FIELD = "spec.command"


def launch(text, **variables):
    return parse(shlex.split(text), **variables)


def parse(words, **variables):
    return parse_launcher(words, FIELD, variables)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("mpirun -np 4 python train.py --lr 1", "python train.py --lr 1"),
        ("/usr/local/bin/mpiexec -n 4 --allow-run-as-root --oversubscribe ./a.out", "./a.out"),
        ("mpirun --hostfile /etc/mpi/hostfile -np 4 -H localhost:4 ./a.out", "./a.out"),
        ("mpirun --bind-to none -map-by slot --map-by ppr:4:node -x PATH -x NCCL_DEBUG ./a.out -x", "./a.out -x"),
        (
            "mpirun -x A=1 -mca pml ob1 --mca btl ^openib ./a.out",
            "env A=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=^openib ./a.out",
        ),
        (
            "bash -c 'mpirun -np 4 python train.py --name $NAME \"a b\"'",
            "bash -c 'python train.py --name $NAME \"a b\"'",
        ),
        (
            "sh -ec 'mpirun -x \"A=$B c\" -mca pml ob1 ./a.out' name",
            "sh -ec 'env \"A=$B c\" OMPI_MCA_pml=ob1 ./a.out' name",
        ),
        ("bash -lc 'mpirun -np 4 \\\n  -x A \\\n  ./a.out'", "bash -lc ./a.out"),
        ("bash -c 'mpirun -np 4\\\n  -N 4\\\n ./a.out --x \\\n'", "bash -c './a.out --x'"),
        ("bash -c 'mpirun -np 4 python -c \"a\\\nb\"'", "bash -c 'python -c \"a\\\nb\"'"),
        ("bash -c 'mpirun ${OMPI} -np 4 ./a.out'", "bash -c '${OMPI} -np 4 ./a.out'"),
        ("env mpirun -np 4 ./a.out", "./a.out"),
        ("/usr/bin/env A=1 'B=2 3' mpirun -np 4 -x C=4 ./a.out", "env A=1 'B=2 3' C=4 ./a.out"),
        ("bash -c 'exec mpirun -np 4 ./a.out'", "bash -c ./a.out"),
        ("bash -c 'A=1 B=\"$C d\" mpirun -np 4 ./a.out'", "bash -c 'A=1 B=\"$C d\" ./a.out'"),
        ("bash -c 'A=1 exec env B=2 mpirun -np 4 -x C=3 ./a.out'", "bash -c 'A=1 env B=2 C=3 ./a.out'"),
        ("bash -c 'cd src && mpirun -np 4 ./a.out'", "bash -c 'cd src && ./a.out'"),
        ("bash -c 'cd /a; cd \"b c\"\n A=1 mpirun ./a.out'", "bash -c 'cd /a; cd \"b c\"\n A=1 ./a.out'"),
    ],
)
def test_mpirun_and_what_the_platform_does_are_left_out(text, command):
    found = launch(text)

    assert (found.by_mpi, shlex.join(found.command)) == (True, shlex.join(shlex.split(command)))
    assert found.ignored == []


@pytest.mark.parametrize(
    "text",
    [
        "python train.py",
        "bash run.sh",
        "sh -c",
        "bash -x",
        "env A=1 python mpirun",
        "bash -c 'echo mpirun; pip install mpirun'",
        "bash -c 'python -c \"a; mpirun b\"'",
        "bash -c 'A=1 python train.py # mpirun'",
        "bash -c 'cd x && python train.py'",
        "bash -c 'which mpirun && type mpirun && command -v mpirun && python train.py --launcher mpirun'",
        "bash -c 'if [ -x /usr/bin/mpirun ]; then python train.py; fi'",
        "bash -c 'cat <<E > hosts; python train.py\nmpirun x\nE\npython a.py'",
        "bash -c \"./start --with 'mpirun'\"",
        "bash -c \"nohup ./start 'mpirun'; nice -n 5 sort 'mpirun'\"",
        "bash -c 'python x --launcher=${L:-mpirun}'",
        "env -S 'python train.py --with mpirun'",
        "bash -c 'M=mpirun; python train.py'",
        "bash -c 'M=/opt/mpirun.txt; cat $M'",
        "bash -c 'echo $(which mpirun); python train.py'",
        "ssh host 'python train.py mpirun'",
        "env -S 'python \"it'",
        'env -S "it\'s python train.py"',
        "bash -c 'python train.py --launcher=mpirun --out=$launcher'",
        "bash -c 'LOG=mpirun/log; python x > $LOG'",
    ],
)
def test_other_commands_stay_as_they_are(text):
    found = launch(text)

    assert (found.by_mpi, found.is_longer, found.command) == (False, False, shlex.split(text))


@pytest.mark.parametrize(
    "end",
    [
        "; echo done",
        "&& echo",
        "| tee log",
        "> log",
        "2>&1",
        "\necho done",
        "\\\\\necho done",
        "$(cat x)",
        "`cat x`",
        "# note",
        "'",
    ],
)
def test_longer_text_is_each_nodes_own(end):
    words = ["bash", "-c", f"mpirun -np 2 ./a.out {end}"]
    found = parse(words)

    assert (found.by_mpi, found.is_longer, found.command) == (False, True, words)
    with pytest.raises(BadSpec, match="let mpirun be the only command"):
        ranks_per_node(found, 2, FIELD)


@pytest.mark.parametrize(
    "text",
    [
        "pip install x && mpirun -np 2 ./a.out",
        "if true; then mpirun ./a.out; fi",
        "cd - && mpirun ./a.out",
        "cd x || exit 1; mpirun ./a.out",
        "export A=1; /opt/bin/mpirun ./a.out",
        "A=1 nohup mpirun ./a.out",
        "(mpirun ./a.out)",
        "cd x && A=1 mpirun ./a.out && echo",
        "set -e\nexec mpirun ./a.out",
        "pip install x && \\\nmpirun -np 4 ./a.out",
        "set -e; mpirun\\\n -np 2 ./a.out",
        "env -i A=1 mpirun ./a.out",
        "env -u B mpirun ./a.out",
        "nohup 'mpirun' -np 2 ./a.out",
        'A=1 nohup "/opt/bin/mpirun" ./a.out &',
        "if true; then exec -a x 'mpirun' ./a.out; fi",
        "time -p 'mpirun' ./a.out",
        "sudo -E -u app nice -n 5 timeout -k 5 10m numactl -N 0 env -u B A=1 m'pi'run ./a.out",
        "taskset -c 0-3,8 'mpirun' ./a.out",
        "${M:-mpirun} -np 2 ./a.out",
        '"${MPI_HOME:+$MPI_HOME/bin/}mpirun" ./a.out',
        "timeout 1h mpirun ./a.out",
        "! mpirun ./a.out",
        "exec -a x mpirun ./a.out",
        "eval mpirun ./a.out",
        "eval 'cd x; mpirun ./a.out'",
        "time -p mpirun ./a.out",
        "x=`mpirun ./a.out`",
        'echo "$(mpirun ./a.out)"',
        "set -x; '/opt/my dir/mpirun' ./a.out",
        "set -x; bash -o pipefail -c 'mpirun ./a.out'",
        "bash <<E\nmpirun ./a.out\nE",
        "cat <<E\nx\nE\nmpirun ./a.out | tee log",
        "cat <<E\nmpirun ./a.out | tee log",
        'ID="$(date +%N)" mpirun ./a.out',
        'cd "$(mktemp -d)" && mpirun ./a.out',
        'A="`date`" mpirun ./a.out',
        "A=`date` mpirun ./a.out",
        "A=$RANDOM mpirun ./a.out",
        "A=${SRANDOM} env B=1 mpirun ./a.out",
        "env A=x-$$ mpirun ./a.out",
        "mpirun -x A=$RANDOM ./a.out",
        "mpirun ./a.out --directory \"it's $(mktemp -d) that's\"",
        "M=mpirun; $M ./a.out",
        'export M="/opt/bin/mpirun -np 2"; exec ${M} ./a.out',
        'M=(mpirun -np 2); "${M[@]}" ./a.out',
        "M=$(which mpirun)\n$M ./a.out",
        "$(which mpirun) -np 2 ./a.out",
        "A=1 `command -v mpirun` ./a.out",
        "nohup env -S 'mpirun ./a.out'",
        "env -S \"sh -c 'mpirun -np 4 x'\"",
        "env '-Snohup it\\'s' mpirun x",
        "if true; then $(which mpirun) ./a.out; fi",
        "for n in 1 2; do A=1 `which mpirun` ./a.out; done",
        "! $(which mpirun) ./a.out",
        "{ $(which mpirun) ./a.out; }",
        "time -p $(which mpirun) ./a.out",
        "timeout -k 5 10m numactl --cpunodebind 0 $(which mpirun) ./a.out",
        "cat hosts | xargs -I{} ssh {} 'mpirun ./a.out'",
    ],
)
def test_text_that_starts_mpirun_among_others_is_each_nodes_own(text):
    found = launch(shlex.join(["bash", "-c", text]))

    assert (found.by_mpi, found.is_longer, found.command) == (False, True, ["bash", "-c", text])
    with pytest.raises(BadSpec, match="let mpirun be the only command"):
        ranks_per_node(found, 2, FIELD)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("RANK=3 mpirun ./a.out", "RANK"),
        ("env LD_LIBRARY_PATH=/opt mpirun ./a.out", "LD_LIBRARY_PATH"),
        ("OMPI_MCA_plm_rsh_agent=ssh mpirun ./a.out", "OMPI_MCA_plm_rsh_agent"),
    ],
)
def test_variable_of_the_platform_before_mpirun_is_named(text, named):
    found = launch(shlex.join(["sh", "-c", text]))

    assert (found.command, [each.partition(":")[0] for each in found.ignored]) == (["sh", "-c", "./a.out"], [named])


def test_what_shells_read_alike_each_time_stays_in_the_text():
    text = "A='$(date) $$' B=$RANDOMS C=\\$$D mpirun -x E=\"\\$RANDOM\" sh -c 'echo $RANDOM'"

    found = parse(["bash", "-c", text])

    assert found.by_mpi
    assert found.command[-1] == text.replace('mpirun -x E="\\$RANDOM"', 'env E="\\$RANDOM"')


@pytest.mark.parametrize(
    "command",
    [
        "env -i A=1 mpirun -np 2 ./a.out",
        "timeout 1h mpirun ./a.out",
        "bash -l -c 'mpirun ./a.out'",
        "bash -c -x -- 'mpirun ./a.out'",
        "bash -o pipefail -c 'cd x; mpirun ./a.out'",
        "env A=1 bash -c 'mpirun ./a.out'",
        "env -S 'mpirun -np 2 ./a.out'",
        "env -iS'A=1 /opt/bin/mpirun ./a.out'",
        "env --split-string='bash -c' 'mpirun ./a.out'",
        "ssh host mpirun ./a.out",
        "ssh -p 22 host 'cd x && mpirun ./a.out'",
        "xargs -a hosts mpirun ./a.out",
        "su app -c 'mpirun ./a.out'",
    ],
)
def test_mpirun_that_another_program_starts_stays_each_nodes_own(command):
    found = launch(command)

    assert (found.by_mpi, found.is_longer) == (False, True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("bash -c '$M -np 2 ./a.out'", "mpirun"),
        ("bash -c 'pip install x && exec ${M} ./a.out'", "/opt/bin/mpirun -np 2"),
        ("bash -c 'nohup \"$M\" ./a.out'", "mpirun"),
        ("bash -lc -- 'eval \"$M\"'", "cd x; mpirun ./a.out"),
        ("env A=1 bash -c '$M ./a.out'", "mpirun"),
        ("bash -c \"sh -c '\\$M ./a.out'\"", "mpirun"),
        ("$(M) -np 2 ./a.out", "mpirun"),
        ("bash -c '$(M)'", "nohup mpirun ./a.out"),
        (f"bash -c '{'$M ' * 40}'", "mpirun" + " " * 30_000),
    ],
)
def test_variable_of_the_job_may_be_mpirun(text, value):
    found = launch(text, M=value)

    assert (found.by_mpi, found.is_longer, found.command) == (False, True, shlex.split(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("bash -c './a.out $MORE'", "mpirun"),
        ("bash -c 'python train.py --launcher $M; echo $M'", "mpirun"),
        ("bash -c './start --with \"$M\"'", "mpirun"),
        ("bash -c 'tail -f $M'", "/tmp/mpirun.log"),
        ("./a.out $M", "mpirun"),
        ("torchrun train.py $(M)", "mpirun"),
    ],
)
def test_variable_with_mpirun_that_starts_nothing_has_no_effect(text, value):
    found = launch(text, M=value)

    assert (found.by_mpi, found.is_longer) == (False, False)


def test_ranks_start_where_and_with_what_the_shell_would_start_mpirun(tmp_path):
    """In real shells."""
    (tmp_path / "a b").mkdir()
    text = 'cd "a b" && A="$X y" B=$X exec env C=2 mpirun -np 2 sh -c \'echo "$PWD" "$A" "$B" "$C"\''

    ran = subprocess.run(
        parse(["sh", "-c", text]).command,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "X": "1 2"},
    )

    assert ran.stdout == f"{tmp_path}/a b 1 2 y 1 2 2\n"


@pytest.mark.parametrize(
    "text",
    [
        *("\n" * 60_000, ";" * 60_000, "{ " * 30_000, "env " * 15_000, "A=1 " * 15_000, "cd x;" * 12_000, "'" * 60_000),
        *("time -p 1 " * 6_000, "; if true " * 6_000, "timeout 1 A=1 " * 4_000),
        *("A=env " * 10_000, "A=do " * 12_000, "A={ " * 15_000, "<<E\n" * 15_000, '"$(a/"' * 10_000, "eval '" * 10_000),
    ],
)
def test_long_texts_take_no_time(text):
    began = time.process_time()

    parse(["sh", "-c", text + "x"])

    assert time.process_time() - began < 2


@pytest.mark.parametrize(("uses", "is_longer"), [(80, False), (1_300, True)])
def test_text_that_variables_make_long_takes_no_time(uses, is_longer):
    """Beyond 64 Ki characters mpirun counts wherever it stands; here it is only printed."""
    began = time.process_time()

    found = launch(f"sh -c 'echo {'$M' * uses}'", M="x" + " mpirun" * 100)

    assert found.is_longer is is_longer
    assert time.process_time() - began < 2


def test_long_words_in_quotes_take_no_time():
    began = time.process_time()

    inner = parse(["env", "sh", "-c", f"sh -c '{'a ' * 100_000}; mpirun ./a.out'"])
    argument = parse(["sh", "-c", f"mpirun './a.out {'a ' * 200_000}'"])

    assert (inner.is_longer, argument.by_mpi) == (True, True)
    assert time.process_time() - began < 2


_WORD = ("a", " ", "$", "\n", "é", *"'\"\\")


@settings(max_examples=60)
@given(st.lists(st.sampled_from(_WORD), max_size=12).map("".join).filter(WORD.fullmatch))
def test_quotes_are_removed_as_shlex_does(word):
    assert without_quotes(word) == "".join(shlex.split(word))


_SHELL = ("mpirun", "env ", "-S", "sh ", "-c ", "ssh ", "eval ", "A=", "<<E", *"'\"\\\n $()`;")


@settings(max_examples=60)
@given(st.lists(st.sampled_from(_SHELL), max_size=14).map("".join))
def test_no_text_of_a_shell_raises_anything_but_a_refusal(text):
    for words in (["bash", "-c", text], ["env", "-S", text], ["eval", text], ["sh", "-c", f"env -S {text}"]):
        with contextlib.suppress(BadSpec):
            parse(words)


@given(st.text(max_size=40), st.sampled_from(["mpirun ", "mpirun -np ", "mpirun -x ", "mpirun -mca a ", ""]))
def test_any_text_is_parsed_or_refused(text, start):
    for words in (["sh", "-c", start + text], [*start.split(), *text.split()], ["mpirun", text, text]):
        with contextlib.suppress(BadSpec):
            found = parse(words)
            assert found.by_mpi or found.command == words or found.command[:1] == ["python"]
            ranks_per_node(found, 2, FIELD)
