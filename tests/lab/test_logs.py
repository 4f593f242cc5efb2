"""Training logs of every framework: steps, memory and sizes as a person reads them off the same file.

The logs in tests/lab/logs/ are written for these tests, in the formats and with the values that published
logs of the frameworks have; numbers below are read off them, or follow by hand.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.errors import SpecError
from flopcast.lab.logs.formats import FORMATS
from flopcast.lab.logs.reader import read_log, read_log_file

LOGS = Path(__file__).parent / "logs"
MIB, GIB = 2**20, 2**30


def log_of(name):
    return read_log_file(LOGS / f"{name}.log")


def megatron_line(step, ms, batch=256, rate="150.0"):
    """One iteration as Megatron-LM prints it."""
    return (
        f" [2025-01-01 10:00:00] iteration {step:8d}/     100 | consumed samples: {step * batch:12d} |"
        f" elapsed time per iteration (ms): {ms} | throughput per GPU (TFLOP/s/GPU): {rate} |"
        f" learning rate: 3.0E-05 | global batch size: {batch:5d} | lm loss: 9.1E+00 |\n"
    )


def told(text):
    """The one fault of a text that is no log."""
    with pytest.raises(SpecError) as caught:
        read_log(text, "train.log")
    (problem,) = caught.value.problems
    return problem


@all_cases(
    ("name", "framework", "steps"),
    [
        ("megatron-lm", "megatron-lm", list(range(1, 13))),
        ("megatron-lm-2021-restart", "megatron-lm", [100, 200, 300, 400, 300, 400, 500]),
        ("megatron-bridge", "megatron-lm", [1, 2, 3, 4]),
        ("megatron-deepspeed", "megatron-deepspeed", [12694, 12695, 12696, 12697]),
        ("gpt-neox", "gpt-neox", [10, 20, 30, 40]),
        ("deepspeed-pipeline-crlf", "deepspeed-pipeline", [10, 20, 30, 40]),
        ("deepspeed", "deepspeed", [10, 20, 30, 40]),
        ("torchtitan-two-ranks", "torchtitan", [1, 10, 20, 30, 40]),
        ("internevo", "internevo", [30, 31, 32, 33]),
        ("maxtext", "maxtext", [5, 6, 7, 8]),
        ("nemo", "nemo", [0, 1, 2, 3]),
        ("nemo-progress-bar", "nemo-progress-bar", [0, 1, 2, 3]),
        ("hugging-face-trainer", "hugging-face-trainer", [1]),
        ("deepspeed-profiler", "deepspeed-profiler", [1]),
        ("mlperf", "mlperf", [1152 * step for step in range(1, 13)]),
    ],
)
def test_framework_and_steps_are_recognised(name, framework, steps):
    log = log_of(name)

    assert (log.framework, log.steps.step.tolist()) == (framework, steps)


@all_cases(
    ("name", "column", "values"),
    [
        (
            "megatron-lm-2021-restart",
            "step_time_s",
            [2.9001, 2.2751, 2.2703, 2.2809, 3.1004, 2.2765, 2.2742],
        ),
        ("megatron-bridge", "device_flop_per_s", [139.2e12, 661.3e12, 663.5e12, 666.4e12]),
        ("megatron-bridge", "step_time_s", [105.8, 9.12, 9.09, 9.05]),
        ("megatron-deepspeed", "step_time_s", [106.10, 105.22, 105.22, 105.30]),
        ("megatron-deepspeed", "samples_per_s", [19.302, 19.463, 19.463, 19.449]),
        ("megatron-deepspeed", "device_flop_per_s", [147.78e12, 149.02e12, 149.02e12, 148.91e12]),
        ("gpt-neox", "device_flop_per_s", [98.1e12, 114.8e12, 115e12, 115.2e12]),
        ("gpt-neox", "step_time_s", [61.234, 52.3, 52.2, 52.1]),
        ("deepspeed-pipeline-crlf", "step_time_s", [2.468, 1.25, 1.234, 1.238]),
        ("deepspeed", "samples_per_s", [20.1, 25.6, 25.6, 32.0]),
        ("torchtitan-two-ranks", "device_tokens_per_s", [1024, 80000, 81920, 82000, 81000]),
        ("nemo", "step_time_s", [5.276, 2.008, 2.012, 2.004]),
        ("nemo-progress-bar", "step_time_s", [9.5, 3.2, 3.13, 3.11]),
        ("deepspeed-profiler", "step_time_s", [0.18473]),
        ("deepspeed-profiler", "device_flop_per_s", [101.98e12]),
    ],
)
def test_numbers_are_those_that_stand_in_the_log(name, column, values):
    log = log_of(name)

    assert getattr(log.steps, column) == pytest.approx(values)


def test_what_a_log_does_not_print_is_not_a_number():
    log = log_of("megatron-lm-2021-restart")

    assert np.isnan(log.steps.device_flop_per_s).all()
    assert np.isnan(log.steps.tokens_per_s).all()


@all_cases(
    ("name", "sizes"),
    [  # global batch, micro-batch, sequence length, devices
        ("megatron-lm", (16, 1, 1024, 8)),
        ("megatron-lm-2021-restart", (None, None, None, 8)),
        ("gpt-neox", (1536, 4, 2048, 96)),
        ("torchtitan-two-ranks", (16, 2, 1024, None)),
        ("nemo", (None, None, None, 8)),
        ("hugging-face-trainer", (4, 4, None, None)),
        ("deepspeed-profiler", (640, 80, None, 8)),
        ("megatron-bridge", (None, None, None, None)),
    ],
)
def test_sizes_of_the_job_are_read_where_they_are_stated(name, sizes):
    log = log_of(name)

    assert (log.global_batch, log.micro_batch, log.sequence_length, log.world_size) == sizes


def test_memory_of_each_rank_is_told_apart():
    log = log_of("megatron-lm")

    first, second = log.memory
    assert (first.rank, first.max_allocated_bytes, first.reserved_bytes) == (0, 4480 * MIB, 4864 * MIB)
    assert (second.rank, second.max_allocated_bytes, second.max_reserved_bytes) == (
        1,
        4608 * MIB,
        5120 * MIB,
    )


def test_the_largest_memory_of_a_rank_counts_whichever_line_tells_it():
    """DeepSpeed's timer prints 38.5, 39, 39.5 and 40 GB allocated at most, its memory line 45 GB held."""
    (rank,) = log_of("deepspeed").memory

    assert (rank.max_allocated_bytes, rank.max_reserved_bytes) == (40 * GIB, 45 * GIB)


