"""Modules that a recompute mode names: which items of real blocks each holds."""

from dataclasses import replace

import pytest
from all_cases import all_cases
from layer_examples import experts, gpt, llama, split

from flopcast.layers.modules import MODULES, OPERATORS, known_modules, module_of, run_of, thrown_away

DENSE = {"gpt": gpt(8, 512), "llama": llama(8, 2, 1024), "gpt parallel": gpt(8, 512, residual="parallel")}
BLOCKS = DENSE | {"mixture": experts(8, 2)}
SPLITS = {"one rank": split(), "four ranks": split(tensor=4, sequence_parallel=True)}
CASES = pytest.mark.parametrize("cut", SPLITS)


def items_of(name, cut):
    return BLOCKS[name].forward(512, SPLITS[cut])


def holds(name, cut, module):
    return [item.name for item in items_of(name, cut) if module_of(item, {module}) == module]


@CASES
@pytest.mark.parametrize("name", BLOCKS)
def test_an_item_is_of_one_module_at_most_whichever_are_chosen_beside_it(name, cut):
    for item in items_of(name, cut):
        alone = [module for module in MODULES if module_of(item, {module})]
        together = module_of(item, set(MODULES))

        assert together == (alone[0] if alone else "")


@CASES
@pytest.mark.parametrize("name", BLOCKS)
def test_nothing_is_of_a_module_where_none_is_chosen(name, cut):
    for item in items_of(name, cut):
        assert (module_of(item, ()), run_of(item, ()), thrown_away(item, ())) == ("", "", ())


@CASES
@pytest.mark.parametrize("name", DENSE)
def test_the_attention_holds_its_linears_and_core_and_no_norm_and_no_residual(name, cut):
    found = holds(name, cut, "attention")

    assert {"attention.qkv", "attention.out"} <= set(found)
    assert not {"attention.norm", "attention.residual", "attention.drop", "attention.bias"} & set(found)
    assert all(each.startswith("attention.") for each in found)


@CASES
@pytest.mark.parametrize("name", ["gpt", "gpt parallel"])
def test_the_dropout_of_scores_is_part_of_the_attention_and_that_of_its_result_is_not(name, cut):
    dropouts = [item.name for item in items_of(name, cut) if "drop" in item.name]

    assert {"attention.dropout", "attention.drop"} <= set(dropouts)
    assert [each for each in dropouts if each in holds(name, cut, "attention")] == ["attention.dropout"]


@CASES
@pytest.mark.parametrize("name", DENSE)
def test_the_mlp_holds_both_linears_and_nothing_of_the_attention(name, cut):
    found = holds(name, cut, "mlp")

    assert {"mlp.up", "mlp.down"} <= set(found)
    assert not any(each.startswith("attention.") for each in found)
    assert not {"mlp.norm", "mlp.residual", "mlp.dropout"} & set(found)


@CASES
def test_experts_are_no_mlp_and_their_module_holds_router_and_both_ways(cut):
    found = holds("mixture", cut, "moe")

    assert holds("mixture", cut, "mlp") == []
    assert {"experts.router", "experts.up", "experts.down"} <= set(found)
    assert set(holds("mixture", cut, "moe_act")) <= set(found)
    assert holds("mixture", cut, "moe_act") == ["experts.activation"]


@CASES
@pytest.mark.parametrize("name", ["gpt", "llama", "mixture"])
def test_each_norm_before_a_half_is_a_run_of_its_own(name, cut):
    norms = [item for item in items_of(name, cut) if module_of(item, {"layernorm"})]

    assert [item.name for item in norms] == ["attention.norm", "mlp.norm"]
    assert len({run_of(item, {"layernorm"}) for item in norms}) == 2
    assert [thrown_away(item, {"layernorm"}) for item in norms] == [(item.output,) for item in norms]


@CASES
@pytest.mark.parametrize("name", BLOCKS)
def test_only_modules_that_discard_their_output_throw_anything_away(name, cut):
    for item in items_of(name, cut):
        for module, facts in MODULES.items():
            thrown = thrown_away(item, {module})
            assert bool(thrown) is (facts.discards and module_of(item, {module}) == module)


@CASES
@pytest.mark.parametrize("name", BLOCKS)
def test_modules_that_a_mode_may_name_hold_something(name, cut):
    items = items_of(name, cut)

    assert OPERATORS in known_modules(items)  # of every module: test_recomputed_operators.py
    for module in {*known_modules(items)} - {OPERATORS}:
        assert any(module_of(item, {module}) == module for item in items), module
    for module in set(MODULES) - set(known_modules(items)):
        assert not any(module_of(item, {module}) for item in items), module


@all_cases("name", DENSE)
def test_the_core_is_the_group_that_its_layer_names(name):
    core = [item for item in items_of(name, "one rank") if module_of(item, {"core_attention"})]

    assert core
    assert {item.group for item in core} == {"core_attention"}
    assert all(module_of(item, {"core_attention", "attention"}) == "attention" for item in core)


@all_cases("name", BLOCKS)
def test_modules_of_multi_token_prediction_have_runs_of_their_own(name):
    for item in items_of(name, "one rank"):
        again = replace(item, name=f"mtp0.{item.name}")
        for module in MODULES:
            assert module_of(again, {module}) == module_of(item, {module})
            if module_of(item, {module}):
                assert run_of(again, {module}) != run_of(item, {module})
