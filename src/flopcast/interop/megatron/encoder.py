"""Megatron-LM's flags of encoder-decoder models: pretrain_t5.py.

Answers: how long and how deep are encoder and decoder, and how does a pipeline divide them?
Elsewhere: the parts that the blocks of both share (model.py).

References
----------
NVIDIA/Megatron-LM, core v0.12: pretrain_t5.py, megatron/core/models/T5/t5_model.py, and megatron/training/
arguments.py. Encoder and decoder share the token table and the positions; the head has a bias.
"""

from flopcast.interop.megatron.job_builder import JobBuilder

DEPTH, LENGTH = "--decoder-num-layers", "--decoder-seq-length"
SPLIT = "--pipeline-model-parallel-split-rank"
BUCKETS = "--relative-attention-num-buckets"
CROSSED = ("heads", "head_size", "qkv_bias", "out_bias", "dropout")
PROGRAM = "pretrain_t5.py"


def read_encoder(args: JobBuilder) -> None:
    """Convert the single run of blocks, which these flags describe as the encoder's, to an encoder and a
    decoder.

    The function does nothing for a decoder-only model, whose command has no decoder flags.
    """
    model, batch = args.data["model"], args.data["batch"]
    if not args.has(DEPTH, LENGTH) or not isinstance(model, dict) or not isinstance(batch, dict):
        return
    if len(model["blocks"]) > 1:
        because = "encoder-decoder models whose layers differ are not supported yet"
        allowed = "equal layers"
        args.fault(args.first(LENGTH, DEPTH), None, allowed, because, "remove it", "is not supported")
        return
    depth, below = args.layers, args.count(DEPTH, args.layers)
    args.put(("batch", "source_length"), batch["sequence_length"], "--encoder-seq-length", "--seq-length")
    args.put(("batch", "sequence_length"), args.required(LENGTH), LENGTH)
    (block,) = model["blocks"]
    mixer = block["mixer"]
    cross = {name: mixer[name] for name in CROSSED if name in mixer}
    encoder = block | {"reads": "source", "mixer": mixer | {"causal": False}}
    rest = [encoder | {"count": depth - 1}] if depth > 1 else []
    last = encoder | {"count": 1, "ends_encoder": True}
    args.put(("model", "blocks"), [*rest, last, block | {"count": below, "cross": cross}], DEPTH, LENGTH)
    args.put(("model", "head_bias"), True, LENGTH)
    args.layers = depth + below
    _divide(args, depth, below)


def _divide(args: JobBuilder, depth: int, below: int) -> None:
    """Divide both over the stages before and after the split rank; without it, all blocks evenly."""
    if not args.has(SPLIT):
        return
    stages = args.count(args.first("--pipeline-model-parallel-size", "--pp-size"), 1)
    before = args.count(SPLIT)
    if before >= stages or depth % before or below % (stages - before):
        because = (
            f"the {depth} layers of the encoder are divided over this number of stages, and the {below}"
            f" layers of the decoder over the other stages"
        )
        allowed = (
            f"a number from 1 to {stages - 1} that divides the layers of the encoder and of the decoder "
            "evenly"
        )
        args.fault(SPLIT, before, allowed, because, f"correct {SPLIT}, or remove it for an even division")
        return
    held = [depth // before] * before + [below // (stages - before)] * (stages - before)
    args.put(("plan", "stage_layers"), held, SPLIT)
