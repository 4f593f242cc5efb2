"""The inputs of a rewrite of serving, in addition to the items of a layer.

Elsewhere: the rewrites (rewrites/), the order in which they run (lower.py).
"""

from flopcast.layers.base import AbstractLayer, Split
from flopcast.records import Record
from flopcast.serving.engine_pass import EnginePass
from flopcast.spec.deployment import Deployment, served_format
from flopcast.spec.engine import Engine


class Seen(Record, eq=False):
    """A layer, the pass, the engine that runs it, its deployment, and the split of its layers.

    Attributes
    ----------
    layer : AbstractLayer
        The layer whose items are rewritten.
    run : EnginePass
        Numbers of the pass, arrays of shape (passes, 1).
    engine : Engine
    deployment : Deployment
    split : Split
        The division of weights and tokens with which the layer was lowered.
    hidden : int
        Width of the residual stream.
    """

    layer: AbstractLayer
    run: EnginePass
    engine: Engine
    deployment: Deployment
    split: Split
    hidden: int

    @property
    def cache(self) -> str:
        """Return the format of cached keys and values, "" for 16 bits."""
        return served_format(self.deployment.cache)
