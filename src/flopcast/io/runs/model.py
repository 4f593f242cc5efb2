"""The model that a published run trained, from its name and sizes.

Answers: which entry of the catalogue is it, with which sizes?
Elsewhere: names of models (catalog/runs/models.yaml), what is special of a training (job.py).
"""

from typing import Any

from flopcast.errors import Problem, SpecError
from flopcast.io import catalog
from flopcast.io.edits import merged
from flopcast.io.runs.known import KnownModel, model_of
from flopcast.io.runs.words import assumed_heads
from flopcast.layers.experts import Experts
from flopcast.spec.model import Model
from flopcast.validation.run import Architecture, Run

VOCABULARY_TOLERANCE = 0.02  # tables print padded vocabularies or bare ones


def model_document(run: Run, assumed: list[str]) -> dict[str, object]:
    """The catalogue's entry as a base, with the row's sizes.

    Raises
    ------
    SpecError
        No entry is of this name and these sizes.
    """
    known = model_of(run)
    if known is None or known.refused:
        because = "no model of this name is in the catalogue, nor are all sizes in the row"
        because = known.refused if known else because
        raise SpecError([_fault(run, "model", run.model, "a model of the catalogue, or sizes", because)])
    if known.sized:
        assumed.append(f"model {known.base}'s block: {known.because}")
        return _sized(run, known, assumed)
    own = catalog.model(known.base)
    _agrees(run, own)
    return {"base": known.base} | _cut_short(run, own) | _other_words(run, own, assumed)


def _sized(run: Run, known: KnownModel, assumed: list[str]) -> dict[str, object]:
    """A block of the catalogue in the row's sizes."""
    sizes = run.architecture
    heads = sizes.heads or assumed_heads(sizes.hidden or 0)
    if sizes.heads is None:
        assumed.append(
            f"{heads} heads: the row prints none; heads of {(sizes.hidden or 0) // (heads or 1)}"
        )
    mixer = {"heads": heads} | _given(sizes, kv_heads="kv_heads", head_size="head_size")
    block: dict[str, Any] = {"count": sizes.num_layers, "mixer": mixer}
    width = sizes.ffn_hidden or 4 * (sizes.hidden or 0)
    block["feed_forward"] = {"ffn_hidden": width}
    block_changes = known.changes.get("blocks", {}).get("0", {})
    blocks = {"0": merged(block, block_changes)}
    document: dict[str, object] = {"base": known.base, "hidden": sizes.hidden, "blocks": blocks}
    document |= _given(sizes, vocabulary="vocabulary", tied_embeddings="tied_embeddings")
    if known.positions and run.sequence_length:
        document["learned_positions"] = run.sequence_length
    return document | {"name": run.model or known.base}


def _given(sizes: Architecture, **names: str) -> dict[str, object]:
    """Sizes that the row prints, by the names of a model."""
    return {to: getattr(sizes, field) for field, to in names.items() if getattr(sizes, field) is not None}


def _agrees(run: Run, own: Model) -> None:
    """A row's sizes against those of the entry of that name: they must be one model."""
    sizes, block = run.architecture, own.blocks[-1]
    experts = block.feed_forward.num_experts if isinstance(block.feed_forward, Experts) else None
    pairs = {
        "hidden": (sizes.hidden, own.hidden),
        "heads": (sizes.heads, block.mixer.heads),
        "num_experts": (sizes.num_experts, experts),
    }
    wrong = [name for name, (said, ours) in pairs.items() if said is not None and said != ours]
    if wrong:
        because = f"the catalogue's model of that name has another {', '.join(wrong)}"
        raise SpecError([_fault(run, "model", run.model, "sizes of the model that is named", because)])


def _other_words(run: Run, own: Model, assumed: list[str]) -> dict[str, object]:
    """The row's vocabulary where it is not just the entry's, padded: another tokeniser, or a later one."""
    said = run.architecture.vocabulary
    if said is None or abs(said / own.vocabulary - 1) <= VOCABULARY_TOLERANCE:
        return {}
    assumed.append(f"vocabulary {said}: as the row says, in the place of {own.vocabulary}")
    return {"vocabulary": said}


def _cut_short(run: Run, own: Model) -> dict[str, object]:
    """The last kind of block in as many layers as the row has; other kinds keep theirs."""
    layers, total = run.architecture.num_layers, own.num_blocks
    if layers is None or layers == total or own.pattern:
        return {}
    rest = layers - (total - own.blocks[-1].count)
    if rest < 1:
        because = "it has fewer layers than its first kinds of blocks alone"
        raise SpecError([_fault(run, "num_layers", layers, f"{total}, or some fewer", because)])
    return {"blocks": {str(len(own.blocks) - 1): {"count": rest}}}


def _fault(run: Run, field: str, value: object, allowed: str, because: str) -> Problem:
    """Why a row's model is none of ours."""
    return Problem(
        where=run.where, field=field, value=value, allowed=allowed, because=because, fix="leave the row out"
    )
