"""Traces of torch.profiler: kernels joined to operators, steps, passes, sizes; long and broken files."""

import gzip
import itertools
import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.lab.calibration.kernel_names import KERNELS, OPERATORS, kernel_class, kind_of
from flopcast.lab.calibration.trace import class_totals, seconds_per_step, unrecognised
from flopcast.lab.calibration.traced_shapes import message_bytes, samples, sizes_of
from flopcast.lab.samples.columns import read_columns
from flopcast.lab.samples.files import EVENT_COLUMNS, SAMPLE_COLUMNS, event_cells, sample_cells, write_csv
from flopcast.lab.traces.json_stream import values
from flopcast.lab.traces.kineto import kineto_trace, read_kineto

TRACES = Path(__file__).parent / "traces"
PATH = TRACES / "kineto_two_steps.json"
FLASH_BACKWARD = "flash_attention.backward"
TEXT = PATH.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def trace():
    return read_kineto(PATH)


def words_of(trace, column):
    """The words of a column that holds their numbers."""
    return [trace.words[number] for number in getattr(trace, column)]


def of_events(*events):
    """The trace of these events alone."""
    return kineto_trace([json.dumps({"traceEvents": list(events)})], "made.json")


def kernel(start_us, duration_us, name="nvjet_x", stream=7, **args):
    """A kernel event."""
    told = {"device": 0, "stream": stream} | args
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start_us, "dur": duration_us, "args": told}


def call(start_us, duration_us, name, thread=1, **args):
    """An operator's call."""
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "tid": thread,
        "ts": start_us,
        "dur": duration_us,
        "args": args,
    }


def test_kernels_carry_the_operator_that_launched_them_with_its_shapes(trace):
    joined = list(zip(words_of(trace, "operator"), words_of(trace, "shapes"), strict=True))

    assert joined[0] == ("aten::addmm", "[[4096], [1024, 1024], [1024, 4096], [], []]")
    assert joined[3] == ("aten::mm", "[[1024, 4096], [4096, 1024]]")
    assert joined[7] == ("", "")  # their_own_fused_thing: no operator is known


def test_every_kernel_of_the_device_has_its_class_stream_and_pass(trace):
    assert words_of(trace, "kernel_class") == [
        "gemm", "flash_attention", "all_reduce", "gemm", "layernorm.backward", "layernorm.backward", "gemm",
        "", "memcpy",
    ]  # fmt: skip
    assert words_of(trace, "stream") == [*["compute"] * 2, "tp", *["compute"] * 5, "copy"]
    assert words_of(trace, "phase") == [*["forward"] * 3, *["backward"] * 3, "forward", "", ""]


def test_kernels_belong_to_the_step_that_launched_them_whenever_they_run(trace):
    late = kernel(150.0, 10.0, **{"External id": 5})  # runs in step 2, was launched in step 1
    steps = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{n}",
            "ts": 100.0 * (n - 1),
            "dur": 100.0,
        }
        for n in (1, 2)
    ]

    made = of_events(*steps, call(90.0, 5.0, "aten::mm", **{"External id": 5}), late)

    assert made.step.tolist() == [1]
    assert trace.step.tolist() == [4] * 6 + [5] * 3
    assert trace.step_times_s.tolist() == pytest.approx([1000e-6, 900e-6])


def test_times_are_microseconds_from_the_first_kernel(trace):
    assert trace.start_s[:3].tolist() == pytest.approx([0, 200e-6, 220e-6])
    assert (trace.end_s - trace.start_s)[:3].tolist() == pytest.approx([200e-6, 50e-6, 80e-6])


def test_totals_count_every_kernel_and_list_the_unrecognised(trace):
    totals = {total.name: total for total in class_totals(trace)}

    assert totals["gemm"].total_s == pytest.approx((200 + 220 + 210) * 1e-6)
    assert totals["gemm"].step_share == pytest.approx(630 / 1900)
    assert sum(total.num_kernels for total in totals.values()) == len(trace.start_s)
    assert [(total.name, total.num_kernels) for total in unrecognised(trace)] == [
        ("their_own_fused_thing(float*)", 1)
    ]


def test_seconds_of_a_step_are_means_over_the_steps_and_communication_is_what_sticks_out(trace):
    found = seconds_per_step(trace)

    # the all-reduce runs from 320 to 400 µs, the attention until 350: 50 µs stick out, over two steps
    assert found == pytest.approx(
        {"gemm": 315e-6, "attention": 25e-6, "memory_bound": 10e-6, "communication": 25e-6}
    )


