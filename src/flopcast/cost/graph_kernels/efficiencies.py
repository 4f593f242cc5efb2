"""The fitted numbers of one kind of software, as predictions use them.

Answers: which efficiencies of kernel classes and which levels of devices were fitted, and on what?
Elsewhere: what a number stands for (efficiency.py), the file (library/graph_efficiencies.py), the fit
(lab/graph_runs/fit.py), which kind of software a job runs (software.py).
"""

from collections.abc import Mapping

from flopcast.dtypes import Logs
from flopcast.records import dataclass
from flopcast.units import Number


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Efficiencies:
    """The numbers of one kind of software.

    `levels` has the logarithms of each device's rates over those expected, for compute and for memory.
    `log_sigma_factor` describes the errors of families that were left out, `other_device_log_sigma_factor`
    those of devices that were left out. `host_s` is the least time of each kernel, which its host needs,
    `hop_s` that of each hop of a ring, and `call_s` the time that a processor takes for each kernel beside
    its work: all three were chosen by hand on the tables of this software.
    """

    numbers: Logs
    levels: Mapping[str, tuple[float, float]]
    log_sigma_factor: Number
    other_device_log_sigma_factor: Number
    sources: tuple[str, ...] = ()
    rows: int = 0
    host_s: Number = 0.0
    hop_s: Number = 0.0
    call_s: Number = 0.0
