"""FLOP conventions: the formulas with which frameworks and papers count the FLOP of a step.

Answers: how many FLOP does a step have by each known formula, and which formula did a log use that prints a
rate and a step time? Results for one step differ by a third and more, because formulas count recompute,
masked attention and embeddings differently.
Elsewhere: the FLOP that flopcast itself counts (report/metrics.py), conversion of printed rates to seconds
(lab/validation/suite.py).

Every formula computes the FLOP of the whole cluster in one step with the global batch of the job. Symbols
are those of the sources: B sequences, s tokens each, l layers, h hidden size, V vocabulary, N parameters
(of experts, those that a token uses).
"""

from collections.abc import Callable

from flopcast.dtypes import constant
from flopcast.layers.attention import Attention
from flopcast.layers.embedding import padded_rows
from flopcast.records import Record
from flopcast.report.metrics import BACKWARD_OVER_FORWARD
from flopcast.report.recomputed import recomputed_flop
from flopcast.spec.job import Job
from flopcast.units import Number

PASSES = 1.0 + BACKWARD_OVER_FORWARD  # a forward and its backward, in forwards
WORST_MISMATCH = 0.05  # further off, no convention is named
ROUNDING = 0.005  # printed rates and times hold three digits: conventions this near are not told apart


class Convention(Record):
    """One formula for the FLOP of a step, the software that uses it, and its source.

    `formula` computes the FLOP of the whole cluster in a step of a job. It assumes that all sequences have
    the length that the batch states. `frameworks` have the names of `report.log`; a log of a framework is
    assumed to use the first formula that names the framework.
    """

    formula: Callable[[Job], float]  # where all sequences are as long as the batch says
    frameworks: tuple[str, ...]  # as report.log names them; the first to think of
    source: str

    def flop(self, job: Job) -> float:
        """Return the FLOP of a step. If sequences have several lengths, each counts with its length."""
        return sum(share * self.formula(each) for share, each in job.by_kind)


class Match(Record):
    """The convention nearest to a printed rate.

    `mismatch_ratio` is the FLOP of the formula divided by those of the log, minus 1. `known` states whether
    it is within 5 %. If not, `name` is only the nearest formula, and must not be used for comparisons.
    """

    name: str
    mismatch_ratio: float
    known: bool


def equation_3(job: Job, passes: Number, vocabulary: Number) -> float:
    """Return the FLOP of a step by the formula of Megatron-LM's paper, extended to any feed-forward layer.

    `24 · passes · B s l h² (1 + s / 6h + V / 16 l h)`: a feed-forward of 4h, full attention, as many
    key/value heads as heads.

    Parameters
    ----------
    passes : 4 if blocks are recomputed, otherwise 3
    vocabulary : rows of the head, with or without padding

    References
    ----------
    Narayanan et al., SC21, arXiv:2104.04473, equation 3.
    """
    length, layers, hidden = job.batch.sequence_length, job.model.num_blocks, job.model.hidden
    correction = 1.0 + length / (6.0 * hidden) + vocabulary / (16.0 * layers * hidden)
    return 24.0 * passes * job.plan.step_sequences * length * layers * hidden**2 * correction


def _padded_vocabulary(job: Job) -> float:
    """Return rows of the head on all tensor-parallel ranks, which frameworks multiply and count."""
    tensor = float(job.plan.tensor_parallel)
    rows = padded_rows(job.model.vocabulary, job.model.vocabulary_multiple, constant(tensor))
    return float(rows.item()) * tensor


def _model_flop(job: Job, causal: bool, windows: bool = False) -> float:
    """Forward and backward of each matrix product that the model has, with the padded head.

    Without `windows`, scores outside of them are counted: most frameworks' formulas know none.
    """
    length, model = job.batch.sequence_length, job.model
    padding = model.head_flop(length) * (_padded_vocabulary(job) / model.vocabulary - 1.0)
    source = job.batch.source_tokens
    forward = model.forward_flop(length, causal, windows, source_length=source) + padding
    return job.plan.step_sequences * (PASSES * forward - model.frozen_flop(length, source))


def _bridge_flop(job: Job) -> float:
    """Return causal model FLOP in which a window of w tokens counts as w / 2 keys, as s counts as s / 2."""
    length, model = job.batch.sequence_length, job.model
    skipped = sum(
        block.count
        * block.mixer.pair_flop(model.hidden)
        * 0.5
        * length
        * max(length - block.mixer.window, 0)
        for block in model.blocks
        if isinstance(block.mixer, Attention)
        if block.mixer.window is not None and block.mixer.window_kind == "sliding"
    )
    return _model_flop(job, causal=True) - PASSES * job.plan.step_sequences * skipped


def _hardware_flop(job: Job, causal: bool) -> float:
    """Return model FLOP and what the plan's recompute repeats."""
    return _model_flop(job, causal, windows=True) + recomputed_flop(job, causal)


