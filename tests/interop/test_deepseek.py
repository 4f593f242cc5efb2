"""DeepSeek's keys one by one: what each says of latents, experts, leading layers and further predictions.

Elsewhere: parameters of the published configs (test_hugging_face.py,
tests/library/test_catalogue_models.py).
"""

import json

import pytest
from all_cases import all_cases
from hf_cases import CONFIGS, faults, imported, notes_of, published

from flopcast.layers.latent_attention import LatentAttention

DEEPSEEK = ["deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "kimi-k2", "moonlight-16b-a3b"]


def changed(name="deepseek-v3", **keys):
    return imported(published(name) | keys)


def experts_of(model):
    return model.blocks[-1].feed_forward


@all_cases("name", DEEPSEEK)
def test_every_layer_has_latent_attention_of_the_sizes_that_the_config_gives(name):
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))

    model = imported(name)

    assert {block.mixer for block in model.blocks} == {
        LatentAttention(
            heads=config["num_attention_heads"],
            q_lora_rank=config["q_lora_rank"],
            kv_lora_rank=512,
            qk_nope_head_size=128,
            qk_rope_head_size=64,
            value_head_size=128,
        )
    }


@all_cases("name", DEEPSEEK)
def test_published_configs_of_these_families_hold_no_key_that_is_not_understood(name):
    assert not [note for note in notes_of(name) if "is not a known key" in note or "so the default" in note]


@all_cases(("first", "counts"), [(0, [61]), (1, [1, 60]), (3, [3, 58]), (61, [61])])
def test_as_many_leading_layers_are_dense_as_the_config_says(first, counts):
    model = changed(first_k_dense_replace=first)

    assert [block.count for block in model.blocks] == counts
    assert (model.blocks[-1].feed_forward.kind == "mlp") == (first == 61)


def test_every_other_layer_has_experts_where_the_config_says_so():
    """Layer i has experts where i is a multiple of the frequency: DeepseekV2DecoderLayer."""
    model = changed(first_k_dense_replace=1, moe_layer_freq=2, num_hidden_layers=8)

    layers = [model.sequence()[place][0] for place, count in model.runs()[1:-3] for _ in range(count)]
    assert [layer.feed_forward.kind for layer in layers] == [
        "mlp",
        "mlp",
        "experts",
        "mlp",
        "experts",
        "mlp",
        "experts",
        "mlp",
    ]


@pytest.mark.parametrize(
    ("name", "groups"), [("deepseek-v2", (8, 3)), ("deepseek-v2-lite", (1, 1)), ("deepseek-v3", (8, 4))]
)
def test_a_token_is_limited_to_groups_where_the_method_of_its_choice_is(name, groups):
    layer = experts_of(imported(name))

    assert (layer.expert_groups, layer.top_groups) == groups


def test_a_greedy_choice_knows_no_groups_whatever_their_number():
    assert experts_of(changed("deepseek-v2", topk_method="greedy")).expert_groups == 1


@pytest.mark.parametrize(("name", "router"), [("deepseek-v2", "softmax"), ("kimi-k2", "sigmoid")])
def test_scores_are_a_softmax_in_the_second_version_and_a_biased_sigmoid_in_the_third(name, router):
    layer = experts_of(imported(name))

    assert layer.router == router
    assert layer.selection_bias == (router == "sigmoid")


@all_cases(("number", "modules"), [(1, 1), (2, 2), (0, 0), (None, 0)])
def test_modules_of_multi_token_prediction_are_those_that_the_config_counts(number, modules):
    assert changed(num_nextn_predict_layers=number).mtp == modules


@pytest.mark.parametrize(("number", "shared"), [(2, 2), (None, 0)])
def test_a_config_may_have_no_shared_experts(number, shared):
    assert experts_of(changed(n_shared_experts=number)).shared_experts == shared


@pytest.mark.parametrize("weight", [0, 0.0, None])
def test_a_loss_without_a_weight_is_not_computed(weight):
    assert not experts_of(changed(aux_loss_alpha=weight)).auxiliary_loss
    assert experts_of(changed()).auxiliary_loss


@all_cases(
    ("key", "value"),
    [("attention_bias", True), ("kv_lora_rank", 0), ("first_k_dense_replace", -1), ("n_group", "8")],
)
def test_a_value_that_cannot_be_is_told_at_its_key(key, value):
    (problem,) = faults(published("deepseek-v3") | {key: value})

    assert (problem.field, problem.value) == (key, value)
