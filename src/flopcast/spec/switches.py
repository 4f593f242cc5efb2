"""The switches of training software: the flag or key that changes a setting of a stack or a plan.

Answers: what does a user of this software write to overlap reductions, to recompute less, to print timers?
Elsewhere: what each setting means (stack.py, data_parallel.py, plan.py), which change saves time
(lab/diagnosis/settings.py).
"""

from flopcast.strict_model import StrictModel


class Switches(StrictModel):
    """The switches of one software as short texts; "" where it has none.

    Software without any switch here is unknown: the fields of a job file are then all that can be named. If
    it has some, changes without a switch are impossible with it.

    Attributes
    ----------
    software : str
        Its name, written before each switch: "Megatron-LM".
    overlap_gradients, overlap_gather : str
        Reductions of gradients under the backward pass; gathers of updated parameters under the forward
        pass.
    overlaps_alone : bool
        Whether reductions can overlap only with ZeRO and without pipeline stages (DeepSpeed).
    overlap_tensor, overlap_transfers : str
        Messages of tensor parallelism under products; transfers between stages under compute.
    recompute, micro_batch : str
        What is recomputed; the size of a micro-batch.
    attention_kernel, attention_generation : str
        A fused kernel of attention; a newer one.
    graphs : str
        CUDA graphs, or whatever else launches less.
    timers, rank_timers : str
        Timers of the parts of a step in the log; of every rank.
    async_checkpoints : str
        Checkpoints that are written while the run goes on.
    fixed : tuple of str
        Fields of a plan that it cannot change, or only with another program.

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
    recompute: str = ""
    micro_batch: str = ""
    attention_kernel: str = ""
    attention_generation: str = ""
    graphs: str = ""
    timers: str = ""
    rank_timers: str = ""
    async_checkpoints: str = ""
    fixed: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Return a switch with the name of its software; "" if there is none."""
        switch = getattr(self, name)
        return f"{self.software}: {switch}" if switch else ""

    def can(self, name: str) -> bool:
        """Return whether the software has a switch, or is unknown."""
        return bool(getattr(self, name)) or not self.software