def test_samples_have_the_sizes_of_products_attention_and_norms(trace):
    found = {(s.kernel_class, s.phase): s for s in samples(trace)}

    assert found["gemm", "forward"].sizes == {"m": 1024, "n": 4096, "k": 1024}
    assert found["gemm", "forward"].num_calls == 2
    assert found["gemm", "forward"].median_s == pytest.approx(205e-6)
    assert found["gemm", "backward"].sizes == {"m": 1024, "n": 1024, "k": 4096}
    assert found["flash_attention", "forward"].sizes == {
        "batch": 2, "heads": 16, "kv_heads": 4, "queries": 512, "keys": 512, "head_size": 64,
    }  # fmt: skip
    assert {sample.dtype for sample in found.values() if sample.sizes} == {"bf16"}


def test_kernels_of_one_call_are_one_sample_with_the_sum_of_their_times(trace):
    norm = next(sample for sample in samples(trace) if sample.kernel_class == "layernorm.backward")

    assert norm.num_calls == 1
    assert norm.median_s == pytest.approx(20e-6)
    assert norm.sizes == {"elements": 2 * 512 * 1024, "width": 1024}


def test_a_message_has_its_bytes_and_ranks_from_the_call_where_the_kernel_does_not_say(trace):
    message = next(sample for sample in samples(trace) if sample.kernel_class == "all_reduce")

    assert (message.message_bytes, message.ranks) == (2 * 1048576, 8)


@all_cases(
    ("name", "ours", "elements", "expected"),
    [
        ("_allgather_base", "all_gather", (4, 32), 64),  # the gathered result
        ("_reduce_scatter_base", "reduce_scatter", (32, 4), 64),  # one rank's full input
        ("all_to_allv", "all_to_all", (32, 32), 64),
        ("allreduce", "all_reduce", (32, 32), 64),
        ("recv", "send_receive", (0, 32), 64),
    ],
)
def test_messages_are_counted_as_flopcast_counts_them(name, ours, elements, expected):
    event = kernel(
        0.0, 9.0, "ncclDevKernel_SendRecv(x)", **{
            "Collective name": name, "dtype": "BFloat16", "Group size": 8,
            "In msg nelems": elements[0], "Out msg nelems": elements[1],
        },
    )  # fmt: skip

    made = of_events(event)

    assert words_of(made, "kernel_class") == [ours]
    assert made.message_bytes.tolist() == [expected]
    assert made.ranks.tolist() == [8]


def test_an_old_trace_is_joined_through_the_correlation_of_its_launch():
    # as older versions write it: categories with a capital, the id in small letters, and none on the kernel
    made = of_events(
        {
            **call(0.0, 9.0, "aten::mm", **{"external id": 4, "Input dims": [[2, 3], [3, 5]]}),
            "cat": "Operator",
        },
        {
            "ph": "X",
            "cat": "Runtime",
            "name": "cudaLaunchKernel",
            "ts": 1.0,
            "dur": 1.0,
            "args": {"external id": 4, "correlation": 8},
        },
        {**kernel(5.0, 2.0, "volta_h884gemm_x", correlation=8), "cat": "Kernel"},
    )

    assert [sample.sizes for sample in samples(made)] == [{"m": 2, "n": 5, "k": 3}]


def test_backward_is_what_runs_inside_the_engine_also_on_the_forwards_thread():
    engine = call(50.0, 20.0, "autograd::engine::evaluate_function: MmBackward0", **{"External id": 1})
    calls = [call(at, 1.0, "aten::mm", **{"External id": n}) for n, at in ((2, 10.0), (3, 60.0), (4, 80.0))]
    kernels = [kernel(100.0 + n, 1.0, **{"External id": n}) for n in (2, 3, 4)]

    made = of_events(engine, *calls, *kernels)

    assert words_of(made, "phase") == ["forward", "backward", "forward"]


def test_what_is_left_out_is_remarked(trace):
    told = " ".join(trace.remarks)

    assert "rank 3 of 8" in told
    assert "1 kernels of 1 other devices are ignored" in told
    assert "2 of 9 kernels cannot be matched to an operator" in told


def test_a_trace_without_steps_counts_as_one_and_says_so():
    made = of_events(kernel(0.0, 30.0), kernel(60.0, 40.0))

    assert made.step_time_s is None
    assert "no step annotations" in " ".join(made.remarks)
    assert class_totals(made)[0].step_share == pytest.approx(0.7)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, len(TEXT) - 1), max_size=40))
