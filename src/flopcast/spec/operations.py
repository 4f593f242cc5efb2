"""The operation of a cluster: prices, power and failures of devices.

Answers: which numbers determine cost, energy and lost time, and which defaults do they have?
Elsewhere: the cost of a step and of a run (economics/), list prices (catalog/prices).

The docstrings state the source of each default. Every number has a sigma, from which the intervals of costs
are computed. Powers are fractions of the board power in the device's data sheet, because published
measurements state them in this form.
"""

from typing import Literal

from pydantic import Field

from flopcast.spec.source import Sources
from flopcast.strict_model import StrictModel

POWER_CLASSES = ("products", "attention", "memory", "communication", "waiting")
HOUR_S = 3600.0


class Price(StrictModel):
    """Price of one device per hour, from a public price list. It includes the rest of the node.

    Attributes
    ----------
    name : str
        Name of the price in the catalogue, or "own".
    device : str
        Name of the device that the price applies to; empty if a user states the price.
    device_usd_per_hour : float
        US dollars per device and hour.
    currency : str
        Currency of the price. Only "USD" is supported.
    terms : str
        Terms of the price. "on_demand": you can release the devices at any time. "reserved": you pay for
        the devices even if you do not use them. "own": a user stated the price.
    date : str
        Day on which the price was read, such as "2026-09-20".
    log_sigma_factor : float
        Uncertainty of the price, as the standard deviation of its logarithm. 0 means that the price is
        certain; for a budget for next year, 0.2 is reasonable.
    """

    name: str = "own"
    device: str = ""
    device_usd_per_hour: float = Field(gt=0)
    currency: Literal["USD"] = "USD"
    terms: Literal["on_demand", "reserved", "own"] = "own"
    date: str = ""
    log_sigma_factor: float = Field(default=0.0, ge=0)
    source: Sources = ()

    def text(self) -> str:
        """Return the price and its source, "3.99 USD/h per device (aws-p5, on demand, 2026-11-09)"."""
        words = ", ".join(word for word in (self.name, self.terms.replace("_", " "), self.date) if word)
        origin = "your own" if self.terms == "own" and self.name == "own" else words
        return f"{self.device_usd_per_hour:g} USD/h per device ({origin})"


class Draw(StrictModel):
    """Power that a device draws during one kind of work, as a fraction of its board power.

    Attributes
    ----------
    fraction : float
        Power divided by the board power of the device.
    log_sigma_factor : float
        Uncertainty of `fraction`, as the standard deviation of its logarithm.
    """

    fraction: float = Field(gt=0, le=1)
    log_sigma_factor: float = Field(default=0.1, ge=0)


def _draw(fraction: float, log_sigma_factor: float) -> Draw:
    return Draw(fraction=fraction, log_sigma_factor=log_sigma_factor)


class Power(StrictModel):
    """Power of a device during each kind of work, as a fraction of its board power.

    Attributes
    ----------
    products : Draw
        Power during GEMMs. Large GEMMs reach the power limit of the board.
    attention : Draw
        Power during fused attention.
    memory : Draw
        Power during memory-bound kernels.
    communication : Draw
        Power during a collective that does not overlap with compute. An overlapped collective is assumed to
        need no additional power, because a device at its power limit lowers its clock instead.
    waiting : Draw
        Power while the device waits for another stage or for kernel launches.
    idle : Draw
        Power while the device has no work, because the job restarts or waits for storage.

    References
    ----------
    Products, attention, memory: watts of single kernels on H200 and B200 (data/power, from
    ai-dynamo/aiconfigurator, commit 095f58a51). Products of 1e11 FLOP and more draw 0.98 of the limit in
    the median; attention 0.75 on H200 and 0.93 on B200; products of few rows, which wait for memory, 0.6 to
    0.8. Devices of those two generations state their own attention; others have the mean of both. Products
    also: power limits H100 (H. He, "Strangely, matrix multiplications on GPUs run faster when given
    'predictable' data", 2024); training steps reach or exceed the limit on A100, and fall to a fifth to
    three quarters of it between them (Patel et al., ASPLOS 2024, DOI 10.1145/3620666.3651329).
    Communication: in a data-parallel job, 2048 H100 do a third less work in the same time than 128, yet a
    device draws 620 W instead of 658 (arXiv:2411.13055; both numbers were read second-hand and are not
    verified against the paper's text). This would be 0.8 for collectives. The default lies between this and
    the troughs on A100, hence the wide sigma. Training on H100 moves between 15 % of the most that a device
    draws, while it saves, and 85 % (arXiv:2503.05804, abstract). Waiting: an estimate between these, with a
    sigma that covers them (docs/accuracy/journal.md).
    """

    products: Draw = _draw(0.98, 0.05)
    attention: Draw = _draw(0.85, 0.15)
    memory: Draw = _draw(0.7, 0.15)
    communication: Draw = _draw(0.65, 0.25)
    waiting: Draw = _draw(0.35, 0.35)
    idle: Draw = _draw(0.15, 0.25)