def test_torchtitan_prints_what_is_reserved_and_its_validation_is_no_step():
    """Rank 0 holds 7.5 GiB in training, 9.5 GiB in validation; rank 1 holds 7.75 GiB."""
    log = log_of("torchtitan-two-ranks")

    assert [rank.max_reserved_bytes for rank in log.memory] == [7.5 * GIB, 7.75 * GIB]
    assert [rank.max_allocated_bytes for rank in log.memory] == [None, None]


def test_memory_without_a_rank_is_kept_without_one():
    (only,) = log_of("gpt-neox").memory

    assert (only.rank, only.max_reserved_bytes) == (None, 32768 * MIB)


def test_of_several_ranks_that_print_steps_the_one_that_prints_most_is_followed():
    """Rank 0 prints five steps, rank 1 four of them, once before rank 0 does."""
    log = log_of("torchtitan-two-ranks")

    assert log.num_repeated == 3 + 1
    assert log.num_restarts == 0


def test_a_progress_bar_that_is_drawn_again_is_one_step():
    assert log_of("nemo-progress-bar").num_repeated == 3


def test_the_first_tenth_is_warm_up_and_the_median_ignores_a_stutter():
    """Of twelve steps two are warm-up; of the others nine are 49.4 to 50.6 ms, one is 180 ms."""
    steady = log_of("megatron-lm").step_time()

    assert (steady.num_used, steady.num_skipped) == (10, 2)
    assert steady.median_s == pytest.approx(50.0e-3)
    assert steady.mean_s == pytest.approx(63.0e-3)
    assert steady.best_s == pytest.approx(49.4e-3)
    assert steady.low_s == pytest.approx(49.58e-3)
    assert steady.high_s == pytest.approx(50.6e-3 + 0.1 * 129.4e-3)


