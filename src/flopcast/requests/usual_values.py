"""The default stack, precision and sequence length of a training job, which become assumptions.

Answers: which software, precision and sequence length does a job have if it states none?
Elsewhere: the plan of a job without one (missing_plan.py), defaults of serving (serving_request.py).
"""

from collections.abc import Mapping

from flopcast.files.yaml_text import Document
from flopcast.library import catalog
from flopcast.library.edits import merged
from flopcast.requests.missing_parts import USUAL, stated_plan
from flopcast.requests.serving_words import OF_SERVING
from flopcast.requests.sources import assuming
from flopcast.spec.batch import Batch
from flopcast.spec.cluster import Device
from flopcast.spec.memory_software import OTHER_CODE
from flopcast.spec.plan import Plan
from flopcast.spec.switches import TUNING_CODE

LONGEST_USUAL = 8192  # tokens
USUAL_LENGTH = 2048  # tokens, where the model does not say: GPT-3's (arXiv:2005.14165, section 2.1)
TUNING_STACK = "torch-fsdp2"  # eager PyTorch, sharded where that helps: peft, TRL and torchtune run so
UNSTATED_CODE: dict[str, object] = {**TUNING_CODE, "stands_in": True}  # of fine-tunes: anybody's
UNKNOWN_CODE = (
    "the intervals of time and memory are wide, because training programs differ in the time and memory "
    "that they need"
)
GRAPH_STACK = "torch-fsdp2"
DOUBT = "the interval of memory is wide, because training programs differ in the memory that they need"
NO_IMAGES = "no images: the vision tower takes memory but does not run (--images sets them)"


def with_defaults(document: Document) -> Document:
    """Return a training document with default values for a missing stack, precision and length, as
    assumptions.

    Documents of serving, and documents that are not mappings, are returned unchanged. The default length is
    that of the model's training.
    """
    data = document.data
    if not isinstance(data, dict) or any(name in data for name in OF_SERVING):
        return document
    if "stack" not in data:
        document = with_usual_stack(document)
    document = _with_usual_precision(document)
    batch = data.get("batch", {})
    if isinstance(batch, dict) and batch.keys() <= {"forward_only", "source_length", "images"}:
        document = _with_usual_length(document, batch)
    return _beyond_context(_without_images(_with_source_length(document)))


def _with_usual_precision(document: Document) -> Document:
    """Return the document with a plan in fp16 if it states no precision and the device has no bf16."""
    device, stated = _device(document), stated_plan(document)
    if device is None or not stated or "precision" in stated:
        return document
    dtype, usual = device.dtype_of_16_bits, Plan.model_fields["precision"].default
    if dtype == usual:
        return document
    plan = document.mapping["plan"]
    narrow = f"{plan} precision={dtype}" if isinstance(plan, str) else plan | {"precision": dtype}
    return _with_assumed(document, "plan", narrow, f"precision {dtype}, because the device has no {usual}")


def _with_usual_length(document: Document, batch: dict[str, object]) -> Document:
    """Return the document with the usual length of a sequence; a sample of an exported graph has none."""
    if _is_graph(document):
        return document.with_part("batch", batch | {"sequence_length": 1})
    length = _usual_length(_model_of(document))
    changed = batch | {"sequence_length": length}
    return _with_assumed(document, "batch", changed, f"sequence_length {length}")


def _with_source_length(document: Document) -> Document:
    """Return the document with sequences for an encoder that are as long as the decoder's."""
    batch, blocks = document.mapping.get("batch"), _model_of(document).get("blocks")
    entries = blocks if isinstance(blocks, list | tuple) else ()
    has_encoder = any(isinstance(each, Mapping) and each.get("reads") == "source" for each in entries)
    if not has_encoder or not isinstance(batch, dict) or "source_length" in batch:
        return document
    of_decoder = batch.get("sequence_length", batch.get("seq"))
    if not isinstance(of_decoder, int) or of_decoder < 1:
        return document
    length = Batch(sequence_length=of_decoder).source_tokens
    note = f"source_length {length}, the length of the decoder's sequences"
    return _with_assumed(document, "batch", batch | {"source_length": length}, note)


def _beyond_context(document: Document) -> Document:
    """Return the document with a note if its sequences are longer than those of its model's training."""
    batch, context = document.mapping.get("batch"), _model_of(document).get("context_length")
    length = batch.get("sequence_length", batch.get("seq")) if isinstance(batch, dict) else None
    if not isinstance(length, int) or not isinstance(context, int) or not 0 < context < length:
        return document
    return assuming(
        document, (f"sequences have {length} tokens, but the model's context has only {context}",)
    )


def _without_images(document: Document) -> Document:
    """Return the document with the note that no sequence has images, if its model could see some."""
    batch, sees = document.mapping.get("batch"), _model_of(document).get("vision")
    if not sees or (isinstance(batch, dict) and batch.keys() & {"images", "micro_batches", "ranks"}):
        return document
    return assuming(document, (NO_IMAGES,))


