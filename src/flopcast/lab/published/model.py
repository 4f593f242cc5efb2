"""The model that a published run trained, determined from its name, its sizes and its printed FLOP.

Answers: which entry of the catalogue is the model, and which sizes does it have? Does a row's FLOP per
token include a multi-token prediction module? How long are the documents of packed sequences, judged by
their attention FLOP?
Elsewhere: names of models (catalog/runs/models.yaml), details of the training (job.py), conventions for
FLOP (report/flop_conventions.py). A row with TFLOP/s and tokens/s states the FLOP per token that its source
counts. They are compared with the FLOP per token that the model counts; measured times are not used.
"""

from typing import Any

from flopcast.errors import SpecError
from flopcast.files.nearest_names import nearest
from flopcast.lab.published.cells import assumed_heads
from flopcast.lab.published.known_names import KnownModel, model_of
from flopcast.lab.validation.run import PASSES, Architecture, Run
from flopcast.layers.experts import Experts
from flopcast.layers.latent_attention import LatentAttention
from flopcast.library import catalog
from flopcast.library.edits import merged
from flopcast.spec.model import Model

MOST_DOCUMENTS = 64  # in a sequence: shorter ones leave less attention than printed digits tell
ROUNDING_FRACTION = 0.01  # rates are printed with three or four digits
SAME_NAME = 0.85  # of letters in common, from which a name is a misspelling of a catalogue's
# sizes that a row of an unknown model states, and their columns
SIZES = {"num_layers": "layers", "hidden": "hidden", "ffn_hidden": "ffn_hidden", "heads": "heads",
         "vocabulary": "vocab", "gated": "gated_mlp"}  # fmt: skip
CLOSE_FRACTION = 0.05  # further off, the row counts by a formula of its own, and nothing is concluded
VOCABULARY_TOLERANCE = 0.02  # tables print padded vocabularies or bare ones
LONGER_SHARE = (1.0 + (1.0 / 3.0) ** 0.5) / 2.0  # of two documents: see `uniform_documents`


def uniform_documents(length: int) -> tuple[int, int]:
    """Return two documents that need as much attention as packed samples of uniform lengths.

    If lengths are uniform between 0 and the length of the sequence, attention to the own document needs
    E[l²] / (E[l] · length) = 2/3 of the attention over the whole sequence. Two documents need as much if
    the squares of their shares sum to 2/3.

    >>> uniform_documents(8192)
    (6461, 1731)
    """
    longer = round(LONGER_SHARE * length)
    return longer, length - longer


def model_document(run: Run, assumed: list[str]) -> dict[str, object]:
    """Return the catalogue's entry as a base, with the row's sizes.

    Raises
    ------
    SpecError
        No entry has this name and these sizes.
    """
    known = model_of(run)
    if known is None or known.refused:
        because = "the catalogue has no model of this name, and the row does not state all sizes"
        because = known.refused if known else because
        raise SpecError(
            [
                run.fault(
                    "model",
                    run.model,
                    "a model of the catalogue, or a row that states all sizes",
                    because,
                    _right_model(run),
                )
            ]
        )
    if known.sized:
        assumed.append(f"blocks as in {known.base}: {known.because}")
        return _sized(run, known, assumed)
    own = catalog.model(known.base)
    _agrees(run, own)
    return {"base": known.base} | _as_many_layers(run, own, assumed) | _other_vocabulary(run, own, assumed)


def _right_model(run: Run) -> str:
    """Return the fix of a row whose model is unknown: a similar name, or the sizes that the row lacks."""
    near = nearest(run.model, catalog.names("models"), least_ratio=SAME_NAME)
    missing = [column for name, column in SIZES.items() if getattr(run.architecture, name) is None]
    sizes = f"fill these columns of the row: {', '.join(missing)}"
    ways = [*(f"write {name} in the column model_name" for name in near), *([sizes] if missing else [])]
    return ", or ".join(ways) or "leave the row out"


