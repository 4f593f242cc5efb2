"""Megatron-LM's flags for layers of different kinds: with experts, or with a window of the sequence.

Answers: of which kind is each layer, and in which runs or pattern do the kinds occur?
Elsewhere: the definition of experts (experts.py), the parts that all blocks share (model.py).

References
----------
NVIDIA/Megatron-LM, core v0.15: megatron/training/arguments.py (`tuple_type`, `moe_freq_type`) and
megatron/core/transformer/utils.py (`is_layer_window_attention`). For windows, layers are counted from 1,
and every N-th layer has no window; for `--moe-layer-freq`, layers are counted from 0, and every N-th
layer has experts.
"""

import re
from collections.abc import Callable

from flopcast.interop.hugging_face.windows import runs
from flopcast.interop.megatron.arguments import Arguments
from flopcast.interop.megatron.experts import LINES, NUMBER, asks_for_experts, read_experts
from flopcast.interop.megatron.forks import DENSE, expert_numbers, is_deepspeed_moe, noop_layers
from flopcast.interop.megatron.job_builder import JobBuilder
from flopcast.interop.megatron.latent import MLA

FREQUENCY = "--moe-layer-freq"
WINDOW, SKIPPED = "--window-size", "--window-attn-skip-freq"
SIDES = re.compile(r"[(\[]?(-?[0-9]{1,9}),(-?[0-9]{1,9})[)\]]?")
PART = re.compile(r"\[([01](?:,[01])*)\](?:\*([0-9]{1,4}))?")  # of a pattern of layers: [0]*3
Block = dict[str, object]
Kind = tuple[int, bool]  # number of experts, 1 for a dense layer; whether attention has a window


def read_kinds(args: JobBuilder) -> None:
    """Read the blocks of each kind, which replace the single run of equal blocks.

    Parameters
    ----------
    args : JobBuilder
        The builder has the model's single run of dense blocks without a window.
    """
    number = args.layers
    numbers, narrow = [1] * number, [False] * number
    model = args.data["model"]
    (dense,) = model["blocks"] if isinstance(model, dict) else ({},)
    experts, window = None, read_window(args)
    if asks_for_experts(args):
        experts = read_experts(args, dense)
        numbers = _expert_numbers(args, number)
    if window:
        narrow = _layers(args, SKIPPED, number, lambda layer, step: (layer + 1) % step > 0, number + 1)
    args.noop = noop_layers(args, number)
    every = zip(numbers, narrow, strict=True)
    kinds, pattern = runs([kind for layer, kind in enumerate(every) if layer not in args.noop])
    if kinds == [((1, False), number)]:
        return
    blocks = [_block(dense, count, kind, experts, window) for kind, count in kinds]
    args.put(("model", "blocks"), blocks, NUMBER, WINDOW)
    if pattern:
        args.put(("model", "pattern"), pattern, FREQUENCY, SKIPPED)
    _place(args, [kind for kind, _ in kinds], experts)


def _expert_numbers(args: Arguments, layers: int) -> list[int]:
    """Return the number of experts in each layer, 1 for dense layers such as MindSpeed's first ones."""
    if is_deepspeed_moe(args):
        return expert_numbers(args, layers)
    if len(args.words(NUMBER)) > 1:
        text = " ".join(word.text for word in args.words(NUMBER))
        because = "only DeepSpeed-MoE supports different numbers of experts in different layers"
        args.fault(NUMBER, text, "one number", because, "add --deepspeed, or write one number")
    sparse = _layers(args, FREQUENCY, layers, lambda layer, step: layer % step == 0, 1)
    first = args.count(DENSE, 0, least=0)
    return [args.count(NUMBER) if has_experts and i >= first else 1 for i, has_experts in enumerate(sparse)]


