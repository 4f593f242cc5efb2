"""Conversion of a Hugging Face config.json to a model, with notes on assumptions and omissions.

Answers: which model does this config describe, and which of its parts does flopcast not know?
Elsewhere: families and their defaults (families.py), keys and kinds of values (values.py), the check of the
result (files/validate.py), layers with a window (windows.py).

Only the architecture is imported: no code of a checkpoint runs, and no weights are read. Passes that only
scale a tensor are not counted.
"""

import difflib
import json
import re
from typing import Any

from flopcast.errors import SpecError, spec_error
from flopcast.files.nearest_names import choice_fix, some_of
from flopcast.files.unknown_keys import unknown_key
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.fixes import set_to
from flopcast.interop.hugging_face.config_errors import (
    by_tracing,
    headless,
    refuse_other_heads,
    refuse_what_is_not_built,
)
from flopcast.interop.hugging_face.decoder_facts import (
    ACTIVATIONS,
    DecoderFacts,
    feed_forward_of,
    kind_of_layer,
    meant_activation,
    mixer_of,
    with_encoder,
)
from flopcast.interop.hugging_face.experts import layers_called_dense
from flopcast.interop.hugging_face.families import FAMILIES, ConfigFact, Family
from flopcast.interop.hugging_face.unsupported import ELSEWHERE, LEFT_OUT, MAPPINGS, SILENT, TYPES
from flopcast.interop.hugging_face.values import FACTS, Reader, flattened
from flopcast.interop.hugging_face.vision import tower_of_config
from flopcast.interop.hugging_face.windows import runs
from flopcast.spec.divisors import even_width, is_odd_width, nearest_divisor
from flopcast.spec.model import Model

OF_BLOCK = ("norm", "norm_scale", "norm_placement", "residual")  # facts that fields of a block repeat
OF_MODEL = (  # facts that fields of a model repeat
    "hidden", "vocabulary", "relative_positions", "embedding_norm", "embedding_dropout", "head_bias", "mtp"
)  # fmt: skip
NEAR_RATIO = 0.75  # of letters in common, from which a family is a misspelling of another one
NO_FAMILY = ("auto", "none", "null", "true", "false")
DTYPES = ("float32", "float16", "bfloat16", "float64", "auto")
TEXT_PARTS = ("text_config", "llm_config", "language_config")


