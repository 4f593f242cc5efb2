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
    assert not any(
        "is not a known key" in note for note in read(changed("llava", tie_word_embeddings=False))[1]
    )


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


def changed(family, part=(), **beside):
    """The config of a family with other keys in its vision part, and beside the parts."""
    config = next(row["config"] for row in COUNTED if row["config"]["model_type"] == family)
    return config | beside | {"vision_config": config["vision_config"] | dict(part)}


def test_an_image_has_whole_patches_only():
    """A convolution with a stride ignores the rest: SigLIP at 384 pixels has 27 x 27 patches of 14."""
    part = {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14}

    tower = read(changed("llava", part))[0].vision

    assert (tower.side, tower.positions) == (27 * 14, 27 * 27)


def test_a_tower_that_is_not_known_is_left_out_and_not_taken_for_clip():
    model, notes = read(changed("llava", {"model_type": "aimv2_vision_model"}))

    assert model.vision is None
    assert "only the text model" in notes[0]


def test_values_whose_cost_is_not_counted_are_in_the_notes():
    cases = (
        (changed("llava", {"num_channels": 4}), "vision_config.num_channels = 4 is ignored"),
        (changed("gemma3", {"vision_use_head": True}), "vision_config.vision_use_head = true is ignored"),
        (changed("llava", vision_feature_select_strategy="full"), "vision_feature_select_strategy = full"),
        (changed("llava", mystery=3), "mystery is not a known key of llava, and was ignored"),
    )
    for config, said in cases:
        assert any(note.startswith(said) for note in read(config)[1]), said


def test_wrong_values_of_towers_have_a_fix_that_works():
    cases = (
        (changed("qwen3_vl", {"num_heads": 7}), "vision_config.num_heads"),
        (changed("qwen3_vl", {"out_hidden_size": 1}), "vision_config.out_hidden_size"),
        (changed("llava", {"image_size": 1}), "vision_config.image_size"),
        (changed("llava", vision_feature_layer=[-2, -5]), "vision_feature_layer"),
        (changed("llava", multimodal_projector_bias="no"), "multimodal_projector_bias"),
        (changed("mistral3", vision_feature_layer=[-2, -5]), "vision_feature_layer"),
        (changed("mistral3", {"head_dim": 32}), "vision_config.head_dim"),
        (changed("internvl", {"use_qk_norm": True}), "vision_config.use_qk_norm"),
        (changed("gemma3", mm_tokens_per_image="many"), "mm_tokens_per_image"),
        (changed("qwen3_vl") | {"vision_config": 5}, "vision_config"),
    )
    for config, field in cases:
        with pytest.raises(SpecError) as caught:
            read(config)
        (problem,) = caught.value.problems
        assert problem.field == field
        if problem.fix.startswith("set "):
            key, value = problem.fix.removeprefix("set ").split(" to ")
            config["vision_config"][key] = json.loads(value)
            assert read(config)[0].vision is not None, problem.fix
