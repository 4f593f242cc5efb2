"""Small jobs as plain parts, the faults that they are told, and the edits that a fault advises."""

import re

from conftest import make_job

from flopcast.errors import Problem, problems_of
from flopcast.files.yaml_text import resolve

PLAN = {"data_parallel": 8, "micro_batch": 1, "global_batch": 16, "precision": "fp16"}
DEEPSPEED = "gpt-neox-deepspeed"  # divides layers by its own rule, not evenly
EDIT = re.compile(r"(\w+) (?:to|at) (\w+(?:[-:.,=]\w+)*)")


def model(blocks=8, heads=16, ffn_hidden=4096, **mixer):
    """A small GPT whose heads have 64 elements."""
    return {
        "hidden": 64 * heads,
        "vocabulary": 50257,
        "blocks": [
            {"count": blocks, "mixer": {"heads": heads} | mixer, "feed_forward": {"ffn_hidden": ffn_hidden}}
        ],
    }


def mixture(num_experts=8, **fields):
    """The same, whose feed-forward is eight experts, of which a token uses two."""
    layer = {"num_experts": num_experts, "top_k": 2, "expert_hidden": 1024} | fields
    return model() | {"blocks": [model()["blocks"][0] | {"feed_forward": layer}]}


def traced(**fields):
    """A model of one traced product a block."""
    product = {"kind": "matmul", "name": "w", "inputs": ["x"], "output": "y", "m": {"tokens": 1}}
    mixer = {
        "kind": "traced",
        "weights_of_block": [{"name": "w", "elements": 64 * 64}],
        "operators": [product | {"n": 64, "k": 64}],
    } | fields
    block = {"count": 8, "mixer": mixer, "feed_forward": {"kind": "none"}}
    return {"hidden": 64, "vocabulary": 512, "blocks": [block]}


def linear():
    """A model of linear attention."""
    mixer = {"kind": "gated_delta", "heads": 8, "key_heads": 8, "key_size": 8, "value_size": 8}
    block = {"count": 8, "mixer": mixer, "feed_forward": {"ffn_hidden": 256}}
    return {"hidden": 64, "vocabulary": 512, "blocks": [block]}


def graph(row=None, picks=False, **fields):
    """An exported graph of one product, with an embedding table if it has rows of a size.

    If it picks, the product's input is rows that an operator picks.
    """
    table = [{"name": "table", "elements": 1024 * row, "row": row}] if row else []
    product = {"kind": "matmul", "name": "linear", "inputs": ["x"], "output": "y"}
    product |= {"m": {"sequences": 1}, "n": 64, "k": 64}
    mixer = {"kind": "traced", "batch_of": "samples", "units": 1}
    pick = {"kind": "graph_pass", "family": "gather", "name": "pick", "inputs": ["x"], "output": "rows"}
    pick |= {"read": [{"sequences": 64}], "written": {"sequences": 64}, "moved": {"sequences": 128}}
    operators = [pick, product | {"inputs": ["rows"]}] if picks else [product]
    mixer |= {"weights_of_block": table, "operators": operators}
    blocks = [{"count": 1, "mixer": mixer, "feed_forward": {"kind": "none"}}]
    return {"hidden": 64, "vocabulary": 0, "blocks": blocks} | fields


def seeing(**fields):
    """The small model behind a vision tower of two blocks, of whose images each token is 28 · 28 pixels."""
    attention = {"heads": 4, "causal": False}
    tower = {
        "hidden": 64,
        "patch": 14,
        "merge": 2,
        "blocks": [{"count": 2, "mixer": attention, "feed_forward": {"ffn_hidden": 256}}],
        "projections": [{"widths": [256, model()["hidden"]]}],
    }
    return model() | {"vision": tower} | fields


def encoder(**fields):
    """The small model as a decoder of six blocks behind an encoder of two."""
    (block,) = model()["blocks"]
    reads = block | {"count": 1, "reads": "source", "mixer": block["mixer"] | {"causal": False}}
    decoder = block | {"count": 6, "cross": {"heads": block["mixer"]["heads"]}}
    return model() | {"blocks": [reads, reads | {"ends_encoder": True}, decoder]} | fields


def parts(**changes):
    """Parts of a job; words that are no part of it change the plan."""
    nouns = {
        key: changes.pop(key)
        for key in ("model", "cluster", "stack", "batch", "site", "checkpoint", "loader")
        if key in changes
    }
    return nouns | {"plan": PLAN | changes}


def decoded(written):
    """Data of broken_rules.yaml: {small: …} and other words stand for models of these functions."""
    if isinstance(written, list):
        return [decoded(each) for each in written]
    if not isinstance(written, dict):
        return written
    data = {key: decoded(value) for key, value in written.items()}
    for name, make in (
        ("small", model),
        ("mixture", mixture),
        ("traced", traced),
        ("linear", linear),
        ("encoder", encoder),
        ("seeing", seeing),
        ("graph", graph),
    ):
        if name in data:
            return make(**data.pop(name)) | data
    return data


def faults(whole):
    """What the job is told; nothing where it is right."""
    return tuple(problems_of(lambda: make_job(**whole)))


def key(problem: Problem):
    """What names the rule behind a fault."""
    return problem.field, problem.because


def edits(problem):
    """The alternatives of a fault's advice that name a value, each as {name: value}."""
    found = []
    for text in re.split(r",? or ", problem.fix):
        if text.startswith(("set ", "leave ")):
            found.append({name: resolve(value.lower()) for name, value in EDIT.findall(text)})
        elif text.startswith("remove "):
            found += problem.edits
    return found


def edited(whole, edit):
    """The parts after an edit, as a user would write it."""
    result = dict(whole)
    for name, value in edit.items():
        if name == "packed":
            result["batch"] = whole["batch"] | {"packed": value}
        else:
            result["plan"] = result["plan"] | {name: value}
    return result
