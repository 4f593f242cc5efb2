"""The fitted numbers of one kind of software, as predictions use them.

Answers: which efficiencies of kernel classes and which levels of devices were fitted, and on what?
Elsewhere: the meaning of a number (efficiency.py), the file (library/graph_efficiencies.py), the fit
(lab/graph_runs/fit.py), which kind of software a job runs (software.py).
"""

from collections.abc import Mapping

from flopcast.dtypes import Logs
from flopcast.records import Record
from flopcast.units import Number


class Efficiencies(Record, eq=False):
    """The numbers of one kind of software.

    `levels` contains the logarithms of each device's rates, divided by the expected rates, for compute and
    for memory. `log_sigma_factor` describes the errors for families that were left out of the fit, and
    `other_device_log_sigma_factor` those for devices that were left out. `host_s` is the time that the host
    needs for each kernel, `hop_s` the time of each hop of a ring, and `call_s` the additional time of each
    kernel on a CPU. All three were chosen by hand with the tables of this software.
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
