"""Published Hugging Face configs, read, changed and broken."""

import json

import pytest
from conftest import REPOSITORY

from flopcast.errors import SpecError
from flopcast.files.yaml_text import read_yaml
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.spec.model import Model

CONFIGS = REPOSITORY / "tests" / "interop" / "configs"
NAMES = sorted(path.name.removesuffix(".json") for path in CONFIGS.glob("*.json"))


def read(config, name="config.json"):
    """A config as a document; from a mapping, a text or the name of a published one."""
    if isinstance(config, dict):
        config = json.dumps(config, indent=1)
    raw = config.encode() if "{" in config else (CONFIGS / f"{config}.json").read_bytes()
    return read_yaml(raw, name)


def imported(config):
    mapping, _ = model_from_config(read(config))
    return Model.model_validate(mapping)


def notes_of(config):
    return model_from_config(read(config))[1]


def faults(config):
    with pytest.raises(SpecError) as told:
        model_from_config(read(config))
    return told.value.problems


def published(name, **changes):
    """A published config with some keys changed; None takes one out."""
    data = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8")) | changes
    return {key: value for key, value in data.items() if changes.get(key, value) is not None}
