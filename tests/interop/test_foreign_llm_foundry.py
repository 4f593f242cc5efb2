"""LLM Foundry's YAML as a job: MPT's sizes and defaults, sharding, the type in which gradients travel."""

import json

from foreign_cases import FOREIGN, data_of, job_in

from flopcast.library import catalog

SMALL = {
    "max_seq_len": 2048,
    "global_train_batch_size": 256,
    "device_train_microbatch_size": 4,
    "precision": "amp_bf16",
    "train_loader": {"name": "text"},
    "model": {"name": "mpt_causal_lm", "d_model": 768, "n_heads": 12, "n_layers": 12, "vocab_size": 50368},
}


def read(**changes):
    """What a small file says on eight devices."""
    return data_of(json.dumps(SMALL | changes), "a.yaml", 8, kind="llm-foundry")


def test_mpt_7b_is_the_model_of_the_catalogue():
    found = job_in(FOREIGN / "llm-foundry" / "mpt_7b.yaml").model
    known = catalog.model("mpt-7b")

    assert (found.blocks, found.tied_embeddings) == (known.blocks, True)
    assert known.parameters() - found.parameters() == (50432 - 50368) * 4096


def test_defaults_of_mpt_are_those_of_llm_foundry():
    """configuration_mpt.py: biases, learned positions and no slopes, unlike MptConfig of transformers."""
    (block,) = read()["model"]["blocks"]

    assert (block["mixer"]["qkv_bias"], block["feed_forward"]["bias"]) == (True, True)
    assert "alibi" not in block["mixer"]
    assert read()["model"]["learned_positions"] == 2048


def test_gradients_travel_in_16_bits_under_pure_alone():
    for mixed, dtype in (("PURE", "bf16"), ("DEFAULT", "fp32"), (None, "fp32")):
        section = {"sharding_strategy": "FULL_SHARD"} | ({"mixed_precision": mixed} if mixed else {})
        assert read(fsdp_config=section)["stack"]["gradients"]["dtype"] == dtype
    assert read()["plan"]["zero"] == 0


def test_the_length_of_a_sample_is_the_dataset_s():
    """llmfoundry/data/text_data.py: StreamingTextDataset cuts samples to its own max_seq_len."""
    found = job_in(FOREIGN / "llm-foundry" / "llama2_13b_hybrid.yaml", cluster="dgx-h100:2")

    assert found.batch.sequence_length == 2048