def test_every_restart_warms_up_again():
    """Seven records: one of four and one of three are warm-up; the others are 2.27 to 2.28 s."""
    log = log_of("megatron-lm-2021-restart")

    assert log.num_restarts == 1
    assert log.steady().tolist() == [False, True, True, True, False, True, True]
    assert log.step_time().median_s == pytest.approx(2.2751)


def test_steps_of_a_batch_that_ramps_up_are_left_out():
    """The last batch is 512; of its steps 1000, 1010 and 1020 ms have usable numbers."""
    log = log_of("megatron-lm-bad-numbers")

    assert log.step_time().num_used == 3
    assert log.step_time().median_s == pytest.approx(1.01)


def test_steps_with_numbers_that_cannot_be_are_left_out_and_counted():
    """Not a number, minus one second, infinity, and zero."""
    log = log_of("megatron-lm-bad-numbers")

    assert log.num_bad == 4
    assert log.steps.step.tolist() == [1, 2, 3, 6, 7, 9]


def test_a_rate_of_zero_is_no_rate_but_the_step_counts():
    """Megatron-Bridge prints 0 for models whose FLOP it cannot count."""
    log = log_of("megatron-lm-bad-numbers")

    assert np.isnan(log.steps.device_flop_per_s[4])
    assert log.steps.step_time_s[4] == pytest.approx(1.01)


def test_a_number_that_a_cut_last_line_may_have_lost_digits_of_is_not_read():
    """The log ends in "elapsed time per iteration (ms): 5", of 505.0 perhaps."""
    log = log_of("megatron-lm-cut")

    assert log.steps.step.tolist() == [1, 2, 3]


def test_a_cut_last_line_gives_what_it_holds_before_the_cut():
    whole = megatron_line(1, 900.0) + megatron_line(2, 500.0)
    cut = whole[: whole.rindex("150.0") + 2]

    log = read_log(cut, "train.log")

    assert log.steps.step_time_s == pytest.approx([0.9, 0.5])
    assert np.isnan(log.steps.device_flop_per_s[1])


def test_line_ends_of_windows_change_nothing():
    text = (LOGS / "megatron-lm.log").read_text()

    plain, windows = read_log(text, "a.log"), read_log(text.replace("\n", "\r\n"), "a.log")

    assert windows.steps.step_time_s.tolist() == plain.steps.step_time_s.tolist()
    assert windows.memory == plain.memory


def test_colours_change_nothing():
    coloured = "\x1b[38;5;180m" + megatron_line(1, 900.0).replace("iteration", "\x1b[1miteration\x1b[0m", 1)

    assert read_log(coloured, "a.log").steps.step_time_s == pytest.approx([0.9])


@all_cases("prefix", ["[rank3]:", "[default3]:", " 3: ", "worker-3: ", "node-worker-3: "])
def test_launchers_that_name_the_rank_of_a_line_are_understood(prefix):
    text = f"{prefix}{megatron_line(1, 900.0)}{prefix}after 1 iterations memory (MB) | allocated: 1.0 | max"
    text += " allocated: 2.0 | reserved: 3.0 | max reserved: 4.0\n"

    log = read_log(text, "a.log")

    assert log.steps.step_time_s == pytest.approx([0.9])
    assert [rank.rank for rank in log.memory] == [3]