def model_from_config(document: Document) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the model that a config.json describes.

    Parameters
    ----------
    document : the plain data of the file, of a text model or of one with a text part, and its lines

    Returns
    -------
    mapping
        The data that `spec.model.Model` validates; fields with the default value of a Model are left out.
    notes
        Sentences for the user about defaults, unknown keys, and parts that are imported in simplified form.

    Raises
    ------
    SpecError
        The architecture is not supported, or values have faults, which are all reported.

    Examples
    --------
    >>> from flopcast.files.yaml_text import read_yaml
    >>> text = b'{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32}'
    >>> mapping, notes = model_from_config(read_yaml(text, "config.json"))
    >>> mapping["hidden"], mapping["learned_positions"], mapping["tied_embeddings"]
    (64, 32, True)
    >>> notes[0][:60]
    'keys that config.json omits have the defaults of gpt2: vocab'
    """
    if not isinstance(document.data, dict):
        because = "a configuration is a mapping from keys to values"
        fix = "give the config.json of the model"
        where, fault = document.where(()), "is not a mapping"
        raise spec_error("document", document.data, "a mapping", because, fix, where, fault)
    refuse_other_heads(document, document.data)
    part, values = _text_part(document.data)
    reader = Reader(document, values)
    name = _family(reader)
    refuse_what_is_not_built(reader, name)
    family = FAMILIES[name]
    decoder = _architecture(reader, family)
    tower, notes = tower_of_config(document, document.data, decoder.hidden)
    if part and tower is None:
        notes = [f"only the text model ({part}) is imported, not the rest of the configuration"]
    if name_of_class := headless(document.data):
        notes.append(f"{name_of_class} has no head; the prediction includes the head of a language model")
    notes += _notes(reader, family, name)
    _refuse_mappings(reader)
    if reader.problems:
        raise SpecError(reader.problems.values())
    name = str(document.data["model_type"]) if tower else name
    return _mapping(reader, name, decoder, tower), tuple(notes)


def _text_part(data: dict[str, object]) -> tuple[str, dict[str, Any]]:
    """Return the key of the text model inside a multi-part model, and the values that apply to it.

    If the part omits ties and numbers, those of the whole config apply. A part without a type has the
    type of the whole config.
    """
    for key in TEXT_PARTS:
        inner = data.get(key)
        if isinstance(inner, dict):
            shared = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "model_type")
            outer = flattened({name: data[name] for name in shared if name in data})
            return key, outer | flattened(inner, (key,))
    return "", flattened(data)


def _family(reader: Reader) -> str:
    """Return the family of `model_type` or, without it, of the first of `architectures`.

    Raises
    ------
    SpecError
        The family is unknown: the error states why it is not imported, or the nearest known family.
    """
    model_type = reader.raw("model_type")
    architectures = reader.entries(
        "architectures", lambda one: isinstance(one, str), "a list of names"
    ) or [""]
    stem = re.sub(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|Model)$", "", architectures[0])
    written = str(model_type or stem).lower()
    plain = {name.replace("_", ""): name for name in (*FAMILIES, *TYPES, *ELSEWHERE)}
    name = plain.get(written.replace("_", ""), written)
    name = TYPES.get(name, name)
    if name in FAMILIES:
        return name
    key = "model_type" if model_type is not None else "architectures"
    path, value = reader.values.get(key, ((key,), None))
    near = difflib.get_close_matches(written, FAMILIES, n=1, cutoff=NEAR_RATIO) if written else []
    because = ELSEWHERE.get(name, "flopcast does not know this family")
    suggestion = f"did you mean {near[0]}? Otherwise " if near and name not in ELSEWHERE else ""
    fix, fault = suggestion + by_tracing(reader.document, name), ""
    if not value:
        because, fault = "flopcast determines the family of a model from this key", "is missing"
        fix = "give the config.json of a model; flopcast predict reads job files"
        if "hidden_size" in reader.values:
            fix = 'add "model_type": "llama", if the layers are those of Llama'
    elif written in NO_FAMILY:
        because = f"{written} is not the name of a family"
        fix = f"copy {key} from the original config.json of the model"
    allowed, where = some_of(sorted(FAMILIES)), reader.document.where(path)
    raise spec_error(key, value, allowed, because, fix, where, fault)


def _architecture(reader: Reader, family: Family) -> DecoderFacts:
    """Return every fact in the family's table, and check the rules between them."""
    facts: dict[str, Any] = {}
    reader.used.update(family.unpriced)
    for name, rule in family.facts.items():
        if isinstance(rule, ConfigFact):
            facts[name] = reader.fact(name, rule.default, rule.keys)
        else:
            facts[name] = rule(reader) if callable(rule) else rule
    if "experts" in facts and (dense := layers_called_dense(reader, facts["layers"])) is not None:
        facts["dense_layers"] = dense
    decoder = DecoderFacts(**facts)
    _check_heads(reader, decoder)
    known = [name for name, (_, gated) in ACTIVATIONS.items() if gated or not decoder.gated]
    if decoder.activation not in known:
        because = "flopcast does not support other activations of this MLP"
        usual = str(getattr(family.facts.get("activation"), "default", ""))
        right = meant_activation(decoder.activation, gated=decoder.gated, usual=usual)
        reader.fault(reader.key_of("activation"), ", ".join(known), because, f"write {right}")
    _check_musts(reader, family, decoder)
    return decoder


def _check_heads(reader: Reader, decoder: DecoderFacts) -> None:
    """Check that heads divide the width and groups divide the heads, if these numbers are valid."""
    hidden, heads, groups = (reader.key_of(name) for name in ("hidden", "heads", "kv_heads"))
    if (
        decoder.head_size is None
        and decoder.latent is None
        and decoder.hidden % decoder.heads
        and not {hidden, heads} & set(reader.problems)
    ):
        key, allowed = heads, f"a divisor of {hidden} ({decoder.hidden})"
        right = nearest_divisor(decoder.hidden, decoder.heads)
        if is_odd_width(decoder.hidden):
            key, allowed = hidden, f"a multiple of {heads} ({decoder.heads})"
            right = even_width(decoder.hidden, decoder.heads)
        reader.fault(key, allowed, "all heads have the same size", set_to({key: right}))
    if decoder.kv_heads is not None and decoder.heads % decoder.kv_heads and heads not in reader.problems:
        allowed = f"a divisor of {heads} ({decoder.heads})"
        fix = set_to({groups: nearest_divisor(decoder.heads, decoder.kv_heads)})
        reader.fault(groups, allowed, "every key/value head has the same number of query heads", fix)


