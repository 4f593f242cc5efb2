"""Megatron-LM's flags as chunks of layers: the number of chunks on each stage, and the blocks in each
chunk.

Answers: which virtual stages and which list of blocks does a script describe?
Elsewhere: all other flags of a plan (plan.py), the meaning of the list (workload/stages.py), the check of
the list (spec/rules_stages.py). Without these flags, blocks are divided evenly, and no list is created.

References
----------
NVIDIA/Megatron-LM, core v0.13: megatron/core/transformer/transformer_block.py, `get_num_layers_to_build`,
and megatron/core/transformer/pipeline_parallel_layer_layout.py.
"""

import re
from math import gcd

from flopcast.interop.megatron.forks import NOOP
from flopcast.interop.megatron.job_builder import JobBuilder
from flopcast.interop.megatron.model import LAYERS
from flopcast.spec.divisors import dealt, divisors, listed, nearest_divisor

PIPELINE = "--pipeline-model-parallel-size"
SIZE, NUMBER = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
EMBEDDING, LOSS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
LAYOUT = "--pipeline-model-parallel-layout"
LETTERS = "Etm|L"
TIMES = re.compile(r"(\([^()]*\)|[EtmL|])\*([0-9]+)")


def read_stages(args: JobBuilder, stages: int) -> None:
    """Read chunks of layers on each stage, and blocks of each chunk if they are not equal.

    Flags that state the same thing twice are reported: a layout with any other flag, or numbers of blocks
    on the first and last stage with ends that count as layers.
    """
    if args.noop:
        _without_noop(args, stages, _virtual(args, stages))
        return
    if args.has(LAYOUT):
        for flag in (SIZE, NUMBER, FIRST, LAST, EMBEDDING, LOSS):
            args.clash(LAYOUT, flag, "the layout already states the chunk of every layer")
        _layout(args, stages)
        return
    for flag in (FIRST, LAST):
        for counted in (EMBEDDING, LOSS):
            args.clash(flag, counted, "both flags set the number of blocks of the first and the last stage")
    chunks = _virtual(args, stages)
    if args.has(FIRST, LAST):
        _ends(args, stages, chunks)
    elif args.has(EMBEDDING, LOSS):
        _counted_ends(args, stages, chunks)
    elif args.layers % stages and not args.has("--deepspeed") and not args.faulty(*LAYERS, PIPELINE, SIZE):
        _undivided(args, stages, chunks)