def test_the_events_do_not_hang_on_where_the_text_is_cut_into_chunks(cuts):
    edges = [0, *sorted(set(cuts)), len(TEXT)]
    chunks = [TEXT[start:end] for start, end in itertools.pairwise(edges)]

    found = list(values(chunks, "cut.json"))

    whole = json.loads(TEXT)
    assert [value for key, value in found if key == "traceEvents"] == whole["traceEvents"]
    assert dict(pair for pair in found if pair[0] != "traceEvents") == {
        key: value for key, value in whole.items() if key != "traceEvents"
    }


def test_characters_one_by_one_give_the_same_values():
    text = '[{"a": "br\\u0061ce } in \\"text\\"", "n": 12.5e3}, {"b": [1, {"c": null}]}]'

    found = [value for _, value in values(text, "slow.json")]

    assert found == json.loads(text)


def test_a_zipped_trace_and_a_bare_list_are_the_same_trace(tmp_path, trace):
    zipped, bare = tmp_path / "rank3.pt.trace.json.gz", tmp_path / "list.json"
    zipped.write_bytes(gzip.compress(TEXT.encode()))
    bare.write_text(json.dumps(json.loads(TEXT)["traceEvents"]), encoding="utf-8")

    for path in (zipped, bare):
        found = read_kineto(path)
        assert words_of(found, "kernel") == words_of(trace, "kernel")
        assert np.array_equal(found.start_s, trace.start_s)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.999])
def test_a_cut_trace_is_said_to_be_cut(part):
    with pytest.raises(SpecError, match="without its closing bracket"):
        kineto_trace([TEXT[: int(part * len(TEXT))]], "cut.json")


def test_a_cut_archive_is_refused(tmp_path):
    path = tmp_path / "cut.json.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-20])

    with pytest.raises(SpecError, match="end-of-stream"):
        read_kineto(path)


