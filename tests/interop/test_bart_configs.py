"""Configs of BART and its like: both halves, their positions, and what their sizes must have in common."""

import pytest

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.spec.model import Model

LARGE = {  # of facebook/bart-large, as its config.json has it
    "model_type": "bart",
    "is_encoder_decoder": True,
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "num_hidden_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "vocab_size": 50265,
    "max_position_embeddings": 1024,
    "activation_function": "gelu",
    "dropout": 0.1,
    "scale_embedding": False,
}


def read(**changes):
    mapping, notes = model_from_config(Document("config.json", LARGE | changes, {}))
    return Model.model_validate(mapping), notes


def test_bart_large_has_the_parameters_of_its_checkpoint():
    """By hand: table, two tables of positions, 12 + 12 blocks, and norms; 406,291,456 in transformers."""
    model, notes = read()
    width, wide = 1024, 4096
    attention, norm = 4 * (width**2 + width), 2 * width
    mlp = 2 * width * wide + wide + width
    encoder, decoder = attention + mlp + 2 * norm, 2 * attention + mlp + 3 * norm
    positions = 2 * (1024 + 2) * width

    assert model.parameters() == 50265 * width + positions + 12 * (encoder + decoder) + 2 * norm
    assert model.parameters() == 406_291_456
    assert not any("scale_embedding" in note for note in notes)


def test_halves_may_have_different_depths_and_scaled_embeddings_are_noted():
    model, notes = read(encoder_layers=6, decoder_layers=3, scale_embedding=True)

    assert [(block.count, block.reads) for block in model.blocks] == [
        (5, "source"),
        (1, "source"),
        (3, "sequence"),
    ]
    assert any("scale_embedding" in note for note in notes)


@pytest.mark.parametrize(("field", "value"), [("encoder_ffn_dim", 2048), ("encoder_attention_heads", 8)])
def test_an_encoder_of_other_sizes_than_its_decoder_is_an_error(field, value):
    with pytest.raises(SpecError, match="not supported yet") as error:
        read(**{field: value})

    (problem,) = error.value.problems
    assert problem.field == field