def test_timers_of_deepspeed_are_steps_where_nothing_better_is_printed():
    """55.15 + 180.82 + 183.61 ms; micro-steps and a line of zeros are no steps."""
    text = (
        "time (ms) | fwd_microstep: 0.38 | bwd_microstep: 57.88 | step_microstep: 183.27\n"
        "[Rank 0] time (ms) | fwd: 0.00 | bwd: 0.00 | bwd_inner: 0.00 | step: 0.00\n"
        "[Rank 0] time (ms) | fwd: 55.15 | bwd: 180.82 | bwd_inner: 13.28 | step: 183.61\n"
    )

    log = read_log(text, "a.log")

    assert log.framework == "deepspeed-timers"
    assert log.steps.step_time_s == pytest.approx([0.41958])


def test_iteration_lines_with_equals_signs_and_underscores_are_read_too():
    text = (
        "[2024-04-21 02:45:24][INFO][training:1251] -  iteration=       2/  317892 | consumed_samples=512 |"
        " elapsed_time_per_iteration_ms=16030.6 | global_batch_size=256 | samples_per_second=15.969 |\n"
    )

    log = read_log(text, "a.log")

    assert (log.framework, log.steps.step.tolist()) == ("megatron-deepspeed", [2])
    assert log.steps.step_time_s == pytest.approx([16.0306])
    assert log.steps.global_batch.tolist() == [256]


def test_the_first_releases_of_deepspeed_print_one_mean_rate():
    text = "[2021-05-01 10:00:00,000] [INFO] [timer.py:154:stop] 0/40, SamplesPerSec=25.5\n"

    log = read_log(text, "a.log")

    assert log.steps.step.tolist() == [40]
    assert log.steps.samples_per_s.tolist() == [25.5]


def test_a_trainers_mean_step_is_its_run_over_its_steps():
    """8418.1136 s over 4836 steps; the printed 0.574 steps per second are rounded."""
    steady = log_of("hugging-face-trainer").step_time()

    assert steady.median_s == pytest.approx(8418.1136 / 4836)
    assert (steady.num_used, steady.num_skipped) == (1, 0)


def test_a_trainer_that_prints_text_for_numbers_gives_the_rate_it_rounds():
    text = (
        "{'train_runtime': '211', 'train_samples_per_second': '0.948', 'train_steps_per_second': '0.237'}\n"
    )

    assert read_log(text, "a.log").step_time().median_s == pytest.approx(1 / 0.237)


def test_tokens_of_a_device_give_the_step_time_where_it_is_not_printed():
    """torchtitan: 16 · 1024 tokens on 8 devices are 2048 on each; the median of four rates is 81460."""
    steady = log_of("torchtitan-two-ranks").step_time(devices=8)

    assert steady.median_s == pytest.approx((2048 / 81000 + 2048 / 81920) / 2)
    assert log_of("torchtitan-two-ranks").step_time() is None


def test_sequences_per_second_give_the_step_time_of_the_jobs_batch():
    """DeepSpeed: 64 sequences at 25.6, 25.6 and 32 per second."""
    steady = log_of("deepspeed").step_time(sequences=64)

    assert (steady.median_s, steady.best_s) == (2.5, 2.0)


def test_a_packed_file_reads_as_the_plain_one(tmp_path):
    packed = tmp_path / "train.log.gz"
    packed.write_bytes(gzip.compress((LOGS / "gpt-neox.log").read_bytes()))

    assert read_log_file(packed).steps.step_time_s.tolist() == log_of("gpt-neox").steps.step_time_s.tolist()


def test_a_text_and_its_file_read_the_same():
    text = (LOGS / "nemo.log").read_text()

    assert read_log(text, "nemo.log").steps.step.tolist() == log_of("nemo").steps.step.tolist()


def test_records_that_lie_across_the_pieces_of_a_long_progress_bar_are_whole():
    """One line of 2.6 MB without line feeds: every record is read, none with half a number."""
    drawn = [
        f"\rEpoch 0: : 1%| | global_step={i}.0, consumed_samples=1, train_step_timing in s=1.2345]"
        for i in range(30000)
    ]

    log = read_log("".join(drawn) + "\n", "bar.log")

    assert log.steps.step.tolist() == list(range(30000))
    assert set(log.steps.step_time_s.tolist()) == {1.2345}