def read_window(args: Arguments) -> int | None:
    """Return the number of keys to which a query attends, including its own; None for all keys before it.

    The flag counts the keys to its left and to its right; -1 means no bound.
    """
    if not args.has(WINDOW):
        if args.has(SKIPPED):
            args.assume(f"{SKIPPED} has no effect without {WINDOW}", SKIPPED)
        return None
    text = args.text(WINDOW).replace(" ", "")
    sides = SIDES.fullmatch(text)
    left, right = (int(sides[1]), int(sides[2])) if sides else (0, 1)
    if left < -1 or right not in (0, -1):
        because = "LEFT is the number of earlier tokens that a query attends to"
        args.fault(WINDOW, text, "LEFT,0, such as 127,0, or -1,0 for all", because, f"write {WINDOW} 127,0")
        return None
    if left >= 0 and args.has(*MLA):
        because = "latent attention with a window is not supported yet"
        args.fault(WINDOW, text, "no window", because, f"remove {WINDOW}")
        return None
    return left + 1 or None


def _layers(
    args: Arguments, flag: str, layers: int, by_number: Callable[[int, int], bool], usual: int
) -> list[bool]:
    """Return a flag's value for each layer: from a number, or a pattern such as ([0]*3+[1]*58)."""
    text = args.text(flag).replace(" ", "")
    if text.isdecimal() or not text:
        step = args.count(flag, usual)
        return [by_number(layer, step) for layer in range(layers)]
    order = layers_of(text, layers)
    if order is None or not any(order):
        allowed = f"a number, or a pattern of {layers} layers such as ([0]*1+[1]*{layers - 1})"
        fix = f"write {flag} {_as_long(text, layers) or 1}"
        args.fault(flag, text, allowed, "this setting states the kind of each layer", fix)
        return [True] * layers
    return order


def _as_long(text: str, layers: int) -> str:
    """Return a pattern whose last part is repeated until it has this many layers; "" if none can be.

    >>> _as_long("([0]*3+[1]*57)", 61), _as_long("[0]*9+[1]*57", 8)
    ('([0]*3+[1]*58)', '')
    """
    last = re.search(r"\*(\d+)(?=\)?$)", text)
    counts = range(1, layers + 1) if last else ()
    found = (f"{text[: last.start(1)]}{count}{text[last.end(1) :]}" for count in counts if last)
    return next((each for each in found if layers_of(each, layers)), "")


def layers_of(text: str, layers: int) -> list[bool] | None:
    """Return a pattern's value for each of this many layers; None if it is not a pattern.

    >>> layers_of("([0]*1+[1,0]*2)", 5), layers_of("[1]*4", 5)
    ([False, True, False, True, False], None)
    """
    parts = [PART.fullmatch(part) for part in text.strip("()").split("+")]
    runs = [(part[1].split(","), int(part[2] or 1)) for part in parts if part]
    if not all(parts) or sum(len(digits) * times for digits, times in runs) != layers:
        return None
    return [digit == "1" for digits, times in runs for digit in digits * times]


def _block(dense: Block, count: int, kind: Kind, experts: Block | None, window: int | None) -> Block:
    number, narrow = kind
    mixer = dense["mixer"]
    block = dense | {"count": count}
    if number > 1 and experts is not None:
        block["feed_forward"] = experts | {"num_experts": number}
    if narrow and isinstance(mixer, dict):
        block["mixer"] = mixer | {"window": window}
    return block


def _place(args: JobBuilder, kinds: list[Kind], experts: Block | None) -> None:
    """Record the flags and the lines of the values of all runs, so that faults name them."""
    first = ("model", "blocks", 0)
    flags = {path[3:]: flag for path, flag in args.flags.items() if path[:3] == first}
    of_experts = {
        ("feed_forward", field): flag for field, flag in LINES.items() if field in (experts or ())
    }
    inside = {path[3:]: line for path, line in args.lines.items() if path[:3] == first}
    for index, (number, narrow) in enumerate(kinds):
        named = (
            flags | (of_experts if number > 1 else {}) | ({("mixer", "window"): WINDOW} if narrow else {})
        )
        named = {path: flag for path, flag in named.items() if args.has(flag)}
        own = inside | {path: args.line(flag) for path, flag in named.items()}
        own |= {("feed_forward", name): args.line(NUMBER) for name in (experts or ()) if number > 1
                if ("feed_forward", name) not in named}  # fmt: skip
        args.lines |= {("model", "blocks", index, *path): line for path, line in own.items()}
        args.flags |= {("model", "blocks", index, *path): flag for path, flag in named.items()}
