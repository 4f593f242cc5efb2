"""Configs of models that see: parameters and FLOP are those that transformers counts."""

import json
from pathlib import Path

import pytest

from flopcast.errors import SpecError
from flopcast.files.yaml_text import read_yaml
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.layers.images import Image
from flopcast.spec.model import Model

COUNTED = json.loads(Path(__file__).with_name("vision_counts.json").read_text(encoding="utf-8"))
GRID = (12, 20)  # of vision_counts.py


def read(config):
    mapping, notes = model_from_config(read_yaml(json.dumps(config).encode(), "config.json"))
    return Model(**mapping), notes


def test_a_config_has_as_many_parameters_as_the_model_of_transformers():
    for row in COUNTED:
        model, _ = read(row["config"])

        assert model.parameters() == row["parameters"], row["config"]["model_type"]
        assert 0 < model.active_parameters() < row["parameters"]  # no token of text uses the tower


def test_tower_and_projections_have_the_flop_that_torch_counts():
    counted = [row for row in COUNTED if "forward_flop" in row]
    assert len(counted) >= 5
    for row in counted:
        tower = read(row["small"])[0].vision.model_copy(update={"least_pixels": 1})
        rows, columns = (tower.side // tower.patch,) * 2 if tower.side else GRID
        images = (Image(width=columns * tower.patch, height=rows * tower.patch),)

        found = [tower.step_flop(images, adapted=False, backward=each) for each in (False, True)]

        assert found == [row["forward_flop"], row["step_flop"]], row["config"]["model_type"]


def test_a_tower_is_imported_without_the_note_that_only_the_text_is():
    notes = {row["config"]["model_type"]: " ".join(read(row["config"])[1]) for row in COUNTED}

    assert not any("only the text model" in each for each in notes.values())
    assert "at most 16 tiles" in notes["llama4"]


def test_a_family_whose_tower_is_not_known_is_imported_as_its_text():
    config = dict(COUNTED[0]["config"]) | {"model_type": "glm4v", "vision_config": {"depth": 24}}
    text = config | {"text_config": {"model_type": "glm4", "hidden_size": 512, "num_attention_heads": 4}}

    model, notes = read(text)

    assert model.vision is None
    assert "only the text model" in notes[0]


def test_unknown_keys_are_listed_and_wrong_values_are_told_with_their_path():
    config = json.loads(json.dumps(COUNTED[1]["config"]))
    config["vision_config"]["mystery"] = 3
    assert any("vision_config.mystery" in note for note in read(config)[1])

    config["vision_config"]["num_heads"] = 0
    with pytest.raises(SpecError) as caught:
        read(config)
    assert [problem.field for problem in caught.value.problems] == ["vision_config.num_heads"]