def _sized(run: Run, known: KnownModel, assumed: list[str]) -> dict[str, object]:
    sizes = run.architecture
    heads = sizes.heads or assumed_heads(sizes.hidden or 0)
    if sizes.heads is None:
        assumed.append(
            f"{heads} heads: the row does not state the number of heads; each head has"
            f" {(sizes.hidden or 0) // (heads or 1)} elements"
        )
    mixer = {"heads": heads} | _given(sizes, kv_heads="kv_heads", head_size="head_size")
    block: dict[str, Any] = {"count": sizes.num_layers, "mixer": mixer}
    block["feed_forward"] = {"ffn_hidden": sizes.ffn_hidden or 4 * (sizes.hidden or 0)}
    if sizes.num_experts and not known.experts:
        because = f"flopcast gives runs of this name the blocks of {known.base}, which have no experts"
        raise SpecError([run.fault("n_experts", sizes.num_experts, "an empty cell", because)])
    if known.experts:
        names = {"num_experts": "num_experts", "top_k": "top_k", "expert_hidden": "expert_hidden"}
        block["feed_forward"] = _given(sizes, **names, num_shared_experts="shared_experts")
    block_changes = known.changes.get("blocks", {}).get("0", {})
    blocks = {"0": merged(block, block_changes)}
    document: dict[str, object] = {"base": known.base, "hidden": sizes.hidden, "blocks": blocks}
    document |= _given(sizes, vocabulary="vocabulary", tied_embeddings="tied_embeddings")
    if known.positions and run.sequence_length:
        document["learned_positions"] = run.sequence_length
    return document | {"name": run.model or known.base}


def _given(sizes: Architecture, **names: str) -> dict[str, object]:
    return {to: getattr(sizes, field) for field, to in names.items() if getattr(sizes, field) is not None}


def _agrees(run: Run, own: Model) -> None:
    """Check that a row's sizes equal those of the entry with its name, so that both are the same model."""
    sizes, block = run.architecture, own.blocks[-1]
    mixture = block.feed_forward if isinstance(block.feed_forward, Experts) else None
    pairs = {
        "hidden": (sizes.hidden, own.hidden),
        "heads": (sizes.heads, block.mixer.heads),
        "num_experts": (sizes.num_experts, mixture.num_experts if mixture else None),
        "n_shared_experts": (sizes.num_shared_experts, mixture.shared_experts if mixture else None),
        "attention": (sizes.attention == "mla" if sizes.attention else None, _is_latent(own)),
    }
    wrong = [name for name, (stated, ours) in pairs.items() if stated and stated != ours]
    if wrong:
        because = f"the model of this name in the catalogue has a different {', '.join(wrong)}"
        raise SpecError([run.fault("model", run.model, "the sizes of the named model", because)])


def _is_latent(own: Model) -> bool:
    return isinstance(own.blocks[-1].mixer, LatentAttention)


def _other_vocabulary(run: Run, own: Model, assumed: list[str]) -> dict[str, object]:
    """Return the row's vocabulary if it differs from the entry's because of another tokenizer."""
    stated = run.architecture.vocabulary
    if stated is None or abs(stated / own.vocabulary - 1) <= VOCABULARY_TOLERANCE:
        return {}
    assumed.append(f"vocabulary {stated}, as the row states: the catalogue has {own.vocabulary}")
    return {"vocabulary": stated}


def _as_many_layers(run: Run, own: Model, assumed: list[str]) -> dict[str, object]:
    """Return the model with the row's numbers of layers and of dense layers.

    A repeating pattern is cut, without kinds of blocks that occur only after the cut. Runs of equal blocks
    keep their lengths, except the last run with experts (or the last run of a dense model), which takes the
    remaining layers. `n_dense_layers` is the number of blocks without experts before that run. A model with
    another number of layers has no multi-token prediction unless the row states "MTP".
    """
    layers = run.architecture.num_layers or own.num_blocks
    counts = _pattern_counts(own, layers) if own.pattern else _run_counts(run, own, layers)
    absent = min(counts) < 1
    if absent and not own.pattern:
        kinds = len(own.blocks)
        because = (
            f"{own.name} has {kinds} kinds of blocks, and in a model of {layers} layers one of these"
            f" kinds does not occur"
        )
        raise SpecError([run.fault("layers", layers, f"{own.num_blocks}, or slightly fewer", because)])
    changed = {
        str(place): {"count": count}
        for place, (count, block) in enumerate(zip(counts, own.blocks, strict=True))
        if count != block.count
    }
    document: dict[str, object] = {"blocks": changed} if changed else {}
    if absent:  # a kind of the pattern
        document = _first_blocks(own, counts)
    if layers != own.num_blocks and own.mtp and not run.says("mtp"):
        document["mtp"] = 0
        assumed.append(f"mtp 0: the row has only {layers} layers of {own.name} and does not mention MTP")
    return document


