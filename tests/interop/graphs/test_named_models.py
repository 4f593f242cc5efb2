"""Models by names of libraries: which arguments a call takes, and what a missing library is told."""

from types import SimpleNamespace

import pytest

from flopcast.errors import SpecError
from flopcast.interop.graphs import export, named

SIZES = {"batch": 4, "tokens": 128}


@pytest.fixture
def shapes_alone(monkeypatch):
    """A torch whose tensors are their shapes."""
    torch = SimpleNamespace(zeros=lambda *shape, dtype=None: shape, long="int64", float32="fp32")
    monkeypatch.setattr(named, "import_module", lambda _: torch)


def model(main, forward, **config):
    """A model of transformers with its configuration."""
    return SimpleNamespace(main_input_name=main, forward=forward), SimpleNamespace(**config)


def test_a_text_has_as_many_tokens_as_asked_and_the_model_allows(shapes_alone):
    made = model("input_ids", lambda input_ids, attention_mask=None: None, max_position_embeddings=64)

    assert dict(named.call_of_transformers(*made, SIZES)) == {"input_ids": (4, 64)}


def test_an_encoder_with_a_decoder_takes_two_texts(shapes_alone):
    made = model("input_ids", lambda input_ids, decoder_input_ids: None, is_encoder_decoder=True, d_model=8)

    found = dict(named.call_of_transformers(*made, SIZES))

    assert found == {"input_ids": (4, 128), "decoder_input_ids": (4, 128)}


def test_images_have_the_size_of_the_configuration(shapes_alone):
    made = model("pixel_values", lambda pixel_values: None, image_size=384, num_channels=1)

    assert dict(named.call_of_transformers(*made, {})) == {"pixel_values": (2, 1, 384, 384)}


def test_a_diffusion_transformer_of_tokens_has_a_token_for_each_patch(shapes_alone):
    def forward(hidden_states, encoder_hidden_states, pooled_projections, timestep, img_ids, txt_ids):
        pass

    config = {
        "in_channels": 64,
        "joint_attention_dim": 4096,
        "pooled_projection_dim": 768,
        "sample_size": 128,
    }

    found = dict(named.call_of_diffusers(SimpleNamespace(config=config, forward=forward), SIZES))

    assert found["hidden_states"] == (4, 64 * 64, 64)
    assert found["img_ids"] == (64 * 64, 3)
    assert found["encoder_hidden_states"] == (4, 128, 4096)


def test_without_its_library_a_name_is_answered_with_the_extra_to_install(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(export, "import_module", missing)
    monkeypatch.setattr(named, "import_module", missing)

    for attempt in (export.exported_graph, named.named_model):
        with pytest.raises(SpecError, match=r"flopcast\[timm\]"):
            attempt("timm:resnet50", {})
