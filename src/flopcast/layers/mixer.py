"""The interface of mixers for blocks, models and rules.

Answers: which properties of a mixer do blocks, models and rules need?
Elsewhere: the mixers (layers/attention.py, layers/latent_attention.py, layers/gated_delta_net.py,
layers/selective_scan.py, layers/time_mix.py), the methods of every layer (layers/base.py).
"""

from abc import abstractmethod
from typing import ClassVar

from flopcast.dtypes import Counts
from flopcast.layers.base import AbstractLayer, Split


class AbstractMixer(AbstractLayer):
    """The half of a block in which tokens interact; tensor parallelism divides it into whole heads.

    A mixer with `in_tensor_region` reads "attention.in.full" and writes a partial sum, "attention.partial";
    its block gathers the input and adds the partial sums. Any other mixer reads the rank's own tokens,
    "attention.in", and writes "attention.sum".
    """

    in_tensor_region: ClassVar[bool]
    is_recurrent: ClassVar[bool] = False  # linear attention: heads keep a state instead of keys and values
    is_whole_block: ClassVar[bool] = False  # a traced one: norms, residuals and feed-forward are in it
    heads: int

    @property
    def index_bytes(self) -> int:
        """Return the bytes of a token in the cache of an indexer (layers/sparse_index.py); 0 for mixers
        without an indexer.
        """
        return 0

    @property
    @abstractmethod
    def groups(self) -> int:
        """Return the number of key/value heads of the layer; ranks hold or repeat whole heads."""

    @abstractmethod
    def has_whole_heads(self, hidden: int) -> bool:
        """Return whether a head has a whole number of elements at this hidden width."""

    @abstractmethod
    def linear_elements(self, hidden: int) -> int:
        """Return the number of weights that multiply a token. Each weight needs two FLOP."""

    @abstractmethod
    def pair_flop(self, hidden: int) -> int:
        """Return FLOP of scores and context for one query and one key, all heads together."""

    @abstractmethod
    def square(self, length: int) -> float:
        """Return the pairs of a query and a key of one head, counted without a causal mask.

        This is length² without a window. With a window, it is twice the number of pairs in the causal band,
        as length² is twice the number in the causal triangle.
        """


class AbstractRecurrentMixer(AbstractMixer):
    """A mixer whose heads keep a state of constant size instead of keys and values."""

    is_recurrent: ClassVar[bool] = True

    @property
    def groups(self) -> int:
        """Return the number of heads, because each head has its own keys."""
        return self.heads

    @property
    @abstractmethod
    def last_tokens(self) -> int:
        """Return the number of earlier tokens whose channels the mixer stores in addition to its states."""

    @property
    @abstractmethod
    def channels(self) -> int:
        """Return the channels of the short convolution before the states."""

    @abstractmethod
    def local_channels(self, split: Split) -> Counts:
        """Return the channels of the convolution on one rank."""

    @property
    @abstractmethod
    def state_elements(self) -> int:
        """Return the elements of the states of a sequence, over all heads."""

    @property
    def out_bias(self) -> bool:
        """Return False: no projection has a bias after the sum."""
        return False

    def has_whole_heads(self, hidden: int) -> bool:
        """Return True: sizes of heads are separate fields."""
        return hidden > 0

    def pair_flop(self, hidden: int) -> int:
        """Return 0, because tokens do not attend to single other tokens."""
        return 0

    def square(self, length: int) -> float:
        """Return 0, for the same reason."""
        return 0.0