def with_usual_stack(document: Document) -> Document:
    """Return the document with the usual stack of its model and devices, as an assumption.

    Exported graphs run in eager PyTorch. Otherwise, the catalogue entry of the device names the stack: one
    for all models, and one for models with experts, which is used if it supports the ZeRO stage of the
    plan. Fine-tunes on other devices run in PyTorch. Everything else runs in the stack that the entry names
    for pretraining, or in the default stack. The assumption states the reason.
    """
    device, why = _device(document), ""
    changes: dict[str, object] = {}
    stack = device.usual_stack if device else ""
    if _is_graph(document):
        stack, why, changes = GRAPH_STACK, f" (exported graphs run in eager PyTorch; {DOUBT})", OTHER_CODE
    elif not stack and _fine_tunes(document):
        mark = "" if _adapted(document) else ", because a job with a number of samples is a fine-tune"
        why = f" (most fine-tunes run in PyTorch{mark}; {UNKNOWN_CODE})"
        stack, changes = TUNING_STACK, UNSTATED_CODE
    elif (
        device
        and _has_experts(document)
        and _shards(document, of_experts := _expert_stack(document, device))
    ):
        stack, why = of_experts, " (as in NVIDIA's recipes for MoE models on this device)"
    elif device and not stack and device.usual_pretraining_stack:
        stack, why = device.usual_pretraining_stack, f" ({USUAL['stack']} is older than the device)"
    stack = stack or USUAL["stack"]
    value = {"base": stack, **changes} if changes else stack
    return _with_assumed(document, "stack", value, f"stack {stack}{why}")


def _expert_stack(document: Document, device: Device) -> str:
    """Return the device's usual stack of models with experts, in the precision of the plan; "" for none."""
    stacks = device.usual_expert_stacks
    return stacks.get(str(stated_plan(document).get("precision"))) or stacks.get("other", "")


def _fine_tunes(document: Document) -> bool:
    """Return whether the document has adapters or samples, and no ZeRO stage that TUNING_STACK lacks."""
    run = document.mapping.get("run")
    tuned = _adapted(document) or (isinstance(run, dict) and run.get("samples") is not None)
    return tuned and _shards(document, TUNING_STACK)


def _adapted(document: Document) -> bool:
    """Return whether the model has adapters."""
    model = document.mapping.get("model")
    return isinstance(model, dict) and model.get("adapters") is not None


def _is_graph(document: Document) -> bool:
    """Return whether the model is an exported graph, which has no vocabulary."""
    return _model_of(document).get("vocabulary") == 0


def _shards(document: Document, stack: str) -> bool:
    """Return whether a stack is named and has the ZeRO stage that the document's plan states, if any."""
    zero = stated_plan(document).get("zero")
    return bool(stack) and (zero is None or zero in catalog.stack(stack).sharding.zero_stages)


def _device(document: Document) -> Device | None:
    """Return the device of a cluster of the catalogue, or None."""
    name = str(stated_cluster(document).get("base", "")).partition(":")[0]
    known = name and catalog.known("clusters", name) is not None
    return catalog.cluster(name).node.device if known else None


def _has_experts(document: Document) -> bool:
    """Return whether a block of the model has experts."""
    blocks = _model_of(document).get("blocks")
    parts = [_by_name(block).get("feed_forward") for block in blocks] if isinstance(blocks, list) else []
    return any(_by_name(part).get("num_experts") for part in parts)


def _usual_length(known: Mapping[str, object]) -> int:
    """Return the default sequence length: that of the model's training, up to 8192."""
    lengths = (known.get(field) for field in ("trained_length", "context_length", "learned_positions"))
    length = next(filter(None, lengths), None)
    if isinstance(length, int) and not isinstance(length, bool) and length > 0:
        return min(length, LONGEST_USUAL)
    return USUAL_LENGTH


def _model_of(document: Document) -> Mapping[str, object]:
    """Return the fields of a model, and those of the model of the catalogue that it changes."""
    own = _by_name(document.mapping.get("model"))
    base = str(own.get("base"))
    data = merged(catalog.document("models", base).data, own) if catalog.known("models", base) else own
    return data if isinstance(data, dict) else {}


def _with_assumed(document: Document, key: str, value: object, note: str) -> Document:
    """Return the document with a value of a key, and with a note that says so."""
    return assuming(document.with_part(key, value), (note,))


def stated_cluster(document: Document) -> dict[str, object]:
    """Return the cluster as a base with changes.

    There is no base if the cluster is described or missing.
    """
    return _by_name(document.mapping.get("cluster"))


def _by_name(noun: object) -> dict[str, object]:
    """Return a part of a job as a mapping. A name becomes {"base": name}, any other value {}."""
    return {"base": noun} if isinstance(noun, str) else noun if isinstance(noun, dict) else {}
