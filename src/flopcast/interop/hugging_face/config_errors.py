"""Hugging Face configs of known families that describe an unsupported model.

Answers: does `architectures` name a causal language model, and which keys switch on an unsupported part?
Elsewhere: unsupported families (unsupported.py), values that a family must not have (families.py).

The name of a transformers class shows its head: `LlamaForCausalLM` predicts tokens,
`LlamaForSequenceClassification` predicts a few labels and has no logits over the vocabulary, and
`LlamaBidirectionalModel` (NVIDIA's embedding models) attends in both directions.
"""

import re

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.families import FAMILIES
from flopcast.interop.hugging_face.unsupported import ELSEWHERE, EXPERTS, LATENT, NO_DECODER, OTHERWISE
from flopcast.interop.hugging_face.values import Reader
from flopcast.interop.hugging_face.windows import FULL, LOCAL

HEAD = re.compile(r"For([A-Z]\w*)$")
CAUSAL = ("CausalLM", "ConditionalGeneration", "PreTraining")
NOT_CAUSAL = "Bidirectional"
BOTH_DIRECTIONS = "bidirectional attention is not supported yet"


def refuse_other_heads(document: Document, data: dict[str, object]) -> None:
    """Check that a config describes a causal language model.

    Raises
    ------
    SpecError
        Its class has another head, or its attention is bidirectional.
    """
    name = _class(data)
    head = HEAD.search(name)
    causal = re.sub(r"(For[A-Z]\w*|Model)$", "", name).replace(NOT_CAUSAL, "") + "ForCausalLM"
    key, allowed, because = "architectures", causal, ""
    fix = f"write {causal} to predict the causal model of the same blocks"
    if NOT_CAUSAL in name:
        because = BOTH_DIRECTIONS
    elif head and not head[1].startswith(CAUSAL):
        because = f"this class has a head for {head[1]}, but flopcast predicts a language-model head"
    elif data.get("is_causal") is False:
        key, allowed, because, fix = "is_causal", "true", BOTH_DIRECTIONS, "remove is_causal"
    if because:
        where, value = document.where((key,)), data[key]
        raise spec_error(key, value, allowed, because, fix, where=where)


def headless(data: dict[str, object]) -> str:
    """Return the name of a class without any head, such as `BloomModel`; "" for every other config."""
    name = _class(data)
    return name if name.endswith("Model") and not name.endswith("LMHeadModel") else ""


def by_tracing(document: Document, name: str = "") -> str:
    """Return the fix for an unsupported config: the command that traces the code in transformers.

    Parameters
    ----------
    document : the config
    name : the family, if the family itself is unsupported: models that are not plain decoders cannot be
        traced
    """
    command = f"`flopcast import hf-model {document.name} --trace -o model.yaml`"
    if name in NO_DECODER:
        return f"choose another model; {command} imports only models that are decoders"
    return (
        f"trace the code of the model with {command} (needs torch and transformers), then use --model "
        "model.yaml"
    )


def _class(data: dict[str, object]) -> str:
    """Return the first class that `architectures` names, or ""."""
    listed = data.get("architectures")
    return str(listed[0]) if isinstance(listed, list) and listed else ""


def refuse_what_is_not_built(reader: Reader, name: str) -> None:
    """Raise an error if a config has features that flopcast does not support in its family.

    These can be latent attention, an encoder, experts, or other kinds of layers.

    Raises
    ------
    SpecError
        This error does not wait for others, because the other keys of such a config do not describe a dense
        model.
    """
    refused = [
        (key, because)
        for keys, because in ((EXPERTS, ELSEWHERE["arctic"]), (LATENT, ELSEWHERE["minicpm3"]))
        for key in keys
        if not (keys is EXPERTS and "experts" in FAMILIES[name].facts)
        if not (keys is LATENT and "latent" in FAMILIES[name].facts)
        if reader.raw(key) not in (None, 0, 1, False)
    ]
    refused += [
        (key, because)
        for key, because in OTHERWISE.items()
        if reader.raw(key) is True
        if not (key == "is_encoder_decoder" and "encoder_layers" in FAMILIES[name].facts)
    ]
    kinds = reader.raw("layer_types")
    linear = {"linear_attention", "mamba", "attention"} if "linear" in FAMILIES[name].facts else set()
    built = {*FULL, *LOCAL, *linear, *(("indexed_attention",) if "latent" in FAMILIES[name].facts else ())}
    if isinstance(kinds, list) and not {str(kind) for kind in kinds} <= built:
        refused.append(("layer_types", "flopcast supports only full and windowed attention in this family"))
    if refused:
        raise SpecError(
            Problem(
                where=reader.document.where(reader.values[key][0]),
                field=key,
                value=reader.raw(key),
                allowed="false" if reader.raw(key) is True else f"a {name} decoder without this setting",
                because=because,
                fix=by_tracing(reader.document),
            )
            for key, because in refused
        )
