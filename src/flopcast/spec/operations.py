"""The operation of a cluster: the price, the power and the failures of devices.

Answers: which numbers are behind money, energy and lost time, and which hold where none is stated?
Elsewhere: what a step and a whole run cost by them (economics/), prices that ship (catalog/prices).
Defaults name their source here; every one has a sigma, which is where intervals of costs come from. Powers
are fractions of the board power that a device's data sheet prints, because that is what published
measurements have in common.
"""

from typing import Literal

from pydantic import Field

from flopcast.spec.model import Source
from flopcast.strict_model import StrictModel

POWER_CLASSES = ("products", "attention", "memory", "communication", "waiting")
HOUR_S = 3600.0


class Price(StrictModel):
    """The price of one device per hour, with its share of the node, from a public price list.

    Attributes
    ----------
    device : str
        The device that is for hire; empty where a user states a price of his own.
    terms : str
        "on_demand" may be given back at any time, "reserved" is paid for whether used or not, "own" is what
        a user states.
    date : str
        When the price was read: prices of this kind change every month.
    log_sigma_factor : float
        0: a price is as certain as it is stated; a budget for next year may say 0.2.
    """

    name: str = "own"
    device: str = ""
    device_usd_per_hour: float = Field(gt=0, description="dollars for one device and hour")
    currency: Literal["USD"] = Field(default="USD", description="no rates of exchange are kept")
    terms: Literal["on_demand", "reserved", "own"] = "own"
    date: str = Field(default="", description="when it was read: 2026-09-20")
    log_sigma_factor: float = Field(default=0.0, ge=0)
    source: tuple[Source, ...] = ()

    def text(self) -> str:
        """Return the price and its source, "3.99 USD/h per device (aws-p5, on demand, 2026-11-09)"."""
        words = ", ".join(word for word in (self.name, self.terms.replace("_", " "), self.date) if word)
        origin = "your own" if self.terms == "own" and self.name == "own" else words
        return f"{self.device_usd_per_hour:g} USD/h per device ({origin})"


class Draw(StrictModel):
    """Power as a fraction of the board power, and the sigma of its logarithm."""

    fraction: float = Field(gt=0, le=1, description="of the board power")
    log_sigma_factor: float = Field(default=0.1, ge=0)


def _draw(fraction: float, log_sigma_factor: float) -> Draw:
    return Draw(fraction=fraction, log_sigma_factor=log_sigma_factor)


class Power(StrictModel):
    """The power of a device during each kind of work, as fractions of its board power.

    Attributes
    ----------
    products, attention, memory : Draw
        Matrix products, fused attention, and kernels that wait for memory. Large products run into the
        power limit: they are slower with random than with constant data for that reason alone.
    communication : Draw
        A collective that compute waits for; beside compute it is taken to cost nothing, as a device at its
        limit gives up clock for it.
    waiting : Draw
        Nothing but kernels that spin, for a neighbour or for launches, at full clock.
    idle : Draw
        No work at all: while a job is restarted or waits for storage.

    References
    ----------
    Products, attention, memory: watts of single kernels on H200 and B200 (data/power, from
    ai-dynamo/aiconfigurator, commit 095f58a51). Products of 1e11 FLOP and more draw 0.98 of the limit in
    the median; attention 0.75 on H200 and 0.93 on B200; products of few rows, which wait for memory, 0.6 to
    0.8. Devices of those two generations state their own attention; others have the mean of both.
    Products also: power limits H100 (H. He, "Strangely, matrix multiplications on GPUs run faster when
    given 'predictable' data", 2024); training steps reach or exceed the limit on A100, and fall to a fifth
    to three quarters of it between them (Patel et al., ASPLOS 2024, DOI 10.1145/3620666.3651329).
    Communication: from 128 to 2048 H100 of a data-parallel job a third less work is done in the same time,
    yet a device draws 620 W in the place of 658 (arXiv:2411.13055; both numbers were read second-hand and
    are not verified against the paper's text), which would be 0.8 for exchanges; between this and the
    troughs on A100, hence a wide sigma. Training on H100 moves between 15 % of the most that a device
    draws, while it saves, and 85 % (arXiv:2503.05804, abstract). Waiting: an estimate between these, as
    wide as what is known (docs/accuracy/journal.md).
    """

    products: Draw = _draw(0.98, 0.05)
    attention: Draw = _draw(0.85, 0.15)
    memory: Draw = _draw(0.7, 0.15)
    communication: Draw = _draw(0.65, 0.25)
    waiting: Draw = _draw(0.35, 0.35)
    idle: Draw = _draw(0.15, 0.25)


class Facility(StrictModel):
    """The power that is drawn in addition to the devices.

    Attributes
    ----------
    node_overhead_fraction : float
        Processors, memory, network cards, switches and fans of a node, for each device, as a fraction of
        its board power; they draw it whatever the devices do.
    power_usage_effectiveness_ratio : float
        Power of the building over power of the computers in it (PUE).

    References
    ----------
    A node of 8 H100 that trains draws 7.8 kW on average and 8.4 kW at most (abstracts of
    arXiv:2506.14551, 76 % of 10.2 kW, and of arXiv:2412.08602), where its devices draw about 5 of at
    most 5.6: half of the board power. PUE 1.2: as where BLOOM was trained (arXiv:2211.02001); operators
    of clouds print 1.1, the mean of a survey of 2024 is 1.56 (Uptime Institute).
    """

    node_overhead_fraction: float = Field(default=0.5, ge=0, description="of the board power, a device")
    node_overhead_log_sigma_factor: float = Field(default=0.25, ge=0)
    power_usage_effectiveness_ratio: float = Field(default=1.2, ge=1, description="PUE")
    power_usage_effectiveness_log_sigma_factor: float = Field(default=0.1, ge=0)


class Reliability(StrictModel):
    """The rate of interruptions of a run, and the time of an interruption and of a checkpoint.

    Attributes
    ----------
    device_time_between_failures_s : float
        Mean, of one device with its share of everything that can stop a job; a job of n devices is
        interrupted n times as often.
    restart_s : float
        From the failure to the first new step: found out, nodes exchanged, started, checkpoint loaded.
    checkpoint_s : float
        How long the devices stand still for one checkpoint; what is written while they go on is no part.
    checkpoint_interval_s : float or None
        Work between two checkpoints; None: what loses the least time.

    References
    ----------
    Failures: 466 interruptions in 54 days of 16,384 H100, 419 of them unexpected, 50,700 device-hours
    each (Llama 3, arXiv:2407.21783, section 3.3.4); two clusters of A100, 6.5 and 2.34 failures in 1000
    days of a node of 8, 29,500 and 82,100 device-hours (arXiv:2410.21680). Their geometric mean and
    spread stand here. Restart: with these, 10 minutes and the checkpoint below, a run like Llama 3's
    keeps 91 % of its time, and "more than 90 %" is printed. Checkpoint: 6.3 s, asynchronous, of a 7B
    model, 148.8 s otherwise (https://pytorch.org/blog/reducing-checkpointing-times).
    """

    device_time_between_failures_s: float = Field(default=49_700 * HOUR_S, gt=0)
    failures_log_sigma_factor: float = Field(default=0.5, ge=0)
    restart_s: float = Field(default=600.0, ge=0)
    restart_log_sigma_factor: float = Field(default=0.5, ge=0)
    checkpoint_s: float = Field(default=6.3, gt=0)
    checkpoint_log_sigma_factor: float = Field(default=0.7, ge=0)
    checkpoint_interval_s: float | None = Field(default=None, gt=0, description="None: the best")
