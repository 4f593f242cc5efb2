"""Models that timm, transformers and diffusers provide by name.

Answers: which model has the name "timm:resnet50", and which arguments does it take?
Elsewhere: the export of a model (export.py).

A model is created on the device "meta", so that no weights are loaded. Names of transformers and
diffusers are those of the Hugging Face hub, or folders with a config.json. No code from the hub runs. The
configuration determines the arguments: it states the size of images, and "tokens" in the sizes gives the
number of tokens in texts.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from flopcast.errors import spec_error

Arguments = dict[str, Any]
SIZES_OF_NAMED = ("batch", "tokens")  # sizes of the example
SAMPLES = 2  # of the example batch, if no size states another number
TOKENS = 512
SOUND = 16_000  # values of a second
FEATURES = 1500  # steps of speech after the convolutions that halve them


def is_name(word: str) -> bool:
    """Return whether a string names a model of a library.

    >>> is_name("timm:resnet50"), is_name("models:resnet50"), is_name("model.pt2")
    (True, False, False)
    """
    return word.partition(":")[0] in LIBRARIES and bool(word.partition(":")[2])


def named_model(word: str, sizes: Mapping[str, int]) -> tuple[Any, Arguments]:
    """Return the model with a name, and the arguments of a call by name; `sizes` may contain batch and
    tokens.

    Raises
    ------
    SpecError
        The library is not installed, or does not know the name.
    """
    library, _, name = word.partition(":")
    package, make = LIBRARIES[library]
    try:
        module = import_module(package)
    except ImportError:
        allowed, because = f"a Python with torch and {package}", f"{package} makes the model"
        fault, fix = f"needs {package}, which is not installed", f"pip install 'flopcast[{library}]'"
        raise spec_error("graph", word, allowed, because, fix, fault=fault) from None
    try:
        return make(module, name, sizes)
    except (OSError, RuntimeError, ValueError, KeyError, AttributeError, TypeError) as error:
        because = f"{package} reports: {str(error).strip().partition(chr(10))[0][:200]}"
        allowed = f"a model that {package} can make without weights"
        fix = "correct the name, or export the model yourself and give the file"
        raise spec_error("graph", word, allowed, because, fix) from None


def _of_timm(timm: Any, name: str, sizes: Mapping[str, int]) -> tuple[Any, Arguments]:  # noqa: ANN401
    torch = import_module("torch")
    model = timm.create_model(name)
    return model, {"x": torch.zeros(sizes.get("batch", SAMPLES), *model.default_cfg["input_size"])}


def _of_transformers(transformers: Any, name: str, sizes: Mapping[str, int]) -> tuple[Any, Arguments]:  # noqa: ANN401
    config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    config.use_cache = False
    known = (getattr(transformers, each, None) for each in getattr(config, "architectures", None) or ())
    found = next((each for each in known if each is not None), None)
    model = found(config) if found else transformers.AutoModel.from_config(config)
    return model, dict(call_of_transformers(model, config, sizes))


def call_of_transformers(model: Any, config: Any, sizes: Mapping[str, int]) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield the arguments that a model of transformers needs, by the names of its `forward`."""
    torch = import_module("torch")
    samples, tokens = sizes.get("batch", SAMPLES), sizes.get("tokens", TOKENS)
    takes = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values" or ("pixel_values" in takes and hasattr(config, "vision_config")):
        vision = getattr(config, "vision_config", config)
        side = getattr(vision, "image_size", None) or 224
        places = tuple(side) if isinstance(side, (tuple, list)) else (side, side)
        yield "pixel_values", torch.zeros(samples, getattr(vision, "num_channels", 3), *places)
    if main == "input_values":
        yield "input_values", torch.zeros(samples, SOUND)
    if main == "input_features":
        bins = getattr(config, "num_mel_bins", getattr(config, "input_feat_per_channel", 80))
        length = 2 * (getattr(config, "max_source_positions", None) or FEATURES)
        yield "input_features", torch.zeros(samples, bins, length)
    if "input_ids" in takes and (main == "input_ids" or hasattr(config, "text_config")):
        most = getattr(getattr(config, "text_config", config), "max_position_embeddings", None) or tokens
        yield "input_ids", torch.zeros(samples, max(8, min(tokens, most)), dtype=torch.long)
    if "decoder_input_ids" in takes and getattr(config, "is_encoder_decoder", False):
        yield "decoder_input_ids", torch.zeros(samples, tokens, dtype=torch.long)


def _of_diffusers(diffusers: Any, name: str, sizes: Mapping[str, int]) -> tuple[Any, Arguments]:  # noqa: ANN401
    config = diffusers.AutoModel.load_config(name)
    model = getattr(diffusers, config["_class_name"]).from_config(config)
    return model, dict(call_of_diffusers(model, sizes))


def call_of_diffusers(model: Any, sizes: Mapping[str, int]) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield the arguments that a model of diffusers needs, by the names of its `forward`."""
    torch = import_module("torch")
    samples, tokens = sizes.get("batch", SAMPLES), sizes.get("tokens", TOKENS)
    config, takes = model.config, inspect.signature(model.forward).parameters
    side = config.get("sample_size") or 64
    places = tuple(side) if isinstance(side, (tuple, list)) else (side, side)
    width = config.get("in_channels") or 4
    text = next((config[key] for key in TEXT_WIDTHS if isinstance(config.get(key), int)), 0)
    image_tokens = (places[0] // 2) * (places[-1] // 2) if "img_ids" in takes else 0
    shapes = {
        "sample": (samples, width, *places),
        "hidden_states": (samples, image_tokens, width) if image_tokens else (samples, width, *places),
        "encoder_hidden_states": (samples, tokens, text),
        "pooled_projections": (samples, config.get("pooled_projection_dim") or 0),
        "img_ids": (image_tokens, 3),
        "txt_ids": (tokens, 3),
        "guidance": (samples,) if config.get("guidance_embeds") else (),
        "timestep": (samples,),
        "class_labels": (samples,) if config.get("num_embeds_ada_norm") else (),
    }
    for key, shape in shapes.items():
        if key in takes and shape and all(shape):
            whole = key == "class_labels"
            yield key, torch.zeros(*shape, dtype=torch.long if whole else torch.float32)
    if "return_dict" in takes:
        yield "return_dict", False


TEXT_WIDTHS = (
    *("joint_attention_dim", "cross_attention_dim", "caption_channels"),
    *("text_embed_dim", "text_dim"),
)
Make = Callable[[Any, str, Mapping[str, int]], tuple[Any, Arguments]]
LIBRARIES: dict[str, tuple[str, Make]] = {
    "timm": ("timm", _of_timm),
    "hf": ("transformers", _of_transformers),
    "diffusers": ("diffusers", _of_diffusers),
}
