"""The site: factors that were measured on one cluster, and that replace those of the catalogue.

Answers: which factors differ on this cluster, by how much, and how uncertain are they?

A factor has the name that reports print ("host", "gemm_level[a100-sxm4-80gb]"). `ratio` multiplies the time
that the factor scales. The factor of a site has precedence over that of the cluster, then of the device,
then of a similar device.
"""

from collections import Counter
from typing import Annotated

from pydantic import AfterValidator, Field

from flopcast.spec.factor_kinds import known_factor
from flopcast.spec.slow_parts import SlowParts
from flopcast.spec.source import Sources
from flopcast.strict_model import NotAllowedError, StrictModel
from flopcast.units import Hertz

LEAST_LIMIT_FRACTION = 0.3  # of the board power: measured epochs go down to 0.38 (data/power/zeus_*.csv)


class SiteFactor(StrictModel):
    """The measured value of one named factor.

    Attributes
    ----------
    name : str
        Name of the factor, as reports of predictions for this cluster print it.
    ratio : float
        Measured time on this machine divided by the time that is predicted without the site file: 1.1 means
        that this machine is 10 % slower.
    log_sigma_factor : float or None
        Uncertainty of `ratio`, as the standard deviation of its logarithm, which is about the relative
        error. By default (null), the value of the cluster, device or stack.
    """

    name: Annotated[str, AfterValidator(known_factor)]
    ratio: float = Field(gt=0)
    log_sigma_factor: float | None = Field(default=None, ge=0)


class RunShare(StrictModel):
    """How strongly a measured time depends on one factor.

    Attributes
    ----------
    name : str
        Name of the factor.
    share : float
        Sensitivity of the time to the factor: d log(time) / d log(factor).
    log_sigma_factor : float
        Uncertainty of the factor before the measurements on this machine, as the standard deviation of its
        logarithm.
    """

    name: str
    share: float = Field(ge=0)
    log_sigma_factor: float = Field(ge=0)


def _each_once(factors: tuple[SiteFactor, ...]) -> tuple[SiteFactor, ...]:
    """Return the factors of a site; each of them has one ratio."""
    for name, count in Counter(factor.name for factor in factors).items():
        if count > 1:
            allowed, because = "each factor once", f"{name} has {count} ratios, and only one can apply"
            raise NotAllowedError(allowed, because, f"leave out all but one entry of {name}")
    return factors


class SiteRun(StrictModel):
    """A measured time of a step, or of a component of it, divided by its prediction.

    Attributes
    ----------
    name : str
        What was timed: "step", or a component of the step, such as "gemm".
    ratio : float
        Measured time divided by the time that is predicted without the runs of this site.
    log_sigma_factor : float
        Noise of the measurement, as the standard deviation of the logarithm of `ratio`.
    shares : tuple of RunShare
        The factors on which the time depends.
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
    """Calibration factors that were measured on one cluster.

    Each factor multiplies the times of one kind of kernel or message. A site file therefore applies to all
    models and plans on its cluster. Without a site file, predictions use the factors of the catalogue.

    Attributes
    ----------
    name : str
        Name of the site in reports.
    factors : tuple of SiteFactor
        The factors that were measured.
    runs : tuple of SiteRun
        The runs from which the factors were calibrated. After the calibration, errors of these runs remain.
        flopcast corrects predictions of similar jobs by these errors.
    power_limit_w : float or None
        Power limit of each device in watts; by default (null), the board power. With a lower limit, GEMMs
        and attention take longer.
    clock_hz : float or None
        Clock to which the multiprocessors are locked; by default (null), the clock is not locked. The
        predicted effect has not been compared with measurements.
    clock_spread_fraction : float
        Standard deviation of the clocks of equal devices, divided by their mean. The spread lengthens
        steps, because a synchronous step waits for the slowest device. The default was measured on five
        clusters of V100, Quadro RTX and MI60 devices (Sinha et al., SC22, arXiv:2208.11035).
    slow : tuple of SlowPart
        Single devices, hosts and links that are slower than the others. As text, "device=3:0.8" means that
        the device of rank 3 runs at 80 % of its normal speed.

    Examples
    --------
    >>> slow = SiteFactor(name="host", ratio=1.2, log_sigma_factor=0.05)
    >>> Site(name="our-cluster", factors=(slow,)).factors[0].ratio
    1.2
    """

    name: str = "none"
    factors: Annotated[tuple[SiteFactor, ...], AfterValidator(_each_once)] = ()
    runs: tuple[SiteRun, ...] = ()
    power_limit_w: float | None = Field(default=None, gt=0)
    clock_hz: Hertz | None = Field(default=None, gt=0)
    clock_spread_fraction: float = Field(default=CLOCK_SPREAD_FRACTION, ge=0, le=0.2)
    slow: SlowParts = ()
    source: Sources = ()
