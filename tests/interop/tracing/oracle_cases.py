"""What transformers' own code computes and keeps, beside what our layers say of the same config.

A file of `tests/interop/tracing/counts/` is the output of

    flopcast import hf-model tests/interop/configs/NAME.json --trace --counts

where torch and transformers are installed (their versions are in the file). Nothing here needs them.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flopcast.dtypes import constant
from flopcast.files.yaml_text import read_yaml
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.layers.experts import Experts
from flopcast.operators.base import AbstractOperator
from flopcast.spec.batch import Batch
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.stack import Stack
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

HERE = Path(__file__).parent
CONFIGS = (HERE.parent / "configs", HERE / "configs")
NAMES = sorted(path.stem for path in (HERE / "counts").glob("*.json"))

WIDE_NORM = ("wide_rmsnorm",)  # the scale is applied after the cast back to 16 bits
WIDE_SCALED_NORM = ("wide_scaled_rmsnorm",)  # before
SCALED = {"gemma", "gemma2", "gemma3_text", "olmo2", "gpt_oss"}
PLAIN_SOFTMAX = {"gpt2", "falcon"}  # in 16 bits: others cast to fp32


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """One file of counts, and the model that we import from the same config."""

    name: str
    told: dict
    config: dict
    model: Model

    @property
    def family(self):
        return self.told["model_type"]

    @property
    def sequences(self):
        return self.told["sequences"]

    @property
    def length(self):
        return self.told["length"]

    def runs(self, attention="eager"):
        return self.told["traces"][attention]["runs"]

    def total(self, key, attention="eager"):
        """A number of the whole model: all layers, and the ends."""
        trace = self.told["traces"][attention]
        return sum(run["layers"] * run[key] for run in trace["runs"]) + trace["ends"][key]


@cache
def oracle(name):
    """Dropout is off in a trace: its masks on a processor are wider than a GPU's."""
    (path,) = [folder / f"{name}.json" for folder in CONFIGS if (folder / f"{name}.json").exists()]
    config = json.loads(path.read_text(encoding="utf-8"))
    still = {key: 0.0 for key, value in config.items() if isinstance(value, float) and _drops(key)}
    dry = {**dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)} if _is_gpt2(config) else {}
    mapping, _ = model_from_config(read_yaml(json.dumps(config | still | dry).encode(), name))
    told = json.loads((HERE / "counts" / f"{name}.json").read_text(encoding="utf-8"))
    model = Model.model_validate(mapping)
    if told["model_type"].endswith("_text"):  # the code that was traced has no vision tower
        model = model.model_copy(update={"vision": None})
    if told["model_type"] == "llama4_text":
        model = with_every_expert(model)
    return Oracle(name=name, told=told, config=config, model=model)


def with_every_expert(model):
    """Llama 4 as transformers computes it: every token goes to every expert, all but one scaled by zero."""
    blocks = []
    for block in model.blocks:
        layer = block.feed_forward
        if isinstance(layer, Experts):
            layer = layer.model_copy(update={"top_k": layer.num_experts, "load_imbalance_ratio": 1.0})
        blocks.append(block.model_copy(update={"feed_forward": layer}))
    return model.model_copy(update={"blocks": tuple(blocks)})


def _drops(key):
    return "dropout" in key or key.endswith("_pdrop")


def _is_gpt2(config):
    return config["model_type"] == "gpt2"


def rewrites(case, attention):
    """What eager PyTorch runs for this family instead of fused kernels."""
    norm = WIDE_SCALED_NORM if case.family in SCALED else WIDE_NORM
    softmax = () if case.family in PLAIN_SOFTMAX or attention == "fused" else ("wide_softmax",)
    activation = case.config.get("activation_function", case.config.get("hidden_act"))
    gelu = ("unfused_gelu",) if activation == "gelu_new" else ()
    return (*norm, *softmax, "unfused_gate", *gelu)


@cache
def programs(name, attention):
    """Our own programs of the traced micro-batch, on a stack that runs what eager PyTorch runs."""
    case = oracle(name)
    kernel = "flash" if attention == "fused" else "materialised"
    stack = Stack(name="eager", attention_kernel=kernel, rewrites=rewrites(case, attention))
    plan = Plan(micro_batch=case.sequences, global_batch=case.sequences)
    unpadded = case.model.model_copy(update={"vocabulary_multiple": 1})
    return realise(lower(unpadded, one_plan(plan), Batch(sequence_length=case.length)), stack)


def flop_of(items):
    work = [item.work.work().flop * item.count for item in items if isinstance(item.work, AbstractOperator)]
    return float(sum(work, constant(0)).item())


def blocks(name, attention="eager"):
    """(layer, count) of our blocks, by kinds."""
    layers = programs(name, attention).layers
    return [
        (layer, count)
        for layer, (_, count) in zip(layers, oracle(name).model.sequence(), strict=True)
        if layer.kind == "block"
    ]