def _six_n(job: Job, attention_passes: Number, embedding: bool) -> float:
    """Return `6 N` for each token, and the scores and contexts of this many forward passes.

    Parameters
    ----------
    attention_passes : 3 counts `12 l h s` for each token, 1.5 the causal half of it, 0 nothing
    embedding : whether N holds the tables that are looked up, not multiplied
    """
    length, model = job.batch.sequence_length, job.model
    tables = 0.0 if embedding else model.hidden * (model.vocabulary + model.learned_positions)
    linear = 6.0 * (model.active_parameters() - tables) * length
    attention = attention_passes * model.attention_flop(length, windows=False)
    return job.plan.step_sequences * (linear + attention)


CONVENTIONS = {
    "megatron-2021": Convention(
        formula=lambda job: equation_3(job, 4.0, _padded_vocabulary(job)),
        frameworks=("megatron-deepspeed", "gpt-neox"),
        source="arXiv:2104.04473, equation 3; where activations are checkpointed, throughput_calculator of"
        " Megatron-DeepSpeed (megatron/utils.py) and get_flops of GPT-NeoX (megatron/logging.py)",
    ),
    "megatron-2021-without-recompute": Convention(
        formula=lambda job: equation_3(job, 3.0, _padded_vocabulary(job)),
        frameworks=("megatron-deepspeed", "gpt-neox"),
        source="the formula megatron-2021 without activation checkpointing: factor 3 instead of 4",
    ),
    "megatron-core": Convention(
        formula=lambda job: _model_flop(job, causal=False),
        frameworks=("megatron-lm",),
        source="num_floating_point_operations of Megatron-LM (megatron/training/training.py), older"
        " versions, which count the whole attention mask: 12 B s l h² (1 + groups/heads + s/h + gated MLP"
        " + V/2lh), no recompute",
    ),
    "megatron-core-causal": Convention(
        formula=lambda job: _model_flop(job, causal=True),
        frameworks=("megatron-lm", "nemo"),
        source="num_floating_point_operations of Megatron-LM (megatron/training/training.py) at commit"
        " 001b00c2734d, which counts half of the attention mask",
    ),
    "megatron-bridge": Convention(
        formula=_bridge_flop,
        frameworks=("megatron-bridge",),
        source="num_floating_point_operations of Megatron-Bridge (utils/flop_utils.py): as"
        " megatron-core-causal, but a window of w tokens counts as w / 2 keys for each query",
    ),
    "hardware": Convention(
        formula=lambda job: _hardware_flop(job, causal=False),
        frameworks=(),
        source="arXiv:2205.05198, appendix A: model FLOP and the recomputed ones, full attention",
    ),
    "hardware-causal": Convention(
        formula=lambda job: _hardware_flop(job, causal=True),
        frameworks=(),
        source="the formula `hardware` with half of the attention mask",
    ),
    "6n": Convention(
        formula=lambda job: _six_n(job, 0.0, embedding=True),
        frameworks=(),
        source="arXiv:2001.08361, section 2.1, with all parameters as N",
    ),
    "6n-without-embedding": Convention(
        formula=lambda job: _six_n(job, 0.0, embedding=False),
        frameworks=(),
        source="arXiv:2001.08361, section 2.1: N without token and position tables",
    ),
    "palm": Convention(
        formula=lambda job: _six_n(job, PASSES, embedding=True),
        frameworks=("llm-foundry",),
        source="arXiv:2204.02311, appendix B: 6N + 12 l h s for each token; estimate_mfu of nanoGPT;"
        " scripts/train/benchmarking of LLM Foundry",
    ),
    "torchtitan": Convention(
        formula=lambda job: _six_n(job, PASSES, embedding=False),
        frameworks=("torchtitan",),
        source="get_nparams_and_flops of torchtitan: as palm, N without the token table",
    ),
    "torchtitan-causal": Convention(
        formula=lambda job: _six_n(job, PASSES / 2.0, embedding=False),
        frameworks=("torchtitan",),
        source="get_nparams_and_flops of torchtitan, releases that count 6 l h s for each token",
    ),
    "deepspeed-profiler": Convention(
        formula=lambda job: (
            PASSES * job.plan.step_sequences * job.model.forward_flop(job.batch.sequence_length)
        ),
        frameworks=("deepspeed-profiler",),
        source="flops profiler of DeepSpeed (deepspeed/profiling/flops_profiler): 3 × the forward's"
        " products, full attention, head not padded",
    ),
}


def match_convention(job: Job, printed_flop: float, framework: str) -> Match:
    """Return the convention by which a log counted.

    Parameters
    ----------
    printed_flop : printed rate of a device × devices × step time, for one global batch of the job: above 0
    framework : the framework that wrote the log; if rounding does not distinguish conventions, its
        convention is taken

    Returns
    -------
    Match
        The nearest convention; `known` if it is within 5 %.
    """
    off = {name: rule.flop(job) / printed_flop - 1.0 for name, rule in CONVENTIONS.items()}
    nearest = min(abs(ratio) for ratio in off.values())
    near = [name for name, ratio in off.items() if abs(ratio) <= nearest + ROUNDING]
    name = min(near, key=lambda one: (framework not in CONVENTIONS[one].frameworks, abs(off[one])))
    return Match(name=name, mismatch_ratio=off[name], known=abs(off[name]) <= WORST_MISMATCH)
