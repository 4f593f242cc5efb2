"""The config of the model to trace, from a file, a folder, or a name on the hub.

Answers: which config object of transformers does this text name?
Elsewhere: the trace (interop/tracing/).
"""

from flopcast.interop.tracing.weightless import Config, Libraries, known_config, published_config
from flopcast.requests.sources import read_model_file
from flopcast.requests.words import is_path


def config_of(libraries: Libraries, model: str) -> Config:
    """Return the config of a file, of its folder, or of a name.

    A text with a slash names a file if this file exists, and otherwise a model of the Hugging Face hub.

    Raises
    ------
    SpecError
        It cannot be read, or transformers has no causal language model of this family.
    """
    if is_path(model) and not _is_name(model):
        data = read_model_file(model).data
        return known_config(libraries, data if isinstance(data, dict) else {})
    return published_config(libraries, model)


def _is_name(model: str) -> bool:
    """Return whether a text is OWNER/NAME and not a file of the machine."""
    from flopcast.files.inputs import exists

    return model.count("/") == 1 and not model.startswith((".", "/", "~")) and not exists(model)
