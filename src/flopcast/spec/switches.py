"""The switches of training software: the flag or key that changes a setting of a stack or a plan.

Answers: what does a user of this software write to overlap reductions, to recompute less, to print timers?
Elsewhere: what each setting means (stack.py, data_parallel.py, plan.py), which change saves time
(lab/diagnosis/settings.py).
"""

from flopcast.spec.memory_software import OTHER_CODE
from flopcast.strict_model import StrictModel

TUNING_CODE: dict[str, object] = {
    **OTHER_CODE,
    "switches": {"fixed": ["pipeline_parallel", "virtual_stages", "recompute_layers", "recompute_modules"]},
}
"""Change of a TorchTitan stack that describes peft, TRL, Axolotl, torchtune or verl. These programs have no
pipeline stages, and recompute all blocks or none.
"""


class Switches(StrictModel):
    """Names of the flags and configuration keys of one training framework; "" if it has none.

    `flopcast diagnose` suggests only changes for which a name is given here. If no name is given at all, it
    names the fields of a job file instead.

    Attributes
    ----------
    software : str
        Name of the framework, such as "Megatron-LM", which is printed before each flag.
    overlap_gradients : str
        Switch that overlaps gradient reduction with the backward pass.
    overlaps_alone : bool
        Whether gradient reduction can overlap with the backward pass only in plans that use ZeRO and have
        no pipeline stages (DeepSpeed).
    overlap_gather : str
        Switch that overlaps the gather of updated parameters with the forward pass.
    overlap_tensor : str
        Switch that overlaps tensor-parallel communication with GEMMs.
    overlap_transfers : str
        Switch that overlaps transfers between pipeline stages with compute.
    overlap_exchanges : str
        Switch that overlaps the all-to-all of tokens with the work of another micro-batch.
    dispatcher : str
        Switch that selects DeepEP for the all-to-all of tokens.
    recompute : str
        Switch that chooses what is recomputed.
    micro_batch : str
        Switch that sets the micro-batch size.
    precision : str
        Switch that selects 8-bit or 4-bit precision.
    attention_kernel : str
        Switch that selects fused attention.
    attention_generation : str
        Switch that selects a newer attention kernel.
    graphs : str
        Switch that enables CUDA graphs or reduces kernel launches in another way.
    graphs_of_experts : str
        Switch that enables CUDA graphs of attention and the router. If the inputs of experts are not padded
        to a fixed size, one graph cannot contain the whole step.
    timers : str
        Switch that prints how long each component of a step takes.
    rank_timers : str
        Switch that prints how long each component of a step takes on every rank.
    offload : str
        Switch that offloads states from the devices.
    pinned_copies : str
        Switch that copies gradients to pinned memory of the host.
    async_checkpoints : str
        Switch that writes checkpoints asynchronously.
    fixed : tuple of str
        Fields of a plan that cannot be changed with this framework.

    Examples
    --------
    >>> known = Switches(software="Megatron-LM", micro_batch="--micro-batch-size")
    >>> known.text("micro_batch"), known.text("graphs"), known.can("graphs"), Switches().can("graphs")
    ('Megatron-LM: --micro-batch-size', '', False, True)
    """

    software: str = ""
    overlap_gradients: str = ""
    overlaps_alone: bool = False
    overlap_gather: str = ""
    overlap_tensor: str = ""
    overlap_transfers: str = ""
    overlap_exchanges: str = ""
    dispatcher: str = ""
    recompute: str = ""
    micro_batch: str = ""
    precision: str = ""
    attention_kernel: str = ""
    attention_generation: str = ""
    graphs: str = ""
    graphs_of_experts: str = ""
    timers: str = ""
    rank_timers: str = ""
    offload: str = ""
    pinned_copies: str = ""
    async_checkpoints: str = ""
    fixed: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Return a switch with the name of its software; "" if there is none."""
        switch = getattr(self, name)
        return f"{self.software}: {switch}" if switch else ""

    def can(self, name: str) -> bool:
        """Return whether the software has a switch; true if the software is unknown."""
        return bool(getattr(self, name)) or not self.software
