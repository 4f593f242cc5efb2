"""Small models under plans, made into programs. No cluster: a workload knows no hardware."""

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.mlp import Mlp
from flopcast.library import catalog
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.spec.batch import Batch
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, batch_plans
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

LENGTH = 2048  # tokens of a sequence in every case, unless a test says otherwise
HIDDEN = 1024
HEADS = 16
VOCABULARY = (
    51200  # of the SC21 models: divisible by 128 · 8, so that no tensor-parallel degree here pads it
)

GPT = Model(  # GPT-2's architecture, as in arXiv:2205.05198: learned positions, tied table, dropout
    hidden=HIDDEN,
    vocabulary=VOCABULARY,
    learned_positions=2048,
    tied_embeddings=True,
    embedding_dropout=0.1,
    blocks=(
        Block(
            count=8,
            mixer=Attention(heads=HEADS, qkv_bias=True, out_bias=True, rotary_fraction=0.0, dropout=0.1),
            feed_forward=Mlp(ffn_hidden=4 * HIDDEN, bias=True),
            dropout=0.1,
        ),
    ),
)
NEOX = Model(  # GPT-NeoX: both halves read the same input, a quarter of each head is turned
    hidden=HIDDEN,
    vocabulary=VOCABULARY,
    blocks=(
        Block(
            count=8,
            residual="parallel",
            mixer=Attention(heads=HEADS, qkv_bias=True, out_bias=True, rotary_fraction=0.25),
            feed_forward=Mlp(ffn_hidden=4 * HIDDEN, bias=True),
        ),
    ),
)
LLAMA = Model(  # Llama 2: grouped key/value heads, gated MLP, no biases
    hidden=HIDDEN,
    vocabulary=VOCABULARY,
    blocks=(
        Block(
            count=8,
            norm="rmsnorm",
            mixer=Attention(heads=HEADS, kv_heads=8),
            feed_forward=Mlp(ffn_hidden=2816, activation="swiglu"),
        ),
    ),
)
MODELS = {"gpt": GPT, "neox": NEOX, "llama": LLAMA}

MEGATRON = catalog.stack("megatron-2022")
BARE = MEGATRON.model_copy(update={"rewrites": ()})  # runs the logical items as they are


def stack_with(base=MEGATRON, **changes):
    """A stack with fields changed; a mapping changes fields of a part."""
    parts = {
        name: getattr(base, name).model_copy(update=change) if isinstance(change, dict) else change
        for name, change in changes.items()
    }
    return base.model_copy(update=parts)


def plan_of(text):
    """A plan from its short form, "tp=2 sp mbs=4 gbs=4"; a word alone means true."""
    pairs = (word.partition("=") for word in text.split())
    return Plan(**{n: int(v) if v.isdigit() else v if equals else True for n, equals, v in pairs})


def plans_of(*texts):
    """Plans of one structure as a batch."""
    return batch_plans([plan_of(text) for text in texts])


def lowered(model, *texts, length=LENGTH):
    return lower(model, plans_of(*texts), Batch(sequence_length=length))


def realised(model, stack, *texts, length=LENGTH):
    return realise(lowered(model, *texts, length=length), stack)


def block_of(programs):
    """The (only) kind of block of a realised model."""
    return next(layer for layer in programs.layers if layer.kind == "block")


def logical_block(model, text, length=LENGTH):
    """The logical forward items of one block."""
    return next(
        layer.forward for layer in lowered(model, text, length=length).layers if layer.kind == "block"
    )


def operators(items):
    return [item for item in items if isinstance(item.work, AbstractOperator)]


def messages(items, collective=None):
    """Messages that are really sent, of one collective if it is named."""
    sent = [item for item in items if isinstance(item.work, AbstractMessage) and item.work.collective]
    return [item for item in sent if collective in (None, item.work.collective)]


def named(items, ending):
    """The one item whose name has this ending."""
    (found,) = [item for item in items if item.name.endswith(ending)]
    return found


def flop_of(items, plan=0):
    return sum(at(item.work.work().flop, plan) for item in operators(items))


def moved_bytes_of(items, plan=0):
    return sum(at(item.work.work().moved_bytes, plan) for item in operators(items))


def at(array, plan=0, column=0):
    """One plan's value of an array over (plans or 1, columns or 1)."""
    return float(array[min(plan, array.shape[0] - 1), min(column, array.shape[1] - 1)])


def repeats(programs, segments, plan=0):
    """How often each segment runs for one micro-batch, over all chunks of all stages."""
    classes = programs.stages.of(plan).chunk_class.ravel()
    return [(segment.items, segment.repeat[plan][classes].sum()) for segment in segments]
