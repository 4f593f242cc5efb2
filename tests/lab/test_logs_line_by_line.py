"""Single lines of logs and of job scripts, written as frameworks and sbatch(1) have them."""

from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.interop.shell.slurm import slurm_options, slurm_variables
from flopcast.lab.logs.facts import facts_of_line, memory_of_line, rank_inside, split_rank

LAWS = settings(max_examples=30)
MIB, GIB = 2**20, 2**30
ALL = ("allocated_bytes", "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes")
four = st.tuples(*(st.integers(1, 200_000) for _ in range(4)))


@LAWS
@given(sizes=four, rank=st.integers(0, 4095))
def test_megatrons_memory_line_holds_four_sizes_in_mib(sizes, rank):
    one, two, three, four_ = sizes
    line = (
        f"[Rank {rank}] (after 2 iterations) memory (MB) | allocated: {one}.5 | max allocated: {two}.0"
        f" | reserved: {three}.0 | max reserved: {four_}.0"
    )

    found = memory_of_line(line)

    assert found == dict(zip(ALL, [(one + 0.5) * MIB, two * MIB, three * MIB, four_ * MIB], strict=True))
    assert rank_inside(line) == rank


@LAWS
@given(sizes=four)
def test_deepspeeds_memory_line_holds_four_sizes_in_gib(sizes):
    one, two, three, four_ = sizes
    line = f"MA {one}.25 GB         Max_MA {two}.0 GB         CA {three}.0 GB         Max_CA {four_} GB "

    assert memory_of_line(line) == dict(
        zip(ALL, [(one + 0.25) * GIB, two * GIB, three * GIB, four_ * GIB], strict=True)
    )