def _check_musts(reader: Reader, family: Family, decoder: DecoderFacts) -> None:
    """Check the number format of the weights, and keys whose other values mean another architecture."""
    for must in family.musts:
        wanted = getattr(decoder, must.same_as) if must.same_as else must.wanted
        if reader.raw(must.key) not in (None, wanted):
            allowed = json.dumps(wanted)
            reader.fault(must.key, allowed, must.because, by_tracing(reader.document))
    for key in ("torch_dtype", "dtype"):
        if reader.raw(key) not in (None, *DTYPES):
            allowed = ", ".join(DTYPES)
            because = "these are the formats in which weights are stored"
            fix = choice_fix(str(reader.raw(key)), dict(zip(DTYPES, DTYPES, strict=True)), "bfloat16")
            reader.fault(key, allowed, because, fix)


def _refuse_mappings(reader: Reader) -> None:
    """Report mappings under cost-free keys that hold one value in a file of the expected kind."""
    for key in sorted(SILENT - MAPPINGS):
        if isinstance(reader.values.get(key, ((), None))[1], dict):
            because = "the code of the model in transformers expects a single value, not a mapping"
            reader.fault(key, "a number, a text or a list", because, f"correct or remove {key}")


def _notes(reader: Reader, family: Family, name: str) -> list[str]:
    notes = []
    if reader.defaults:
        taken = ", ".join(f"{key} {_shown(value)}" for key, value in reader.defaults.items())
        notes.append(f"keys that config.json omits have the defaults of {name}: {taken}")
    values = ((key, reader.raw(key)) for key in family.scales)
    scaled = [key for key, value in values if value is True or value not in (None, False, 1, 1.0)]
    if scaled:
        notes.append(f"{', '.join(scaled)}: the time of scaling or clipping tensors is ignored")
    for key, counted in LEFT_OUT.items():
        if reader.raw(key) not in (None, 0):
            notes.append(f"{key} = {reader.raw(key)}: {counted}")
    for key in ("quantization_config", "compression_config"):
        if reader.raw(key) is not None:
            notes.append(f"{key} is ignored: the model is imported in full precision")
    facts = [key for fact in FACTS.values() for key in fact.keys]
    known = [*reader.used, *SILENT, *TEXT_PARTS]
    for key in reader.unused(SILENT):
        others = [other for other in known if other != key]
        unknown = unknown_key(
            key,
            reader.values[key][1],
            program=name,
            weighty=facts,
            others=others,
            given=reader.values,
            least_fraction=0.75,
        )
        if unknown.because:
            fix = f"did you mean {unknown.near}?" if unknown.near else by_tracing(reader.document)
            reader.fault(key, f"a key of {name}", unknown.because, fix, "is not known")
            continue
        hint = f": did you mean {unknown.near}?" if unknown.near else ""
        notes.append(f"{key} is not a known key of {name}, and was ignored{hint}")
    return notes


def _mapping(
    reader: Reader, name: str, decoder: DecoderFacts, tower: dict[str, object] | None
) -> dict[str, object]:
    """Return the facts as fields of a Model, without its defaults."""
    block = {name: getattr(decoder, name) for name in OF_BLOCK} | {
        "norm_bias": decoder.norm_bias or decoder.norm == "rmsnorm",  # which has none, whatever is said
        "dropout": decoder.hidden_dropout,
    }
    kinds, pattern = runs([kind_of_layer(decoder, layer) for layer in range(decoder.layers)])
    blocks = [
        block
        | {"count": count, "mixer": mixer_of(decoder, kind), "feed_forward": feed_forward_of(decoder, kind)}
        for kind, count in kinds
    ]
    whole = {name: getattr(decoder, name) for name in OF_MODEL} | {
        "name": _name(reader, name),
        "context_length": decoder.context,
        "learned_positions": decoder.context if decoder.learned else 0,
        "position_offset": decoder.position_offset if decoder.learned else 0,
        "tied_embeddings": decoder.tied,
        "logit_softcap": decoder.logit_softcap is not None,
        "blocks": with_encoder(decoder, blocks),
        "pattern": pattern,
        "vision": tower,
    }
    file = reader.document.name.replace("\\", "/").rpartition("/")[2]
    source = {"title": f"{file}, a Hugging Face config of the {name} family"}
    plain = build(Model, reader.document, whole).model_dump(mode="json", exclude_defaults=True)
    return plain | {"source": [source]}


def _name(reader: Reader, family: str) -> str:
    """Return the last part of the checkpoint's path as a slug; the family if the config has no name."""
    path = reader.raw("_name_or_path")
    last = path.replace("\\", "/").rstrip("/").rpartition("/")[2] if isinstance(path, str) else ""
    return re.sub(r"[^a-z0-9.]+", "-", last.lower()).strip("-.") or family


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
