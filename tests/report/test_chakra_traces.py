"""Chakra traces: an independent reader, laws of what they hold, and a machine that runs all ranks."""

import json
from collections import Counter
from functools import cache

import pytest
from all_cases import all_cases
from chakra_reader import COLLECTIVE, COMPUTE, RECEIVE, SEND, Machine, read_trace

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.exports.rank_graph import most_nodes
from flopcast.interop.exports.traces import export_chakra, predicted
from flopcast.requests.job_files import job_of
from flopcast.spec.batch import Batch

LLAMA = {"base": "llama-3.2-1b", "vocabulary_multiple": 1}
SPARSE = {"base": "qwen1.5-moe-a2.7b", "num_layers": 8}
SEQUENCE = 4096
JOBS = {  # name → model, plan, stack
    "stages": (LLAMA, "dp=2 tp=4 pp=2 gbs=8 sp zero=1", "megatron-core"),
    "tensor": (LLAMA, "dp=2 tp=8 gbs=4", "megatron-core"),
    "replicas": (LLAMA, "dp=16 gbs=32", "megatron-core"),
    "chunks": (LLAMA, "dp=2 tp=2 pp=4 vpp=2 gbs=16 sp zero=1", "megatron-core-2025"),
    "ring": (LLAMA, "tp=2 cp=4 pp=2 gbs=2 sp zero=1", "megatron-core"),
    "experts": (SPARSE, "dp=8 pp=2 ep=4 gbs=16 zero=1", "megatron-core"),
    "zero bubble": (LLAMA, "dp=2 tp=2 pp=4 gbs=8 schedule=zb_h1", "megatron-core"),
    "sharded": (LLAMA, "dp=16 gbs=16 zero=3", "torch-fsdp2"),
    "folded": (LLAMA, "dp=4 pp=4 vpp=2 gbs=32 schedule=zb_v", "megatron-core"),
}
ALL = pytest.mark.parametrize("name", JOBS)
WITHOUT_OVERLAP = ("stages", "tensor", "replicas", "experts", "zero bubble")  # nothing slows compute there
EXACT = ("stages", "tensor", "replicas", "chunks", "zero bubble", "sharded", "folded")  # loads are whole


@cache
def job(name):
    model, plan, stack = JOBS[name]
    data = {
        "model": model,
        "cluster": "dgx-h100:2",
        "stack": {
            "base": stack,
            "host": {"forward_item_s": "0 s", "backward_item_s": "0 s"},
        },  # a trace has no host
        "batch": {"seq": SEQUENCE},
        "plan": plan,
    }
    return job_of(Document("job", data, {}))


@cache
def files(name):
    return dict(export_chakra(job(name)).files)


@cache
def ranks(name):
    return [read_trace(files(name)[f"step.{rank}.et"])[1] for rank in range(16)]


def groups(name):
    return json.loads(files(name)["groups.json"])


def nodes(name, part, phase=""):
    """Nodes of all ranks whose operator has this name, of tasks that begin so."""
    return [
        node
        for each in ranks(name)
        for node in each
        if part in node.name.split() and node.name.startswith(phase)
    ]


def total(found, attribute):
    return sum(node.attributes[attribute] for node in found)


@ALL
def test_there_is_a_file_for_each_rank_in_the_version_that_simulators_read(name):
    assert set(files(name)) == {*(f"step.{rank}.et" for rank in range(16)), "groups.json"}
    assert read_trace(files(name)["step.0.et"])[0] == "0.0.4"


@ALL
def test_nodes_are_numbered_from_one_and_wait_for_lower_numbers_only(name):
    for each in ranks(name):
        assert [node.id for node in each] == list(range(1, len(each) + 1))
        assert all(wait < node.id for node in each for wait in node.waits)


@ALL
def test_every_send_has_its_receive_with_the_same_bytes(name):
    ends = {SEND: Counter(), RECEIVE: Counter()}
    for rank, each in enumerate(ranks(name)):
        for node in each:
            if node.type in ends:
                told = node.attributes
                ends[node.type][tuple(told[f"comm_{key}"] for key in ("src", "dst", "tag", "size"))] += 1
                assert rank == told["comm_src" if node.type == SEND else "comm_dst"]

    assert ends[SEND] == ends[RECEIVE]
    assert all(times == 1 for times in ends[SEND].values())


@ALL
def test_members_of_a_group_take_part_in_the_same_collectives_in_the_same_order(name):
    taken = {}
    for rank, each in enumerate(ranks(name)):
        for node in each:
            if node.type == COLLECTIVE:
                told = node.attributes
                taken.setdefault((told["pg_name"], rank), []).append((told["comm_type"], told["comm_size"]))

    for group, members in groups(name).items():
        assert len({json.dumps(taken.get((group, rank))) for rank in members}) == 1
    assert all(rank in groups(name)[group] for group, rank in taken)


@ALL
def test_a_machine_of_one_kernel_and_one_message_at_a_time_comes_to_the_end(name):
    everything = sum(map(len, ranks(name)))

    _, done = Machine(ranks(name), groups(name)).run()

    assert done == everything


