"""The site: what this particular machine really sustains, laid over the cluster's description.

Answers: which factors differ here, by how much, and how sure is that? A factor is named as in a
report ("host", "gemm_level[a100-sxm4-80gb]"); `ratio` multiplies its time.
Precedence: site > cluster > device > relative.
"""

from pydantic import Field

from flopcast.spec.model import Source
from flopcast.strict_model import StrictModel

LEAST_LIMIT_FRACTION = 0.3  # of the board power: measured epochs go down to 0.38 (data/power/zeus_*.csv)


class SiteFactor(StrictModel):
    """One named factor as measured here.

    Attributes
    ----------
    name : str
        A factor that reports of this cluster name; one that no item uses changes nothing.
    ratio : float
        Time here over time without the site file: 1.1 is ten per cent slower.
    log_sigma_factor : float or None
        How uncertain the ratio is (standard deviation of its logarithm, about the relative error);
        None keeps what the cluster, device or stack says.
    """

    name: str
    ratio: float = Field(gt=0, description="time here / time without the site file")
    log_sigma_factor: float | None = Field(default=None, ge=0)


class RunShare(StrictModel):
    """One factor of a measured time: its sigma before anything was measured here, and its share.

    `share` is d log(time) / d log(factor).
    """

    name: str
    share: float = Field(ge=0)
    log_sigma_factor: float = Field(ge=0)


class SiteRun(StrictModel):
    """One time that was measured here, of a step or of a part of it, beside its prediction.

    Attributes
    ----------
    name : str
        "step", or the part of it: "gemm".
    ratio : float
        Measured / predicted without the runs of this site.
    log_sigma_factor : float
        Noise of the measurement.
    shares : tuple of RunShare
        The factors that the time depends on.
    """

    name: str = "step"
    ratio: float = Field(gt=0, description="measured / predicted without the runs of the site")
    log_sigma_factor: float = Field(gt=0)
    shares: tuple[RunShare, ...] = ()


# Equal devices differ in the clock that their power controller allows: on five large clusters the times of
# kernels differed by 8 % on average, outliers aside (abstract of arXiv:2208.11035). Taken as the distance
# between the whiskers of box plots, which is 5.4 standard deviations of normal numbers.
CLOCK_SPREAD_FRACTION = 0.015


class Site(StrictModel):
    """A named set of factors, measured on one machine.

    Factors scale times and never add to them, so that a site file of an A100 cluster stays true for
    other models and plans on it. Without one every factor keeps its value of the catalogue.

    Attributes
    ----------
    name : str
    factors : tuple of SiteFactor
    runs : tuple of SiteRun
        The runs that `factors` were calibrated with. Steps that are like one of them share what no factor
        explains of it (cost/site_runs.py).
    power_limit_w : float or None
        What a device may draw here; None: its board power. Below it products and attention take longer
        (cost/kernels/clocks.py).
    clock_hz : float or None
        The clock that multiprocessors are set to; None: they are free. No measurement tests what it does.
    clock_spread_fraction : float
        Standard deviation of the clocks of equal devices over their mean. A synchronous step runs at the
        pace of the slowest device. The default is what was measured on five clusters of V100, Quadro RTX
        and MI60 devices (Sinha et al., SC22, arXiv:2208.11035).
    source : tuple of Source

    Examples
    --------
    >>> slow = SiteFactor(name="host", ratio=1.2, log_sigma_factor=0.05)
    >>> Site(name="our-cluster", factors=(slow,)).factors[0].ratio
    1.2
    """

    name: str = "none"
    factors: tuple[SiteFactor, ...] = ()
    runs: tuple[SiteRun, ...] = ()
    power_limit_w: float | None = Field(default=None, gt=0, description="of a device; None: its board's")
    clock_hz: float | None = Field(default=None, gt=0, description="set on multiprocessors; None: free")
    clock_spread_fraction: float = Field(
        default=CLOCK_SPREAD_FRACTION,
        ge=0,
        le=0.2,
        description="standard deviation of clocks between devices, over their mean",
    )
    source: tuple[Source, ...] = ()