def test_a_line_longer_than_any_log_has_is_passed_over():
    text = megatron_line(1, 900.0) + "x" * 3_000_000 + "\n" + megatron_line(2, 500.0)

    assert read_log(text, "a.log").steps.step.tolist() == [1, 2]


def test_stray_bytes_inside_a_log_do_no_harm(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(b"\0\0\xff\xfe\n" + megatron_line(1, 900.0).encode())

    assert read_log_file(path).steps.step.tolist() == [1]


@all_cases("text", ["", " ", "\x85", "\n\n  \n"])
def test_an_empty_log_is_told_so(text):
    assert told(text).because == "the log is empty, or has no complete line"
    assert told(text).where.endswith(":1")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("start\r\nbad \0\r\nend \0\r\n", 2),
        ("\n\n" + megatron_line(1, "nan") + megatron_line(2, "nan"), 3),
        ("10%\r20%\r30%\nhello\nepoch 3 step 17 took 3.4 s\n", 3),
    ],
)
def test_a_log_without_a_step_names_the_line_at_fault(text, number):
    assert told(text).where.endswith(f":{number}")


def test_without_a_step_every_known_format_is_listed_and_the_nearest_line_shown():
    problem = told("hello 1\nepoch 3 step 17 loss 2.1 took 3.4 s\nbye 2\n")

    assert "the most similar line is: epoch 3 step 17 loss 2.1 took 3.4 s" in problem.because
    assert "no line of the file describes a training step" in problem.because
    assert all(name in problem.allowed for name in FORMATS)


def test_zero_bytes_without_a_step_are_told_as_no_text():
    assert "not text" in told("\0\x01\x02step 1\0" * 10).because


def test_a_log_of_unusable_numbers_says_how_many():
    text = megatron_line(1, "nan") + megatron_line(2, "-5.0") + megatron_line(3, "inf")

    assert "each of the 3 printed steps" in told(text).because


@pytest.mark.parametrize("name", ["absent.log", "", "a\0b"])
def test_a_file_that_cannot_be_read_is_a_fault_with_its_path(tmp_path, name):
    with pytest.raises(SpecError) as caught:
        read_log_file(tmp_path / name)

    assert caught.value.problems[0].fix.startswith("check the path")


def test_a_damaged_archive_is_a_fault(tmp_path):
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress((LOGS / "gpt-neox.log").read_bytes())[:200])

    with pytest.raises(SpecError):
        read_log_file(path)


@pytest.mark.parametrize("digits", ["9" * 400, "1e308", "1e-300"])
def test_numbers_beyond_all_measure_are_no_steps_and_no_sizes(digits):
    text = f"using world size: {'9' * 400}\n" + megatron_line(1, digits) + megatron_line(2, 500.0)

    log = read_log(text, "a.log")

    assert (log.steps.step.tolist(), log.num_bad, log.world_size) == ([2], 1, None)


def test_timers_that_are_not_forward_backward_and_update_are_no_steps():
    """Megatron-LM's timers, and the forward pass alone that DeepSpeed breaks down for experts."""
    text = (
        "time (ms) | forward-compute: 879.94 | backward-compute: 1373.40 | optimizer: 20.10\n"
        "time (ms) | fwd: 259.10 (fwd_moe: 8.19, 1st_a2a: 1.00)\n"
    )

    assert "no line of the file describes a training step" in told(text).because


def test_nemo_may_print_rates_beside_the_time():
    text = (
        "Training epoch 0, iteration 97/99 | lr: 1.469e-05 | global_batch_size: 128 | global_step: 97 |"
        " train_step_timing in s: 12.22 | tokens_per_sec_per_gpu: 1.073e+04 | TFLOPS_per_GPU: 5.5e+02 |\n"
    )

    steps = read_log(text, "a.log").steps

    assert (steps.device_tokens_per_s.item(), steps.device_flop_per_s.item()) == (10730, 550e12)


