"""ML.ENERGY Benchmark: latency of diffusion transformers for images and videos, on 1 to 8 H100 or B200.

Source: data/graphs/mlenergy_text-to-image.csv and mlenergy_text-to-video.csv; on GitHub
ml-energy/leaderboard, and arXiv:2505.06371. Each row is one batch on devices that divide the tokens, either
over heads (Ulysses) or in a ring. All parts run eagerly in bf16, including decoders (ml-energy/benchmark,
mlenergy/diffusion/benchmark.py: `torch_dtype`, `use_torch_compile`). Text encoders run once, and decoders
of latents run once per image; each runs on one device. Prompts are padded to the length that the model
states. Sizes of the models are in catalog/runs/diffusion.yaml.

xDiT uses FlashAttention-2, whose instructions are those of Ampere. On H100, FlashAttention-3 is 1.73
times as fast (cost/kernels/generations.py); The priors assume the newest kernels. Blackwell is assumed to
execute the old instructions as fast as Hopper, per multiprocessor and clock.

Two times were chosen with these rows in view, so they are constants (library/graph_efficiencies.py): the
host's time for each kernel described here, which stands for several calls of the framework, and the time
for each hop of a ring.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from flopcast.cost.graph_kernels.priors import BROADCAST, CHAIN
from flopcast.files.package_table import read_table
from flopcast.lab.catalog_facts import catalog_facts
from flopcast.lab.graph_runs.kernels import Software
from flopcast.lab.graph_runs.measured import GraphRun, MeasuredGraph, Setup
from flopcast.lab.graph_runs.sketch import Sketch
from flopcast.lab.run_tables import RunTable
from flopcast.strict_model import StrictModel
from flopcast.units import Number

DEVICES: Mapping[str, Mapping[str, Any]] = read_table(__package__, "names.yaml")["diffusion"]
LINK_FRACTION = 0.7  # that all-to-alls and sends reach
EXCHANGES = 4
MERGE_KERNELS = 5  # that add the partial results of a hop, in fp32 (feifeibear/long-context-attention)
SOFTWARE = Software(precision="half")


class Blocks(StrictModel):
    """Equal blocks of a diffusion transformer.

    `joined`: text has separate weights in each block, and joint attention with the image. Otherwise, the
    image has separate cross-attention to the text. `linear`: attention is linear in the tokens.
    `fp32_parts`: how often a part in fp32 runs, the elements of 16 bits that it moves per token and
    column in addition to a plain norm, and its kernels. `modulations`: passes that scale, shift or gate.
    """

    count: int
    hidden: int
    heads: int
    ffn_hidden: int
    joined: bool = False
    linear: bool = False
    shared: bool = False  # weights of image and text are the same, and both are one sequence
    skip_fraction: Number = 0.0  # of the blocks that read the output of an earlier one too
    fused: bool = False  # modulations, gates and rotary embedding run with their neighbours
    modulations: int = 6
    fp32_parts: tuple[tuple[int, Number, Number], ...] = ()

    @property
    def wide(self) -> tuple[Number, Number]:
        """Return the elements that all fp32 parts move per token and column, and their kernels."""
        return (
            sum(times * elements for times, elements, _ in self.fp32_parts),
            sum(times * kernels for times, _, kernels in self.fp32_parts),
        )


class Diffusion(StrictModel):
    """A model: its blocks, latents, text and decoder.

    `patch` is the side length in pixels of the square that forms one token; `frames` is the number of
    frames that form one. `passes` is the number of passes through the transformer per step: 2 with
    guidance. `decoder` lists the channels at each halving of the side length.
    """

    blocks: tuple[Blocks, ...]
    patch: int
    text_tokens: int
    encoder_parameters: Number
    decoder: tuple[int, ...]
    passes: int = 2
    frames: int = 4
    window: int = 9  # of the decoder's filters


class DiffusionModels(StrictModel):
    """The diffusion transformers of the tables, by their names on the Hugging Face hub."""

    models: Mapping[str, Diffusion]


def runs_of(row: Mapping[str, str]) -> Iterator[GraphRun]:
    """Yield the run of one row."""
    known = catalog_facts("diffusion", DiffusionModels).models
    model, machine = known.get(row["model_id"]), DEVICES.get(row["gpu_model"])
    device = machine["device"] if machine else ""
    names = ("model_id", "gpu_model", "num_gpus", "ulysses_degree", "ring_degree", "batch_size")
    reason, rows, fixed_s = "", None, 0.0
    if model is None or machine is None:
        reason = f"{row['model_id']} on {row['gpu_model']} is not described"
    else:
        sketch = Sketch(element_bytes=2.0, attention_time_ratio=machine["attention_time_ratio"])
        fixed_s = _transformer(sketch, model, row)
        _ends(sketch, model, row)
        rows = sketch.rows()
    yield GraphRun(
        id="/".join(row[name] for name in names),
        source="ML.ENERGY",
        setup=Setup(device=device, software=SOFTWARE, efficiencies="diffusion"),
        rows=rows,
        fixed_s=fixed_s,
        hops=_hops(model, row) if model is not None else 0.0,
        batch=float(row["batch_size"]),
        measured=(
            MeasuredGraph(quantity="batch_latency_s", unit="s", value=float(row["batch_latency_s"])),
        ),
        groups={"device": device, "table": _table(row), "family": row["model_id"].split("/")[-1]},
        reason=reason,
    )


def _table(row: Mapping[str, str]) -> str:
    return "mlenergy_text-to-video" if row.get("num_frames") else "mlenergy_text-to-image"


def _sizes(row: Mapping[str, str]) -> tuple[int, int, int]:
    """Return the frames, height and width of the output of a row."""
    kind = "video" if row.get("num_frames") else "image"
    return int(row.get("num_frames") or 1), int(row[f"{kind}_height"]), int(row[f"{kind}_width"])


def _transformer(sketch: Sketch, model: Diffusion, row: Mapping[str, str]) -> Number:
    """Add the transformer's kernels on one of the devices; return the seconds of its messages."""
    frames, height, width = _sizes(row)
    latent_frames = 1 + (frames - 1) // model.frames
    tokens = latent_frames * (height // model.patch) * (width // model.patch)
    devices, steps = int(row["num_gpus"]), int(row["inference_steps"])
    sequences = int(row["batch_size"]) * model.passes
    sent = 0.0
    for blocks in model.blocks:
        calls = blocks.count * steps
        text = model.text_tokens if blocks.shared else 0
        add_blocks(sketch, blocks, (sequences, tokens + text, model.text_tokens), devices, calls)
        if merges := calls * (int(row["ring_degree"]) - 1):
            elements = sequences * (tokens + text) / devices * blocks.hidden
            sketch.one_pass("elementwise", elements, tensors=4.0, calls=MERGE_KERNELS * merges)
        sent += calls * 4.0 * sequences * tokens / devices * blocks.hidden * sketch.element_bytes
    share = (devices - 1) / devices
    link_bytes_per_s: Number = DEVICES[row["gpu_model"]]["link_bytes_per_s"]
    return sent * share / (link_bytes_per_s * LINK_FRACTION)


def _hops(model: Diffusion, row: Mapping[str, str]) -> Number:
    """Return how often devices wait for messages: hops of rings, and exchanges between heads and tokens.

    Exchanges of queries, keys, values and output take place before and after attention.
    """
    layers = int(row["inference_steps"]) * sum(blocks.count for blocks in model.blocks)
    exchanges = EXCHANGES if int(row["ulysses_degree"]) > 1 else 0
    return layers * (int(row["ring_degree"]) - 1 + exchanges)


def add_blocks(
    sketch: Sketch, blocks: Blocks, sizes: tuple[Number, Number, Number], devices: int, calls: Number
) -> None:
    """Add equal blocks of a diffusion transformer, as they run on one of the devices.

    Parameters
    ----------
    sketch : Sketch
        Receives the kernels.
    blocks : Blocks
        Widths, and how text is included: in joint attention with the tokens of the image, or by
        cross-attention.
    sizes : tuple
        Sequences, tokens of the image or video, and tokens of text.
    devices : int
        Devices that divide the tokens.
    calls : Number
        Number of blocks times the number of denoising steps.
    """
    sequences, tokens, text = sizes
    hidden, width = blocks.hidden, blocks.hidden / blocks.heads
    rows = sequences * tokens / devices
    if devices > 1:  # heads and tokens change places before and after each exchange
        sketch.one_pass("copy", rows * hidden, calls=8 * calls, instructions=BROADCAST)
    if skips := blocks.skip_fraction * calls:
        sketch.product(rows=rows, columns=hidden, depth=2 * hidden, calls=skips)
        sketch.one_pass("concatenate", rows * 2 * hidden, calls=skips)
        sketch.one_pass("layer_norm", rows * 2 * hidden, row=2 * hidden, calls=skips)
    _stream(sketch, blocks, rows, calls)
    keys = tokens + (text if blocks.joined else 0)
    if blocks.linear:
        heads = sequences * hidden / 32 / devices
        sketch.product(batch=heads, rows=33, columns=32, depth=tokens, calls=calls)
        sketch.product(batch=heads, rows=33, columns=tokens, depth=32, calls=calls)
    else:
        heads = sequences * blocks.heads
        sketch.attention(heads=heads, queries=keys / devices, keys=keys, width=width, calls=calls)
    if blocks.joined:
        _stream(sketch, blocks, sequences * text, calls)
    elif not blocks.shared:
        heads = sequences * blocks.heads
        sketch.product(rows=rows, columns=hidden, depth=hidden, calls=2 * calls)
        sketch.product(rows=sequences * text, columns=2 * hidden, depth=hidden, calls=calls)
        sketch.attention(heads=heads, queries=tokens / devices, keys=text, width=width, calls=calls)
        sketch.one_pass("elementwise", rows * hidden, tensors=3.0, calls=calls)


def _stream(sketch: Sketch, blocks: Blocks, rows: Number, calls: Number) -> None:
    """Add the projections, the feed-forward part, and the passes between them, of one stream of tokens."""
    hidden, ffn = blocks.hidden, blocks.ffn_hidden
    sketch.product(rows=rows, columns=hidden, depth=hidden, calls=4 * calls)
    sketch.one_pass("layer_norm", rows * hidden, row=hidden, calls=2 * calls)
    if blocks.linear:
        _mixed_pixels(sketch, blocks, rows, calls)
    else:
        sketch.product(rows=rows, columns=ffn, depth=hidden, calls=calls)
        sketch.one_pass("elementwise", rows * ffn, calls=calls)
        sketch.one_pass("layer_norm", rows * hidden, row=hidden / blocks.heads, calls=2 * calls)
    sketch.product(rows=rows, columns=hidden, depth=ffn, calls=calls)
    if blocks.fused:
        sketch.one_pass("elementwise", rows * hidden, tensors=3.0, calls=2 * calls)
        return
    modulations = blocks.modulations * calls
    sketch.one_pass("elementwise", rows * hidden, calls=modulations, instructions=BROADCAST)
    sketch.one_pass("elementwise", rows * hidden, tensors=3.0, calls=2 * calls)  # residuals
    sketch.one_pass("copy", rows * hidden, calls=2 * calls, instructions=BROADCAST)
    elements, kernels = blocks.wide
    if kernels:
        tensors, calls = elements / kernels, kernels * calls
        sketch.one_pass("elementwise", rows * hidden, tensors=tensors, calls=calls, instructions=CHAIN)


def _mixed_pixels(sketch: Sketch, blocks: Blocks, rows: Number, calls: Number) -> None:
    """Add SANA's feed-forward part without its last product, and the fp32 passes of its linear attention.

    The part is a gate whose filters of 3 x 3 pixels each read one channel. Both convolutions add their
    bias in a separate kernel (models/transformers/sana_transformer.py, GLUMBConv). Queries, keys and
    values are cast, padded, multiplied and divided in fp32 (SanaLinearAttnProcessor2_0).
    """
    hidden, ffn = blocks.hidden, blocks.ffn_hidden
    sketch.product(rows=rows, columns=2 * ffn, depth=hidden, calls=calls)
    sketch.one_pass("bias", rows * 2 * ffn, calls=2 * calls, instructions=BROADCAST)
    sketch.depthwise(rows * 2 * ffn, window=9, calls=calls)
    sketch.one_pass("elementwise", rows * ffn, calls=3 * calls)  # of both halves, and of the gate
    sketch.one_pass("elementwise", rows * ffn, tensors=3.0, calls=calls)
    sketch.one_pass("elementwise", rows * hidden, tensors=3.0, calls=12 * calls, instructions=CHAIN)


def _ends(sketch: Sketch, model: Diffusion, row: Mapping[str, str]) -> None:
    """Add the text encoder before the transformer, and the decoder of latents after it."""
    batch = int(row["batch_size"])
    width = 4096.0
    layers = model.encoder_parameters / width**2
    sketch.product(rows=batch * model.passes * model.text_tokens, columns=width, depth=width, calls=layers)
    frames, height, side = _sizes(row)
    for halvings, channels in enumerate(model.decoder):
        scale = 2.0**halvings
        times = max(1.0, frames / min(scale, model.frames))
        pixels = height * side / scale**2
        sketch.convolution(
            images=batch * times, channels=(channels, channels), pixels=pixels, window=model.window, calls=7
        )
        sketch.one_pass("group_norm", batch * times * pixels * channels, row=2.0**16, calls=7)
        sketch.one_pass("elementwise", batch * times * pixels * channels, calls=7)


TABLE = RunTable(
    header=("batch_latency_s", "inference_steps", "ulysses_degree", "ring_degree", "model_id"),
    runs_of=lambda _path, rows, _options: (run for row in rows for run in runs_of(row)),
)