@all_cases(
    ("text", "why"),
    [
        ("", "the file is empty"),
        ("\x89PNG\r\n", "but JSON begins with"),
        ("step 1: 3 s", "but JSON begins with"),
        ('{"traceEvents": [{"a": 1} {"b" 2}, {"c": 3}], "x": 1}', "not valid JSON near character 2"),
        ('{"traceEvents": []}', "contains no kernels of a device"),
        (
            '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1, "name": "aten::mm"}]}',
            "no kernels of a device",
        ),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_reason(text, why):
    with pytest.raises(SpecError, match=why):
        kineto_trace([text], "none.json")


def test_an_absent_file_is_refused(tmp_path):
    with pytest.raises(SpecError, match="No such file"):
        read_kineto(tmp_path / "absent.json")


def test_events_with_unusable_fields_are_passed_over_and_kernels_among_them_counted():
    odd = [{}, {"ph": "X"}, {"ph": "X", "ts": "soon", "dur": 1}, {"ph": "X", "ts": 1, "dur": 1, "args": []}]

    made = of_events(*odd, kernel(None, 1.0), kernel(3.0, 1.0, stream="7", correlation=None))

    assert words_of(made, "kernel") == ["nvjet_x"]
    assert "1 kernels without a start" in " ".join(made.remarks)


def test_twenty_five_megabytes_are_read_in_less_than_thirty(tmp_path):
    path = tmp_path / "long.json"
    dims = json.dumps([[4096, 4096], [4096, 14336]])
    stack = "x" * 800  # what profilers write beside what is needed
    with path.open("w", encoding="utf-8") as file:
        file.write('{"traceEvents": [\n')
        for n in range(1, 21_001):
            file.write(
                f'{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": {100 * n},'
                f' "dur": 5, "args": {{"External id": {n}, "Input Dims": {dims},'
                f' "Call stack": "{stack}"}}}},\n'
                f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,'
                f' "ts": {100 * n + 1}, "dur": 1.0, "args": {{"External id": {n}, "correlation": {n}}}}},\n'
                f'{{"ph": "X", "cat": "kernel", "name": "nvjet_hsh_128x256", "pid": 0, "tid": 7,'
                f' "ts": {100 * n + 9}, "dur": 80.0, "args": {{"External id": {n}, "correlation": {n},'
                f' "device": 0, "stream": 7}}}},\n'
            )
        file.write('{"ph": "M"}]}')
    assert path.stat().st_size > 25e6

    tracemalloc.start()
    found = read_kineto(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(found.start_s) == 21_000
    assert found.end_s[-1] == pytest.approx(20_999 * 100e-6 + 80e-6)
    assert peak_bytes < 30e6


@all_cases(
    ("kernel_name", "operator", "expected"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "aten::mm", "gemm"),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", "aten::mm", "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "aten::bmm", "batched_gemm"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>", "aten::addmm", "gemm"),
        ("void flash::flash_bwd_dq_dk_dv_loop_kernel", "_flash_attn_backward", FLASH_BACKWARD),
        ("fmha_cutlassB_bf16_aligned_64x64", "aten::_efficient_attention_backward", FLASH_BACKWARD),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "", "flash_attention"),
        ("void at::native::vectorized_elementwise_kernel<4, x>", "aten::add", "residual_add"),
        ("void at::native::vectorized_elementwise_kernel<4, x>", "aten::mul", "elementwise"),
        ("void at::native::vectorized_elementwise_kernel<4, x>", "", ""),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor>", "", "adam"),
        ("void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel", "", "rmsnorm"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWork)", "", "all_gather"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "", "send_receive"),
        ("void cunn_SoftMaxForward<8, LogSoftMaxForwardEpilogue>", "aten::_log_softmax", "cross_entropy"),
    ],
)  # fmt: skip
def test_kernels_as_public_traces_name_them_have_their_class(kernel_name, operator, expected):
    assert kernel_class(kernel_name, operator) == expected


@all_cases("name", sorted({name for _, name in (*KERNELS, *OPERATORS)}))
def test_every_class_is_part_of_some_cost(name):
    assert kind_of(name) in ("gemm", "attention", "memory_bound", "copy")


@all_cases(
    ("operator", "shapes", "sizes"),
    [
        ("aten::linear", [[2, 3, 8], [16, 8]], {"m": 6, "n": 16, "k": 8}),
        ("aten::bmm", [[4, 3, 8], [4, 8, 5]], {"m": 3, "n": 5, "k": 8, "batch": 4}),
        ("aten::baddbmm", [[4, 3, 5], [4, 3, 8], [4, 8, 5]], {"m": 3, "n": 5, "k": 8, "batch": 4}),
        ("aten::mm", [[3, 8], [9, 5]], {}),  # these do not fit each other
        ("aten::mm", [[3, 8]], {}),
    ],
)
def test_products_have_the_sizes_of_their_definition(operator, shapes, sizes):
    assert sizes_of(operator, "gemm", shapes) == sizes


def test_attention_reads_its_layout_and_skips_the_gradient():
    heads_first = [[2, 16, 512, 64], [2, 4, 1024, 64], [2, 4, 1024, 64]]
    gradient = [[2, 512, 16, 64]] * 2 + [[2, 1024, 4, 64]] * 2

    forward = sizes_of("aten::_scaled_dot_product_cudnn_attention", "flash_attention", heads_first)
    backward = sizes_of("aten::_flash_attention_backward", "flash_attention.backward", gradient)

    assert forward == backward
    assert (forward["heads"], forward["kv_heads"], forward["queries"], forward["keys"]) == (
        16,
        4,
        512,
        1024,
    )


def test_a_message_of_an_unknown_dtype_has_no_size():
    assert math.isnan(message_bytes("all_reduce", 4, 4, "Quaternion"))


def test_samples_and_events_are_read_back_from_their_files(tmp_path, trace):
    out, events = tmp_path / "samples.csv", tmp_path / "events.csv"

    write_csv(out, SAMPLE_COLUMNS, sample_cells(samples(trace)))
    write_csv(events, EVENT_COLUMNS, event_cells(trace))
    read = read_columns(out)

    assert read.problems == ()
    gemm = (read.columns["kernel_class=gemm"] == 1) & (read.columns["phase=forward"] == 1)
    assert read.columns["median_s"][gemm].tolist() == pytest.approx([205e-6])
    lines = events.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(trace.start_s)
    assert lines[1].startswith("-1,-1,-1,-1,aten::addmm,forward,compute,0,0.0002,4,0,7,nvjet")


def test_a_text_that_is_no_json_is_refused_with_its_line_wherever_it_is_cut():
    texts = {'{"a": 1,\n"traceEvents": [\n{"b": 2},\n{"c" 3}]}': 4, '[\n\n{"b": 2}\n': 4}
    for text, line in texts.items():
        for chunks in ([text], list(text)):
            with pytest.raises(SpecError) as told:
                list(values(chunks, "trace.json"))

            assert told.value.problems[0].where == f"trace.json:{line}"


def test_numbers_that_no_clock_or_counter_gives_are_taken_for_none():
    for name in ("correlation", "External id"):
        ids = of_events(kernel(0, 10, **{name: 10**30}))
        assert ids.start_s.tolist() == [0.0]
    late = of_events(kernel(0, 10), kernel(1e305, 10), kernel(-(10**400), 1))

    assert len(late.start_s) == 1
    assert "2 kernels without a start" in " ".join(late.remarks)