def _pattern_counts(own: Model, layers: int) -> list[int]:
    """Return the number of blocks of each kind in the first layers of a repeating pattern."""
    order = [own.pattern[layer % len(own.pattern)] for layer in range(layers)]
    return [order.count(kind) for kind in range(len(own.blocks))]


def _first_blocks(own: Model, counts: list[int]) -> dict[str, object]:
    """Return the kinds of blocks that occur, if some kinds of a repeating pattern do not."""
    kept = [kind for kind, count in enumerate(counts) if count]
    order = [own.pattern[place] for place in range(sum(counts))]  # shorter than the pattern
    return {
        "blocks": [own.blocks[kind].model_dump() | {"count": counts[kind]} for kind in kept],
        "pattern": [kept.index(kind) for kind in order] if len(kept) > 1 else [],
    }


def _run_counts(run: Run, own: Model, layers: int) -> list[int]:
    """Return the number of blocks in each run of equal blocks; the row may state that of dense layers."""
    experts = [isinstance(block.feed_forward, Experts) for block in own.blocks]
    counts = [block.count for block in own.blocks]
    stretched = max((place for place, kind in enumerate(experts) if kind), default=len(counts) - 1)
    dense = run.architecture.num_dense_layers
    if dense is not None and any(experts):
        before = [place for place, kind in enumerate(experts) if not kind]
        if len(before) > 1 or (dense and not before):
            because = (
                f"{own.name} does not have exactly one group of consecutive dense layers, whose number"
                f" could differ"
            )
            raise SpecError([run.fault("n_dense_layers", dense, "an empty cell", because)])
        if before:
            counts[before[0]] = dense
    counts[stretched] = layers - (sum(counts) - counts[stretched])
    return counts


def printed_token_flop(run: Run) -> float | None:
    """Return the source's FLOP per token; None if the row prints a single rate or counts recompute."""
    seen = run.observed
    if not seen.device_flop_per_s or not seen.device_tokens_per_s or seen.flop_convention == "hardware":
        return None
    return seen.device_flop_per_s / seen.device_tokens_per_s


def trains_mtp(run: Run, model: Model) -> bool | None:
    """Return whether the printed FLOP per token are closer to a model with multi-token prediction.

    The comparison uses the row's convention for attention or, if the row states none, the closer one. The
    result is None if the row states too little, or if neither count is within 5 %.
    """
    printed, length = printed_token_flop(run), run.sequence_length
    if printed is None or length is None or not model.mtp:
        return None
    conventions = {"full": (False,), "causal": (True,)}.get(run.observed.attention, (False, True))
    off = {
        (modules, causal): abs(
            PASSES * model.model_copy(update={"mtp": modules}).forward_flop(length, causal=causal) / length
            - printed
        )
        for modules in (0, model.mtp)
        for causal in conventions
    }
    nearest = min(off, key=lambda case: off[case])
    return nearest[0] > 0 if off[nearest] < CLOSE_FRACTION * printed else None


def packed_documents(run: Run, model: Model) -> tuple[int, ...] | None:
    """Return equal lengths of the documents that are packed into a sequence.

    The number of documents follows from the attention in the printed FLOP per token: with n equal
    documents, attention needs 1 / n of the FLOP of full attention over the whole sequence. The result is
    None if the row prints too little, fewer FLOP than the products of all weights (with half for frozen
    weights), or more FLOP than full attention.
    """
    printed, length = printed_token_flop(run), run.sequence_length
    if printed is None or length is None:
        return None
    attention = PASSES * model.attention_flop(length, windows=False) / length
    products = PASSES * model.forward_flop(length, windows=False) / length - attention
    fraction = (printed - products) / attention
    least, most = products * (1.0 - ROUNDING_FRACTION), (products + attention) * (1.0 + ROUNDING_FRACTION)
    if not least <= printed <= most:
        return None
    count = round(1.0 / min(max(fraction, 1.0 / MOST_DOCUMENTS), 1.0))
    return (*[length // count] * (count - 1), length - length // count * (count - 1))