def _undivided(args: JobBuilder, stages: int, chunks: int) -> None:
    """Report stages that do not divide the layers, with which Megatron-LM does not start.

    The fix keeps the number of stages if the first one may have fewer layers than the others.
    """
    others = stages - 1
    rest = next((rest for rest in (-(-args.layers // stages), args.layers // stages)
                 if 0 < rest * others < args.layers), 0)  # fmt: skip
    fix = f"write {PIPELINE} {nearest_divisor(gcd(args.layers, args.replicas * stages), stages)}"
    if rest and chunks == 1:
        fix = f"add {FIRST} {args.layers - rest * others}, or {fix}"
    because = f"Megatron-LM starts only with equal stages, unless {FIRST} or {LAST} is given"
    args.fault(PIPELINE, stages, f"a divisor of {args.layers}, the number of layers", because, fix)


def _virtual(args: JobBuilder, stages: int) -> int:
    """Return the number of chunks on each stage, from their number or from their size.

    With L layers, p stages and n layers per chunk, each stage has L / (p n) chunks (arXiv:2104.04473,
    section 2.2.2). If the ends count as layers, L includes them.
    """
    args.clash(SIZE, NUMBER, "each of the two flags determines the other")
    chunks = args.count(NUMBER)
    if args.has(SIZE):
        size = args.count(SIZE)
        layers = args.layers + args.has(EMBEDDING) + args.has(LOSS)
        chunks = max(layers // stages // size, 1)
        known = not args.faulty(*LAYERS, PIPELINE, SIZE) and not args.has(FIRST, LAST)
        if known and layers % (stages * size):
            whole = layers // stages
            allowed = (
                f"a divisor of {layers / stages:g} (the number of layers of a stage: {layers} layers / "
                f"{stages} stages)"
            )
            fix = f"set {PIPELINE} to {nearest_divisor(layers, stages)}"
            if layers % stages == 0:
                allowed += f": {listed(divisors(whole))}"
                fix = f"write {SIZE} {nearest_divisor(whole, size)}"
            args.fault(SIZE, size, allowed, "all chunks have the same number of layers", fix)
    if args.has(SIZE, NUMBER):
        args.put(("plan", "virtual_stages"), chunks, SIZE, NUMBER)
    return chunks


def _without_noop(args: JobBuilder, stages: int, chunks: int) -> None:
    """Put the blocks of each chunk into the plan, without no-op layers (MindSpeed-LLM)."""
    for flag in (LAYOUT, FIRST, LAST, EMBEDDING, LOSS):
        args.clash(NOOP, flag, "no-op layers already determine how layers are divided")
    each, rest = divmod(args.layers, stages * chunks)
    if rest and not args.faulty(*LAYERS, PIPELINE, SIZE, NUMBER):
        allowed = f"{args.layers} layers, including no-op layers, on {stages * chunks} chunks"
        because = "all chunks have the same number of layers"
        fix = f"set {args.first(*LAYERS)} to {max(each, 1) * stages * chunks}"
        args.fault(args.first(*LAYERS), args.layers, allowed, because, fix)
    elif stages * chunks > 1:
        held = [
            each - sum(i * each <= layer < (i + 1) * each for layer in args.noop)
            for i in range(stages * chunks)
        ]
        args.put(("plan", "stage_layers"), held, NOOP)


def _ends(args: JobBuilder, stages: int, chunks: int) -> None:
    """Read the number of blocks on the first or last stage; the others share the rest evenly."""
    stated = {stage: args.count(flag) for stage, flag in ((0, FIRST), (stages - 1, LAST)) if args.has(flag)}
    others, rest = stages - len(stated), args.layers - sum(stated.values())
    each = rest // others if others else 0
    held = [stated.get(stage, each) for stage in range(stages)]
    uneven = args.first(FIRST, LAST)
    if args.faulty(*LAYERS, PIPELINE, FIRST, LAST):
        return
    if sum(held) != args.layers or each < 0 or any(count % chunks for count in held):
        allowed = (
            f"a number for which the rest of the {args.layers} layers can be divided evenly over "
            f"the other {others} stages"
        )
        because = "Megatron-LM divides the other layers evenly"
        if chunks > 1:
            because = f"a stage consists of {chunks} equal chunks"
        args.fault(uneven, stated[min(stated)], allowed, because, f"remove {uneven}")
        return
    args.put(("plan", "stage_layers"), [count // chunks for _ in range(chunks) for count in held], uneven)


def _counted_ends(args: JobBuilder, stages: int, chunks: int) -> None:
    embedding, loss = args.has(EMBEDDING), args.has(LOSS)
    counted = args.layers + embedding + loss
    flag = EMBEDDING if embedding else LOSS
    if args.faulty(*LAYERS, PIPELINE, SIZE, NUMBER):
        return
    if counted % (stages * chunks):
        allowed = (
            f"a script without this flag, because {counted} layers cannot be divided evenly over"
            f" {stages * chunks} chunks"
        )
        ends = " and ".join(["the embedding"] * embedding + ["the loss"] * loss)
        because = f"the script counts {ends} as {'layers' if embedding and loss else 'a layer'}"
        args.fault(flag, True, allowed, because, f"remove {flag}")
        return
    held = dealt(args.layers, stages * chunks, (embedding, loss))
    args.put(("plan", "stage_layers"), list(held), flag)


def _layout(args: JobBuilder, stages: int) -> None:
    """Read the blocks between the bars of a layout, chunk after chunk in the order of the model.

    Multi-token prediction ("m") and the ends must be at their places in the model; a note reports other
    places.
    """
    text = args.text(LAYOUT)
    held = layers_of(text)
    allowed = "E, t, m, L and bars, e.g. 'Et*3|(tt|)*6L'"
    if held is None:
        because = "in a layout, each letter is a layer, and each bar is the end of a chunk"
        args.fault(LAYOUT, text, allowed, because, f"remove {LAYOUT}")
    elif len(held) % stages:
        because = f"all {stages} stages ({PIPELINE}) have the same number of chunks"
        allowed = f"a number of chunks that is a multiple of {stages}"
        fix = f"move the bars so that the layout has {len(held) // stages * stages or stages} chunks"
        args.fault(LAYOUT, f"{len(held)} chunks", allowed, because, fix)
    else:
        args.put(("plan", "virtual_stages"), len(held) // stages, LAYOUT)
        args.put(("plan", "stage_layers"), held, LAYOUT)
        if not text.rstrip("|").endswith("L") or not text.startswith("E"):
            text = "flopcast assumes that embedding and loss are on the first and the last chunk"
            args.assume(text, LAYOUT)


def layers_of(text: str) -> list[int] | None:
    """Return the blocks of every chunk of a layout; None if it is not a layout.

    Examples
    --------
    >>> layers_of("Et*3|(tt|)*2t,m|L")
    [3, 2, 2, 1, 0]
    >>> layers_of("E|x|L") is None
    True
    """
    plain = text.replace(",", "").replace(" ", "")
    while match := TIMES.search(plain):
        part = match[1].strip("()") * min(int(match[2]), 1000)
        plain = plain[: match.start()] + part + plain[match.end() :]
    plain = plain.replace("(", "").replace(")", "")
    if not plain or plain.strip(LETTERS):
        return None
    return [chunk.count("t") for chunk in plain.split("|")]