@pytest.mark.parametrize(
    ("latency", "rate", "time_s", "flop_per_s"),
    [("41.39 s", "850.5 GFLOPS", 41.39, 850.5e9), ("950.0 us", "1.2 PFLOPS", 950e-6, 1.2e15)],
)
def test_the_profiler_prints_units_of_its_choice(latency, rate, time_s, flop_per_s):
    text = (
        f"iter latency:                                          {latency}\n"
        f"FLOPS per GPU = 3 * fwd flops per GPU / iter latency:  {rate}\n"
        "samples/second:                                         24.74\n"
    )

    steps = read_log(text, "a.log").steps

    assert steps.step_time_s.item() == pytest.approx(time_s)
    assert steps.device_flop_per_s.item() == pytest.approx(flop_per_s)


def test_sequences_per_second_of_gpt_neox_are_those_it_prints():
    """1536 sequences in 52.2 s."""
    assert log_of("gpt-neox").steps.samples_per_s[2] == pytest.approx(29.425)


def test_a_row_of_a_table_without_a_number_is_counted():
    log = read_log("step,seconds\n1,2.4\n2,n/a\n3,2.3\n", "a.csv")

    assert (log.steps.step.tolist(), log.num_bad) == ([1, 3], 1)


def test_a_skipped_row_is_named_with_its_line_and_reason():
    log = read_log("step,seconds\n1,2.4\n2,-2\n3,2.3\n4,2,1\n5,2.3\n", "a.csv")

    assert [(row.line, row.text) for row in log.skipped] == [(3, "2,-2"), (5, "4,2,1")]
    assert log.skipped_text() == (
        "flopcast skipped 2 of the 5 printed steps of the log: line 3 (2,-2): step time is impossible; "
        "line 5 (4,2,1): one of the 2 columns of the row has no number"
    )


def test_a_single_word_that_may_be_cut_is_not_read():
    assert (
        told("{'train_runtime':100,'train_samples_per_second':2").because
        == "the log is empty, or has no complete line"
    )


def test_a_log_of_mlperf_gives_the_times_of_its_steps_and_its_batch():
    log = log_of("mlperf")

    time = log.step_time()
    assert time is not None
    assert time.median_s == pytest.approx(6.06)
    assert (log.global_batch, log.sequence_length, log.num_bad) == (1152, 8192, 0)


def test_a_log_of_mlperf_with_rates_alone_gives_times_by_its_batch():
    events = [{"key": "global_batch_size", "value": 8}]
    events += [
        {"key": "tracked_stats", "value": {"throughput": 1.6}, "metadata": {"step": 384 * block}}
        for block in range(1, 9)
    ]
    text = "".join(f":::MLLOG {json.dumps(event)}\n" for event in events)

    time = read_log(text, "result_0.txt").step_time()

    assert time is not None
    assert time.median_s == pytest.approx(8 / 1.6)


def test_statistics_of_mlperf_that_are_no_times_are_no_steps():
    for value in (
        '{"loss": 3.1}',
        '{"throughput": "fast"}',
        "null",
        "7",
        "[" * 5000,
        '{"throughput": 1e999}',
    ):
        problem = told(f':::MLLOG {{"key": "tracked_stats", "value": {value}, "metadata": {{}}}}\n')

        assert problem.field == "log"


@all_cases(
    "text",
    [
        "step,loss,seconds\n1,3,9\n2,3,7\n3,3,7.5\n4,3,8\n",
        "iteration;step_time_ms\n1;9000,0\n2;7000,0\n3;7500,0\n4;8000,0\n",
    ],
)
def test_a_table_whose_column_states_the_unit_of_step_times_is_a_log(text):
    log = read_log(text, "own.csv")

    assert log.framework == "csv"
    assert log.step_time().median_s == 7.5