@all_cases("name", WITHOUT_OVERLAP)
def test_the_machine_takes_as_long_as_predicted_where_nothing_slows_compute(name):
    micros, _ = Machine(ranks(name), groups(name)).run()

    assert micros / 1e6 == pytest.approx(predicted(job(name)).clean_step_time_s, rel=0.02)


@all_cases("name", EXACT)
def test_products_do_the_flop_of_the_model_three_times_for_every_sequence(name):
    model, sequences = job(name).model, job(name).plan.global_batch
    linear = model.forward_flop(SEQUENCE) - model.attention_flop(SEQUENCE)

    kernels = [node for each in ranks(name) for node in each if "num_ops" in node.attributes]
    products = [node for node in kernels if "attention.flash" not in node.name]

    assert total(products, "num_ops") == pytest.approx(3 * sequences * linear, rel=1e-9)


@all_cases("name", EXACT)
def test_attention_multiplies_the_causal_half(name):
    model, sequences = job(name).model, job(name).plan.global_batch

    found = nodes(name, "attention.flash", "F")

    wanted = sequences * model.attention_flop(SEQUENCE, causal=True)
    assert total(found, "num_ops") == pytest.approx(wanted, rel=1e-9)


@ALL
def test_every_node_has_the_type_and_the_numbers_of_its_kind(name):
    wanted = {
        SEND: {"comm_size", "comm_src", "comm_dst", "comm_tag"},
        RECEIVE: {"comm_size", "comm_src", "comm_dst", "comm_tag"},
        COLLECTIVE: {"comm_type", "comm_size", "pg_name"},
    }
    for each in ranks(name):
        for node in each:
            told = set(node.attributes) - {"is_cpu_op"}
            host = node.type == COMPUTE and node.attributes["is_cpu_op"]
            assert told == (set() if host else wanted.get(node.type, {"num_ops", "tensor_size"}))


def test_tensor_parallel_sums_hold_the_activations_of_every_layer_and_micro_batch():
    each = nodes("tensor", "attention.leave", "F")

    model, plan = job("tensor").model, job("tensor").plan
    assert len(each) == 16 * model.num_blocks * plan.num_micro_batches
    assert {node.attributes["comm_size"] for node in each} == {SEQUENCE * model.hidden * 2}
    assert {node.attributes["comm_type"] for node in each} == {0}  # ALL_REDUCE


def test_a_gather_puts_in_a_shard_and_a_scatter_the_whole():
    gather, scatter = (nodes("stages", f"attention.{part}", "F") for part in ("enter", "leave"))

    whole_bytes = SEQUENCE * job("stages").model.hidden * 2
    assert {node.attributes["comm_size"] for node in gather} == {whole_bytes // 4}
    assert {node.attributes["comm_size"] for node in scatter} == {whole_bytes}
    assert ({n.attributes["comm_type"] for n in gather}, {n.attributes["comm_type"] for n in scatter}) == (
        {2},
        {7},
    )


def test_gradients_of_all_parameters_are_summed_in_fp32_once():
    reduced = total(nodes("replicas", "gradients.reduce"), "comm_size")

    assert reduced == pytest.approx(16 * 4 * job("replicas").model.parameters(), rel=1e-8)


def test_every_hop_carries_one_activation_and_one_gradient_for_each_micro_batch():
    sent = [node for each in ranks("stages") for node in each if node.type == SEND]

    model, plan = job("stages").model, job("stages").plan
    assert len(sent) == 2 * plan.num_micro_batches * 8  # there and back, 8 pairs of ranks
    assert {node.attributes["comm_size"] for node in sent} == {SEQUENCE * model.hidden * 2 // 4}


def test_a_ring_hands_keys_and_values_on_to_the_next_rank():
    hops = [node for node in ranks("ring")[0] if node.type == SEND and "pass" in node.name]

    assert {node.attributes["comm_dst"] for node in hops} == {2}  # cp is the next axis after two of tp


def test_durations_are_those_of_the_prediction_but_for_a_microsecond_a_stream():
    update = [node for node in ranks("replicas")[0] if node.name == "optimizer.update"]
    report = predicted(job("replicas"))
    item = next(item for item in report.priced.programs.update if item.name == "optimizer.update")

    assert sum(node.micros for node in update) == pytest.approx(1e6 * report.priced.seconds(item), abs=1.5)


def test_a_step_of_too_many_nodes_is_refused_with_their_number():
    big = job("replicas").model_copy(
        update={"plan": job("replicas").plan.model_copy(update={"global_batch": 16 * 4096})}
    )

    with pytest.raises(SpecError) as error:
        export_chakra(big)

    assert error.value.problems[0].field == "plan.global_batch"


@ALL
def test_the_count_that_decides_whether_a_trace_is_made_is_no_guess(name):
    counted, made = most_nodes(predicted(job(name))), sum(map(len, ranks(name)))

    assert 0.5 * counted < made < 2 * counted


def test_ranks_that_differ_are_refused():
    ranks_differ = Batch(
        seq=SEQUENCE,
        ranks=tuple({"micro_batches": [{"seq": size, "count": 2}], "count": 8} for size in (2048, 4096)),
    )
    changed = job("replicas").model_copy(update={"batch": ranks_differ})

    with pytest.raises(SpecError, match=r"batch\.ranks"):
        export_chakra(changed)
