"""Copies of weights, keys and values from other memories in a pass, and compute on the host.

Answers: how long is a pass whose weights or caches are in the memory of a peer, of the host, or on drives?
Elsewhere: these seconds for a job (streamed_bytes.py), the kernels of a pass (pass_times.py), the bytes in
each memory (memory.py, tier_memory.py).

A pass with overlapped copies takes the longest of its kernels and of the copies on each link: the link to
the device, the link to the host, the drives. Without overlap, it takes their sum. Bytes on drives pass both
the drives and the link to the device.
"""

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.records import Record


class PassCopies(Record, eq=False):
    """Seconds of the copies of one pass on one device, and of kernels on its host.

    `weights_s` are copies of weights to the device, and `stored_weights_s` their reads from drives.
    `read_s` and `write_s` are seconds on the links for each token whose keys and values are read or
    written, and `stored_read_s` and `stored_write_s` those on the drives. `hidden_s` are those of the
    hidden states of a new token, in each direction. `unpack_s` is the time in which the device unpacks
    weights.

    The host attends to a cached token in `attention_s`, and the device computes `device_attention_share` of
    the attention of decoding tokens. The host computes `host_layer_share` of the blocks in passes of at
    most `host_tokens` new tokens, in `host_layers_s`, and `host_token_s` for each cached token.

    If `overlapped`, copies run concurrently with `beside_share` of the kernels.
    """

    weights_s: float = 0.0
    stored_weights_s: float = 0.0
    read_s: float = 0.0
    stored_read_s: float = 0.0
    stored_write_s: float = 0.0
    write_s: float = 0.0
    hidden_s: float = 0.0
    unpack_s: float = 0.0
    attention_s: float = 0.0
    device_attention_share: float = 1.0
    host_layer_share: float = 0.0
    host_tokens: int = 0
    host_layers_s: float = 0.0
    host_token_s: float = 0.0
    beside_share: float = 1.0
    overlapped: bool = True

    def pass_s(self, kernels_s: Floats, blocks_s: Floats, new: Counts, cached: Counts) -> Floats:
        """Return the seconds of passes with their copies; all arrays have one shape.

        Parameters
        ----------
        kernels_s : seconds of all kernels and messages on the device, if it computes all blocks
        blocks_s : the seconds of blocks in `kernels_s`
        new, cached : new tokens, and tokens in the cache after the pass
        """
        before = np.maximum(cached - new, 0.0)
        on_host = (new <= self.host_tokens) * (self.host_layer_share > 0)
        copied = 1.0 - on_host
        device_s = kernels_s - on_host * self.host_layer_share * blocks_s + copied * self.unpack_s
        host_s = self.attention_s * cached + on_host * (self.host_layers_s + self.host_token_s * cached)
        links = (
            copied * (self.weights_s + self.read_s * before) + self.hidden_s * new,
            (self.write_s + self.hidden_s) * new,
            copied * (self.stored_weights_s + self.stored_read_s * before) + self.stored_write_s * new,
        )
        if not self.overlapped:
            one_by_one_s: Floats = device_s + host_s + links[0] + links[1] + links[2]
            return one_by_one_s
        beside_s = self.beside_share * copied * (kernels_s + self.unpack_s)
        longest_s = np.maximum(np.maximum(links[0], links[1]), np.maximum(links[2], beside_s))
        found_s: Floats = device_s + host_s - beside_s + longest_s
        return found_s
