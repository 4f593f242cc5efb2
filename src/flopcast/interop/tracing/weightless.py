"""A model of transformers without weights, built from its config with tensors that hold no data.

Answers: which modules does this config describe, which of them are the decoder layers, and what do they do
on a number of tokens?
Elsewhere: the recording (recorder.py). torch and transformers are imported only when a trace is requested.

Only code that ships with transformers runs, never code of a checkpoint. Experts are one grouped product,
because the work of a loop over experts would depend on the routing of each token.
"""

from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from importlib import import_module
from typing import Any

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.interop.tracing.attention import offer
from flopcast.interop.tracing.recorder import Module, Recording, Torch, record
from flopcast.records import Record

INSTALL = "pip install 'flopcast[hf]' torch"
Config = Any  # of transformers
CANNOT = (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError, KeyError, IndexError)


class Libraries(Record, eq=False):
    """The packages that a trace needs."""

    torch: Torch
    transformers: Any

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions that a result depends on."""
        return {"torch": str(self.torch.__version__), "transformers": str(self.transformers.__version__)}


def load_libraries() -> Libraries:
    """Return torch and transformers.

    Raises
    ------
    SpecError
        One of them is not installed.
    """
    try:
        return Libraries(torch=import_module("torch"), transformers=import_module("transformers"))
    except ImportError as error:
        allowed = "a Python with torch and transformers"
        because = "flopcast traces a model by running its code on tensors without data"
        fault = f"needs {error.name}, which is not installed"
        raise spec_error(
            field="--trace", value=error.name, allowed=allowed, because=because, fix=INSTALL, fault=fault
        ) from None


def known_config(libraries: Libraries, values: Mapping[str, object]) -> Config:
    """Return the config object of a config.json's values; for a multi-part model, that of its text model.

    Raises
    ------
    SpecError
        transformers has no causal language model for the family, or its class refuses the values.
    """
    transformers = libraries.transformers
    family = str(values.get("model_type", ""))
    known = transformers.CONFIG_MAPPING
    if family not in known:
        allowed = "a model_type that the installed transformers supports"
        because = "flopcast does not run code from a checkpoint"
        raise spec_error("model_type", family, allowed, because, "install a newer transformers")
    try:
        return _decoder(libraries, known[family].from_dict(dict(values)))
    except (*CANNOT, import_module("huggingface_hub.errors").StrictDataclassError) as error:
        if isinstance(error, SpecError):
            raise
        because = f"the configuration class of transformers reports: {_first_line(error)}"
        allowed = "values that this family of models supports"
        raise spec_error("config", family, allowed, because, "correct it") from None


def published_config(libraries: Libraries, name: str) -> Config:
    """Return the config object of a name, which transformers fetches from the Hugging Face hub or its
    cache.

    Raises
    ------
    SpecError
        The model does not exist, cannot be reached, or has code outside transformers.
    """
    try:
        config = libraries.transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (*CANNOT, OSError) as error:
        because = f"transformers reports: {_first_line(error)}"
        allowed = "a config.json, its folder, or OWNER/NAME of the hub"
        fix = "save the config.json in a folder, and name this folder"
        problem = Problem("model", name, allowed, because, fix)
        raise SpecError([problem]) from None
    return _decoder(libraries, config)


def _decoder(libraries: Libraries, config: Config) -> Config:
    """Return the config of the text model, which must predict the next token."""
    text = config.get_text_config(decoder=True)
    if type(text) not in libraries.transformers.AutoModelForCausalLM._model_mapping:
        because = "flopcast traces only decoders that predict the next token"
        kind = config.model_type
        allowed = "a causal language model"
        raise spec_error("model_type", kind, allowed, because, "choose a causal language model")
    return text


def attentions(libraries: Libraries, config: Config) -> tuple[str, ...]:
    """Return how a model can run its attention: with its own code ("eager"), or in one kernel."""
    model = libraries.transformers.AutoModelForCausalLM._model_mapping[type(config)]
    return ("eager", "fused") if model._supports_attention_backend else ("eager",)


def without_dropout(config: Config) -> Config:
    """Return the config without dropout, because masks are wider on a CPU than on a GPU."""
    changed = deepcopy(config)
    for key, value in config.to_dict().items():
        if ("dropout" in key or key.endswith("_pdrop")) and isinstance(value, float):
            setattr(changed, key, 0.0)
    return changed


def build(libraries: Libraries, config: Config, attention: str) -> Module:
    """Return the model of a config in training mode; call the function inside `fakes`.

    `attention` is "eager", which writes the scores, or "fused", which runs one kernel (attention.py).
    """
    kernel = offer() if attention == "fused" else attention
    model = libraries.transformers.AutoModelForCausalLM.from_config(
        without_dropout(config), attn_implementation=kernel, dtype=libraries.torch.bfloat16
    )
    with suppress(*CANNOT):  # dense models have no experts to set
        model.set_experts_implementation("grouped_mm")
    return model.train()


def decoder_layers(libraries: Libraries, model: Module, config: Config) -> Module:
    """Return the decoder's layers: the first list with as many modules as the config states.

    Raises
    ------
    SpecError
        There is no such list.
    """
    count = config.num_hidden_layers
    lists = [module for module in model.modules() if isinstance(module, libraries.torch.nn.ModuleList)]
    matching = [modules for modules in lists if len(modules) == count]
    if not matching:
        because = "flopcast assigns the operators of a trace to the decoder's layers"
        allowed = f"a model with a single list of {count} layers"
        raise spec_error("model_type", config.model_type, allowed, because, "choose another")
    return matching[0]


def run(
    libraries: Libraries,
    config: Config,
    sequences: int,
    length: int,
    attention: str,
    only: tuple[int, ...] = (),
) -> Recording:
    """Return the operators of a model on one micro-batch, with all of its layers or `only` some.

    Raises
    ------
    SpecError
        The model's code cannot run without numbers, or without a GPU.
    """
    torch = libraries.torch
    fake = import_module("torch._subclasses.fake_tensor").FakeTensorMode
    try:
        with fake(allow_non_fake_inputs=True), torch.device("cpu"):
            model = build(libraries, config, attention)
            layers = decoder_layers(libraries, model, config)
            for index in reversed(range(len(layers)) if only else ()):
                if index not in only:
                    del layers[index]
            ids = torch.zeros(sequences, length, dtype=torch.long)
            return record(torch, model, list(layers), ids)
    except CANNOT as error:
        if isinstance(error, SpecError):
            raise
        because = f"the code of the model failed: {_first_line(error)}"
        allowed = "a model whose code runs without data and without a GPU"
        raise spec_error("model_type", config.model_type, allowed, because, "choose another") from error


def _first_line(error: BaseException) -> str:
    """Return the first line of another library's message, without its advice."""
    return str(error).partition("\n")[0][:200]
