"""DualPipe: two copies of the model, whose micro-batches enter at both ends of the pipeline.

Stage s holds chunk s of one copy and chunk P - 1 - s of the other, and therefore twice the parameters of
1F1B. Half of the micro-batches run down the stages, and the other half up. At any time, the second half of
the stages mirrors the first half. A micro-batch that moves from the first half to the second passes a
micro-batch that moves in the opposite direction. A step therefore equals that of P / 2 stages in the shape
of a V (dualpipe_v.py), which run twice with half of the micro-batches each, and is simulated as such
(spec/mirrored.py).

References
----------
arXiv:2412.19437, section 3.2.1 and Table 2; github.com/deepseek-ai/DualPipe.
"""

from typing import ClassVar

from flopcast.schedules.dualpipe_v import DualPipeV


class DualPipe(DualPipeV):
    """One chunk of the model on each stage, and one of a copy that runs in the opposite direction.

    The order is that of DualPipeV on half of the stages (`mirrors_half`): a plan of P stages is simulated
    as P / 2 stages with half of the micro-batches, while its memory and its parameters are those of both
    copies.
    """

    mirrors_half: ClassVar[bool] = True
    least_chunks: ClassVar[int] = 1
    most_chunks: ClassVar[float] = 1
    chunks_because: ClassVar[str] = ""