class Facility(StrictModel):
    """Power that nodes and the building draw in addition to the devices.

    Attributes
    ----------
    node_overhead_fraction : float
        Power of the processors, memory, network cards, switches and fans of a node, divided by the board
        power of all its devices. It is assumed to be constant.
    node_overhead_log_sigma_factor : float
        Uncertainty of `node_overhead_fraction`, as the standard deviation of its logarithm.
    power_usage_effectiveness_ratio : float
        Power usage effectiveness (PUE): power of the building divided by the power of the computers in it.
    power_usage_effectiveness_log_sigma_factor : float
        Uncertainty of the PUE, as the standard deviation of its logarithm.

    References
    ----------
    A node of 8 H100 in training draws 7.8 kW on average and 8.4 kW at most (abstracts of arXiv:2506.14551,
    76 % of 10.2 kW, and of arXiv:2412.08602). Its devices draw about 5 of at most 5.6 kW, which leaves half
    of the board power. PUE 1.2: that of the site where BLOOM was trained (arXiv:2211.02001); operators of
    clouds print 1.1, and the mean of a survey of 2024 is 1.56 (Uptime Institute).
    """

    node_overhead_fraction: float = Field(default=0.5, ge=0)
    node_overhead_log_sigma_factor: float = Field(default=0.25, ge=0)
    power_usage_effectiveness_ratio: float = Field(default=1.2, ge=1)
    power_usage_effectiveness_log_sigma_factor: float = Field(default=0.1, ge=0)


class Reliability(StrictModel):
    """How often a run is interrupted, and how long restarts and checkpoints take.

    Attributes
    ----------
    device_time_between_failures_s : float
        Mean time between failures (MTBF) of one device. A job on n devices is interrupted n times as often.
    failures_log_sigma_factor : float
        Uncertainty of `device_time_between_failures_s`, as the standard deviation of its logarithm.
    restart_s : float
        Time from a failure to the first new step: detecting the failure, replacing nodes, starting the job
        and loading the checkpoint.
    restart_log_sigma_factor : float
        Uncertainty of `restart_s`, as the standard deviation of its logarithm.
    checkpoint_s : float
        Time that training stops for one checkpoint. Time of writing in the background does not count.
    checkpoint_log_sigma_factor : float
        Uncertainty of `checkpoint_s`, as the standard deviation of its logarithm.
    checkpoint_interval_s : float or None
        Training time between two checkpoints. By default (null), flopcast takes the interval with which the
        run loses the least time.

    References
    ----------
    Failures: 466 interruptions in 54 days of 16,384 H100, 419 of them unexpected, 50,700 device-hours each
    (Llama 3, arXiv:2407.21783, section 3.3.4); two clusters of A100, 6.5 and 2.34 failures in 1000 days of
    a node of 8, 29,500 and 82,100 device-hours (arXiv:2410.21680). The defaults are their geometric mean
    and spread. Restart: with these, 10 minutes and the checkpoint below, a run like Llama 3's keeps 91 % of
    its time; the paper prints "more than 90 %". Checkpoint: 6.3 s for an asynchronous checkpoint of a 7B
    model, which takes 148.8 s otherwise (https://pytorch.org/blog/reducing-checkpointing-times).
    """

    device_time_between_failures_s: float = Field(default=49_700 * HOUR_S, gt=0)
    failures_log_sigma_factor: float = Field(default=0.5, ge=0)
    restart_s: float = Field(default=600.0, ge=0)
    restart_log_sigma_factor: float = Field(default=0.5, ge=0)
    checkpoint_s: float = Field(default=6.3, gt=0)
    checkpoint_log_sigma_factor: float = Field(default=0.7, ge=0)
    checkpoint_interval_s: float | None = Field(default=None, gt=0)