@all_cases(
    ("line", "expected"),
    [
        ("RunningAvgSamplesPerSec=1.0, MemAllocated=12.5GB, MaxMemAllocated=30.0GB",
         {"allocated_bytes": 12.5 * GIB, "max_allocated_bytes": 30 * GIB}),
        ("step: 10  loss:  5.1  memory: 42.50GiB(53.68%)  tps: 6,000", {"max_reserved_bytes": 42.5 * GIB}),
        ("validate step: 10  loss:  5.1  memory: 42.50GiB(53.68%)", {}),
        ("MA 0 GB  Max_MA 1 GB  CA 0 GB  Max_CA 2 GB",
         {"max_allocated_bytes": GIB, "max_reserved_bytes": 2 * GIB}),
        ("memory (MB) of nothing", {}),
        ("iteration 10/100 | elapsed time per iteration (ms): 900.1", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_memory_is_read_from_lines_that_report_it_and_nothing_is_no_memory(line, expected):
    assert memory_of_line(line) == expected


@all_cases(
    ("line", "facts"),
    [
        ("using world size: 64, data-parallel size: 8", {"world_size": 64}),
        ("  world_size ...................................... 512", {"world_size": 512}),
        ("world size: 16", {"world_size": 16}),
        ("[2024-01-01 10:00:00,000] [INFO] [config.py:1001:print]   world_size ................... 1", {}),
        (':::MLLOG {"key": "global_batch_size", "value": 1152}', {"global_batch": 1152}),
        ('0: :::MLLOG {"key": "max_sequence_length", "value": 8192}', {"sequence_length": 8192}),
        (':::MLLOG {"key": "global_batch_size", "value": true}', {}),
        (':::MLLOG {"key": "global_batch_size", "val', {}),
        ("initializing: GLOBAL_RANK: 3, MEMBER: 4/8", {"world_size": 8}),
        ("  global_batch_size ............................... 1536", {"global_batch": 1536}),
        ("  train_batch_size ............. 256", {"global_batch": 256}),
        ("setting global batch size to 192", {"global_batch": 192}),
        ("Total train batch size (w. parallel & accumulation) = 1,024", {"global_batch": 1024}),
        ("  micro_batch_size ................................ 4", {"micro_batch": 4}),
        ("  train_micro_batch_size_per_gpu  8", {"micro_batch": 8}),
        ("Instantaneous batch size per device = 2", {"micro_batch": 2}),
        ("  seq_length ...................................... 2048", {"sequence_length": 2048}),
        ("local batch size 2, global batch size 128, sequence length 8192, total steps 1000",
         {"global_batch": 128, "micro_batch": 2, "sequence_length": 8192}),
        ("data parallel size: 4", {"data_parallel": 4}),
        ("  world_size .......... 0", {}),
        ("  padded_seq_length_of .. 8", {}),
        (f"  world_size .......... {10**15}", {}),
        ("no number: using world size: many", {}),
    ],
)  # fmt: skip
def test_sizes_of_a_job_are_read_as_each_framework_prints_them(line, facts):
    assert facts_of_line(line) == facts


@LAWS
@given(rank=st.integers(0, 9_999_999), rest=st.sampled_from(["step: 10  loss: 5.1", "memory (MB)", "x: 1"]))
def test_a_launchers_rank_is_taken_off_and_the_rest_stays(rank, rest):
    for before in (f"[rank{rank}]:", f"[default{rank}]:", f"{rank}: ", f"host-worker-{rank}: "):
        assert split_rank(before + rest) == (rank, rest), before


@all_cases(
    "line",
    ["12:30:01 step", "[INFO] step: 1", "step: 10", "[2026-01-01] [rank 3]", "worker: 3", "12345678: x"],
)
def test_what_is_no_rank_stays_on_the_line(line):
    assert split_rank(line) == (None, line)


@all_cases(
    ("lines", "options"),
    [
        ("#SBATCH --nodes=4", {"nodes": "4"}),
        ("#SBATCH --nodes 4", {"nodes": "4"}),
        ("#SBATCH -N 4", {"nodes": "4"}),
        ("#SBATCH -N4", {"nodes": "4"}),
        ("#SBATCH -N 4 -n 32", {"nodes": "4", "ntasks": "32"}),
        ("#SBATCH --nodes=2\n#SBATCH --nodes=8", {"nodes": "8"}),
        ("#SBATCH --gpus-per-node=8", {"gpus-per-node": "8"}),
        ("#SBATCH --gpus-per-node=a100:4", {"gpus-per-node": "4"}),
        ("#SBATCH --gres=gpu:8", {"gpus-per-node": "8"}),
        ("#SBATCH --gres=gpu:h100:8", {"gpus-per-node": "8"}),
        ("#SBATCH --gres=gpu:4 --gpus-per-node=2", {"gpus-per-node": "2"}),
        ("#SBATCH --gres=gpu:8(S:0-1)", {"gpus-per-node": "8"}),
        ("#SBATCH --ntasks-per-node=8(x4)", {"ntasks-per-node": "8"}),
        ("#SBATCH -G 16", {"gpus": "16"}),
        ("#SBATCH --nodes=4 # and not --nodes=8", {"nodes": "4"}),
        ("##SBATCH --nodes=4", {}),
        ("# SBATCH --nodes=4", {}),
        ("echo '#SBATCH --nodes=4'", {}),
    ],
)
def test_options_are_those_that_sbatch_takes(lines, options):
    found = slurm_options("#!/bin/bash\n" + lines + "\n")

    told = {
        key: found[key].text
        for key in ("nodes", "ntasks", "gpus-per-node", "ntasks-per-node", "gpus")
        if key in found
    }
    assert told == options


def test_an_option_stands_on_the_line_of_the_last_word_for_it():
    found = slurm_options("#!/bin/bash\n#SBATCH -J run\n#SBATCH -N 2\nx=1\n#SBATCH -N 8\n")

    assert (found["job-name"].line, found["nodes"].line) == (2, 5)


@LAWS
@given(nodes=st.integers(1, 4096), tasks=st.integers(1, 16), gpus=st.integers(1, 16))
def test_a_job_finds_what_it_asked_for_in_its_variables(nodes, tasks, gpus):
    text = f"#SBATCH -N {nodes} --ntasks-per-node={tasks}\n#SBATCH --gres=gpu:{gpus}\n"

    variables = {name: value[0].text for name, value in slurm_variables(slurm_options(text)).items()}

    assert variables == {
        "HOME": "~",
        "SLURM_NNODES": f"{nodes}",
        "SLURM_JOB_NUM_NODES": f"{nodes}",
        "SLURM_NTASKS_PER_NODE": f"{tasks}",
        "SLURM_GPUS_PER_NODE": f"{gpus}",
        "SLURM_GPUS_ON_NODE": f"{gpus}",
    }
