"""ZeRO++ in DeepSpeed's JSON: quantised messages and a second copy of parameters, read and written.

Answers: which groups and message formats do `zero_quantized_weights`, `zero_quantized_gradients` and
`zero_hpz_partition_size` set, and which of these settings express those of a plan?
Elsewhere: the ZeRO stage and the groups of MiCS (deepspeed.py), the definition of groups (spec/shards.py).

References
----------
https://www.deepspeed.ai/tutorials/zeropp/. deepspeed/runtime/zero/partition_parameters.py: with quantised
weights, the second copy is quantised too.
"""

from flopcast.interop.configs.job_reader import JobReader
from flopcast.spec.plan import Plan
from flopcast.spec.shards import ShardGroup, group_of, shards_word

SECTION = "zero_optimization"
WEIGHTS, GRADIENTS = f"{SECTION}.zero_quantized_weights", f"{SECTION}.zero_quantized_gradients"
COPY = f"{SECTION}.zero_hpz_partition_size"


def read_groups(reader: JobReader, stage: int, sequence: int = 1) -> None:
    """Put the groups of ZeRO++ into the plan; they need stage 3.

    Parameters
    ----------
    stage : ZeRO stage of the file
    sequence : ranks that share a sequence, which count among the ranks of a group
    """
    narrow, sums = reader.flag(WEIGHTS), reader.flag(GRADIENTS)
    copy = max(reader.count(COPY, 1) // sequence, 1)
    asked = {WEIGHTS: narrow, GRADIENTS: sums, COPY: copy > 1}
    for key in (key for key, given in asked.items() if given and stage != 3):
        because = "ZeRO++ applies only to parameters that ZeRO-3 shards"
        if not reader.faulty(key):
            fix = f"remove it, or write {SECTION}.stage 3"
            reader.fault(key, f"no value, unless {SECTION}.stage is 3", because, fix)
    ranks = int(str(reader.part("plan").get("data_shard", 0)))
    usual = ShardGroup(kind="secondary", ranks=copy, messages="int8" if narrow else "")
    groups = [ShardGroup(kind="parameters", ranks=ranks, messages="int8")] if narrow else []
    groups += [usual] if copy > 1 else []
    groups += [ShardGroup(kind="gradients", ranks=ranks, messages="int4")] if sums else []
    if groups and stage == 3:
        reader.put(("plan", "shards"), shards_word(groups), WEIGHTS, COPY, GRADIENTS)


def written_groups(plan: Plan) -> dict[str, object]:
    """Return the settings of `zero_optimization` that express a plan's groups, if it has any."""
    copy, parameters, gradients = (
        group_of(plan.shards, kind) for kind in ("secondary", "parameters", "gradients")
    )
    settings: dict[str, object] = {}
    if parameters and parameters.messages == "int8":
        settings["zero_quantized_weights"] = True
    if copy:
        settings["zero_hpz_partition_size"] = copy.ranks * plan.context_parallel
    if gradients and gradients.messages == "int4":
        settings["zero_quantized_gradients"] = True
    return settings
