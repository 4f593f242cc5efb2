"""Names and examples of fields that errors propose; most of them are in field_names.yaml.

Answers: which value might a user write for this field, and which names does it have in other programs?
Elsewhere: the texts around them (field_faults.py, field_names.py), defaults of fields (the models in spec/
and layers/).
"""

from flopcast.files.package_table import read_table
from flopcast.fixes import Fix, in_words, write

BLOCK: dict[str, object] = {"count": 32, "mixer": {"heads": 32}, "feed_forward": {"ffn_hidden": 11008}}
_TABLE = read_table(__package__, "field_names.yaml")
EXAMPLES: dict[str, str] = _TABLE["examples"] | {"blocks": in_words([BLOCK])}
OF_BLOCKS: dict[str, str] = _TABLE["blocks"]
OTHER_NAMES: dict[str, str] = _TABLE["other_names"]
DIMENSIONS: dict[str, str] = _TABLE["dimensions"]
MEANT: dict[str, str] = {
    **_TABLE["fixes"],
    **dict.fromkeys(("full", "full_shard"), write(3, "zero")),
    "fsdp": Fix("write zero=3, which shards all states as FSDP does", ({"zero": 3},)),
    "ddp": Fix("write zero=0, which shards no states", ({"zero": 0},)),
    **{f"zero{stage}": write(stage, "zero") for stage in (1, 2, 3)},
}
