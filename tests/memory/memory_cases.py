"""Small models under plans, and what they keep on each stage. No cluster: memory knows no links."""

import numpy as np

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.mlp import Mlp
from flopcast.library import catalog
from flopcast.memory.peak import peak_memory
from flopcast.spec.batch import Batch
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, batch_plans
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

LENGTH, HIDDEN, HEADS, VOCABULARY, BLOCKS = 1024, 512, 8, 51200, 16

GPT = Model(  # no dropout in the embedding: its first layer keeps the token ids alone
    hidden=HIDDEN,
    vocabulary=VOCABULARY,
    blocks=(
        Block(
            count=BLOCKS,
            mixer=Attention(heads=HEADS, qkv_bias=True, out_bias=True, rotary_fraction=0.0, dropout=0.1),
            feed_forward=Mlp(ffn_hidden=4 * HIDDEN, bias=True),
            dropout=0.1,
        ),
    ),
)
MEGATRON = catalog.stack("megatron-2022")


def stack_with(**changes):
    """Megatron-LM of 2022 with fields of its parts changed."""
    parts = {name: getattr(MEGATRON, name).model_copy(update=change) for name, change in changes.items()}
    return MEGATRON.model_copy(update=parts)


def plan_of(text):
    """A plan from its short form, "tp=2 sp mbs=4 gbs=4"; a word alone means true."""
    pairs = (word.partition("=") for word in text.split())
    return Plan(**{n: int(v) if v.isdigit() else v if equals else True for n, equals, v in pairs})


def programs_of(*texts, model=GPT, stack=MEGATRON, length=LENGTH):
    plans = batch_plans([plan_of(text) for text in texts])
    return realise(lower(model, plans, Batch(sequence_length=length)), stack)


def with_blocks(count):
    """The model with another number of blocks."""
    return GPT.model_copy(update={"blocks": (GPT.blocks[0].model_copy(update={"count": count}),)})


class Kept:
    """The memory of one plan, by stage from first to last."""

    def __init__(self, *texts, plan=0, **kwargs):
        self.programs = programs_of(*texts, **kwargs)
        self.memory = peak_memory(self.programs)
        self.plan = plan

    def of(self, values):
        """Values over (plans, stage classes), by stage."""
        classes = self.programs.stages.of(self.plan).stage_class
        shape = self.memory.allocated_bytes.shape
        return np.broadcast_to(values, shape)[self.plan, classes].tolist()

    def category(self, name):
        return self.of(self.memory.by_category[name])

    @property
    def allocated(self):
        return self.of(self.memory.allocated_bytes)
