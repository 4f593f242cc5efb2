"""The site: what a particular machine sustains, in place of values of the cluster's description.

Answers: which factors differ here, by how much, and how sure is that? A factor is named as in a
report ("host", "gemm_level[a100-sxm4-80gb]"); `ratio` multiplies its time.
Precedence: site > cluster > device > relative.
"""

from pydantic import Field

from flopcast.spec.slow_parts import SlowParts
from flopcast.spec.source import Sources
from flopcast.strict_model import StrictModel
from flopcast.units import Hertz

LEAST_LIMIT_FRACTION = 0.3  # of the board power: measured epochs go down to 0.38 (data/power/zeus_*.csv)


class SiteFactor(StrictModel):
    """The measured value of one named factor.

    Attributes
    ----------
    name : str
        Name of the factor as reports of this cluster print it. A factor that no prediction uses has no
        effect.
    ratio : float
        Time on this machine over time without the site file: 1.1 is 10 % slower.
    log_sigma_factor : float or None
        Standard deviation of the logarithm of `ratio`, about its relative error. None keeps the value of
        the cluster, device or stack.
    """

    name: str
    ratio: float = Field(gt=0)
    log_sigma_factor: float | None = Field(default=None, ge=0)


class RunShare(StrictModel):
    """How much a measured time depends on one factor.

    Attributes
    ----------
    name : str
        Name of the factor.
    share : float
        Sensitivity of the time to the factor: d log(time) / d log(factor).
    log_sigma_factor : float
        Standard deviation of the logarithm of the factor before anything was measured on this machine.
    """

    name: str
    share: float = Field(ge=0)
    log_sigma_factor: float = Field(ge=0)


class SiteRun(StrictModel):
    """A time that was measured on this machine, of a step or of a part of it, relative to its prediction.

    Attributes
    ----------
    name : str
        "step", or the part of the step that was timed, such as "gemm".
    ratio : float
        Measured time over the time that is predicted without the runs of this site.
    log_sigma_factor : float
        Noise of the measurement: standard deviation of the logarithm of `ratio`.
    shares : tuple of RunShare
        The factors that the time depends on.
    """

    name: str = "step"
    ratio: float = Field(gt=0)
    log_sigma_factor: float = Field(gt=0)
    shares: tuple[RunShare, ...] = ()


# Equal devices differ in the clock that their power controller allows: on five large clusters the times of
# kernels differed by 8 % on average, outliers aside (abstract of arXiv:2208.11035). Taken as the distance
# between the whiskers of box plots, which is 5.4 standard deviations of normal numbers.
CLOCK_SPREAD_FRACTION = 0.015


class Site(StrictModel):
    """A named set of factors, measured on one machine.

    Factors multiply times and never add to them, so a site file of an A100 cluster also holds for other
    models and plans on that cluster. Without a site file, every factor keeps its value from the catalogue.

    Attributes
    ----------
    name : str
        Name of the site in reports.
    factors : tuple of SiteFactor
        The factors that were measured.
    runs : tuple of SiteRun
        The runs that `factors` were calibrated with. The part of their error that no factor explains also
        corrects similar steps (cost/site_runs.py).
    power_limit_w : float or None
        Power limit of a device; None is its board power. Below the board power, matrix products and
        attention take longer (cost/kernels/clocks.py).
    clock_hz : float or None
        Clock that the multiprocessors are locked to; None if it is not locked. No measurement tests the
        effect.
    clock_spread_fraction : float
        Standard deviation of the clocks of equal devices over their mean. A synchronous step runs at the
        pace of the slowest device. The default was measured on five clusters of V100, Quadro RTX and MI60
        devices (Sinha et al., SC22, arXiv:2208.11035).
    slow : tuple of SlowPart
        Single devices, hosts and links that are slower than the others, or a text: "device=3:0.8" is the
        device of rank 3 at 0.8 of its speed.

    Examples
    --------
    >>> slow = SiteFactor(name="host", ratio=1.2, log_sigma_factor=0.05)
    >>> Site(name="our-cluster", factors=(slow,)).factors[0].ratio
    1.2
    """

    name: str = "none"
    factors: tuple[SiteFactor, ...] = ()
    runs: tuple[SiteRun, ...] = ()
    power_limit_w: float | None = Field(default=None, gt=0)
    clock_hz: Hertz | None = Field(default=None, gt=0)
    clock_spread_fraction: float = Field(default=CLOCK_SPREAD_FRACTION, ge=0, le=0.2)
    slow: SlowParts = ()
    source: Sources = ()
