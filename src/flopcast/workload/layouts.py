"""The layouts of a plan whose blocks have separate strategies.

Answers: which plan applies to a block?
Elsewhere: the notation of strategies (spec/layer_strategies.py), the resulting programs
(layer_strategies.py).

A *layout* is the plan with the fields of one strategy. The devices of a stage and the sequences of a
micro-batch stay the same. With less tensor parallelism, each rank therefore has fewer sequences.
"""

from flopcast.spec.plan import Plan


def layouts_of(plan: Plan) -> tuple[Plan, ...]:
    """Return the plan without strategies, then the plan of each different strategy.

    Examples
    --------
    >>> for one in layouts_of(Plan(dp=4, tp=2, mbs=2, gbs=64, layers="0-3:tp=4,4-5:zero=1")):
    ...     print(one.short())
    dp=4 tp=2 mbs=2 gbs=64 precision=bf16
    dp=2 tp=4 mbs=4 gbs=64 precision=bf16
    dp=4 tp=2 mbs=2 gbs=64 zero=1 precision=bf16
    """
    base = plan.model_copy(update={"layers": ()})
    return tuple(dict.fromkeys((base, *(layout_of(base, one.changes) for one in plan.layers))))


def layout_of(base: Plan, changes: dict[str, object]) -> Plan:
    """Return a plan with the fields of a strategy, on the same devices and with the same micro-batches."""
    tensor = int(str(changes.get("tensor_parallel", base.tensor_parallel)))
    data = base.data_parallel * base.tensor_parallel // tensor
    degrees: dict[str, object] = {
        "data_parallel": data,
        "expert_tensor_parallel": tensor,
        "micro_batch": base.micro_batch * base.data_parallel // max(data, 1),
        "sequence_parallel": base.sequence_parallel and tensor > 1,
    }
    again = {} if "recompute" not in changes else {"recompute_method": "uniform", "recompute_layers": 1}
    return base.model_copy(update=changes | degrees | again)
