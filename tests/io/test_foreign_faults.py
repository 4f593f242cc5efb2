"""Faults in files of other programs: each is told with the line and the key that are to blame."""

import pytest
from foreign_cases import FOREIGN, faults_in, replaced, rows

SAID = {"deepspeed": {"model": "llama-2-7b"}}
BROKEN = {  # a right file → what stands there -> what is put there instead -> the field that is blamed
    "deepspeed/zero3_bf16.json": """
"train_batch_size": 128 -> "train_batch_size": 127 -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": "many" -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": 0 -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": 12.5 -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": true -> train_batch_size
"train_batch_size": 128 -> "train_batch_size": 1e20 -> train_batch_size
"train_batch_size": 128 -> "train_batch_sizes": 128 -> train_batch_sizes
"train_batch_size": 128 -> "train_batch_size": "${BATCH}" -> train_batch_size
_gpu": 4 -> _gpu": [4] -> train_micro_batch_size_per_gpu
"gradient_accumulation_steps": 4 -> "gradient_accumulation_steps": -1 -> gradient_accumulation_steps
"type": "AdamW" -> "type": "OneBitAdam" -> optimizer.type
"type": "AdamW" -> "type": 7 -> optimizer.type
"stage": 3 -> "stage": 4 -> zero_optimization.stage
"stage": 3 -> "stage": "three" -> zero_optimization.stage
"stage": 3 -> "stage": 3, "mics_shard_sise": 4 -> zero_optimization.mics_shard_sise
"stage": 3 -> "stage": 3, "mics_shard_size": 3 -> plan.data_shard
"stage": 3 -> "stage": 3, "offload_param": {"device": "tape"} -> zero_optimization.offload_param.device
"overlap_comm": true -> "overlap_comm": "maybe" -> zero_optimization.overlap_comm
"reduce_bucket_size": 5e8 -> "reduce_bucket_size": "5 GB" -> zero_optimization.reduce_bucket_size
"gradient_clipping": 1.0 -> "gradient_clipping": 1.0, "gradient_clipping": 2.0 -> gradient_clipping
"gradient_clipping": 1.0 -> "gradient_clipping": !!python/object:os.system 1.0 -> tag
"gradient_clipping": 1.0 -> "gradient_clipping": &a 1.0 -> anchor
"gradient_clipping": 1.0 -> "gradient_clipping" 1.0 -> text
"gradient_clipping": 1.0 -> "elasticity": {"enabled": true} -> elasticity.enabled
"steps_per_print": 10 -> "fp16": {"enabled": true} -> fp16.enabled
"steps_per_print": 10 -> "communication_data_type": "int8" -> communication_data_type
"steps_per_print": 10 -> "sequence_parallel_size": 3 -> sequence_parallel_size
"steps_per_print": 10 -> "tensor_parallel": {"autotp_size": 3} -> tensor_parallel.autotp_size
"""
}
CASES = [(file, *row) for file, table in BROKEN.items() for row in rows(table)]


@pytest.mark.parametrize(("file", "old", "new", "field"), CASES)
def test_a_fault_is_told_with_its_line_and_field(file, old, new, field, tmp_path):
    old, new = (part.replace("\\n", "\n") for part in (old, new))
    text, line = replaced((FOREIGN / file).read_text(encoding="utf-8"), old, new)
    spoiled = tmp_path / file.split("/")[1]
    spoiled.write_text(text, encoding="utf-8")

    assert (line, field) in faults_in(spoiled, **SAID.get(file.split("/")[0], {}))


@pytest.mark.parametrize("file", BROKEN)
def test_a_file_to_be_broken_is_right_as_it_is(file):
    assert faults_in(FOREIGN / file, **SAID.get(file.split("/")[0], {})) == []


@pytest.mark.parametrize("file", BROKEN)
def test_twenty_faults_of_each_format_are_looked_at(file):
    assert len(rows(BROKEN[file])) >= 20
