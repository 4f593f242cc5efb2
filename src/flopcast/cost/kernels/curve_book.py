"""The curves that one prediction may use, and how a missing curve is replaced.

Answers: which curve applies to this kernel class on this device, and how much uncertainty does a
replacement add? The book tries, in this order: the curve of the class on this device, that of a related
class on this device, both on a related device, and an estimate from the data sheet.
"""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.graph_kernels.efficiencies import Efficiencies
from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES, WIDENED, FallbackClass
from flopcast.records import Record, field, replace

UNCALIBRATED_EFFICIENCY = 0.6  # of the bound: the middle of what measured kernels reach
UNCALIBRATED_LOG_SIGMA = 0.3


class CurveMatch(Record, eq=False):
    """A curve, its uncertainty if it was borrowed, and whether it was measured.

    `class_log_sigma_factor` is 0 if the curve belongs to the class, and `device_log_sigma_factor` is 0 if
    it belongs to the device. The first is an error of one class, and the second an error of all classes of
    its kind on the device. `calibrated` is False only for a data-sheet estimate.
    """

    curve: Curve
    class_log_sigma_factor: float = 0.0
    device_log_sigma_factor: float = 0.0
    calibrated: bool = True

    @property
    def log_sigma_factor(self) -> float:
        """Return both log-sigmas, added in quadrature."""
        return float(np.hypot(self.class_log_sigma_factor, self.device_log_sigma_factor))


class CurveBook(Record, eq=False):
    """Curves by (owner, name), where owners are devices and fabrics, and fitted constants by name.

    A book holds all curves that a cluster may need (library/curves.py loads them), so that the core opens
    no file. `graphs` are the efficiencies of kernels of exported graphs, by kind of software. `groups` are
    the books of the groups of nodes, if there are several: the book of a device holds curves of related
    devices, converted for this device.
    """

    curves: Mapping[tuple[str, str], Curve]
    levels: Mapping[str, FittedLevel] = field(default_factory=dict)
    graphs: Mapping[str, Efficiencies] = field(default_factory=dict)
    groups: tuple["CurveBook", ...] = ()

    def find(
        self,
        owner: str,
        name: str,
        launch_s: float,
        cousins: tuple[str, ...] = (),
        engine_ratio: float = 1.0,
    ) -> CurveMatch:
        """Return the curve for kernel class `name` on `owner`, or the most similar curve that exists.

        `cousins` are devices whose curves may be borrowed, the most similar first. `engine_ratio` is the
        peak that bounds the class, divided by the peak in 16 bits, which the curve of a related class may
        need. If there is no curve, the result is a data-sheet estimate with the launch time `launch_s`.

        Examples
        --------
        >>> CurveBook(curves={}).find("b200", "gemm", launch_s=2e-6).calibrated
        False
        """
        classes = (FallbackClass(name=name, log_sigma_factor=0.0), *_chain(name, owner))
        one = class_of(name)
        elsewhere = one.kind.other_device_log_sigma_factor
        # kernels of engines on another device are nearer than those of training, which know no few rows
        serving = tuple(each for each in classes if one.base.serves and class_of(each.name).base.serves)
        places = ((owner, 0.0), *((cousin, elsewhere) for cousin in cousins))
        for known, (place, foreign) in product((serving, classes), places):
            for relative in known:
                borrowed = self.curves.get((place, relative.name))
                if borrowed is not None:
                    curve = slower(borrowed, relative.time_ratio_of(engine_ratio))
                    if wide := WIDENED.get(relative.name):
                        curve = replace(curve, widened=self.find(owner, wide, launch_s, cousins).curve)
                    return CurveMatch(
                        curve=curve,
                        class_log_sigma_factor=relative.log_sigma_factor,
                        device_log_sigma_factor=foreign,
                    )
        return CurveMatch(
            curve=flat_curve(owner, name, UNCALIBRATED_EFFICIENCY, launch_s),
            device_log_sigma_factor=UNCALIBRATED_LOG_SIGMA,
            calibrated=False,
        )

    def exact(self, owner: str, name: str) -> Curve | None:
        """Return the curve of exactly this owner and name; fabrics never use the curves of others."""
        return self.curves.get((owner, name))


def _chain(name: str, device: str) -> Iterator[FallbackClass]:
    """Yield the fallback classes in order, with their ratios multiplied and sigmas added in quadrature."""
    ratio, sigma, speed_up_ratio = 1.0, 0.0, None
    while (relative := FALLBACK_CLASSES.get(name)) is not None:
        ratio *= relative.time_ratio_on(device)
        sigma = float(np.hypot(sigma, relative.log_sigma_factor))
        speed_up_ratio = relative.speed_up_ratio or speed_up_ratio
        yield FallbackClass(
            name=relative.name, log_sigma_factor=sigma, time_ratio=ratio, speed_up_ratio=speed_up_ratio
        )
        name = relative.name


def slower(curve: Curve, time_ratio: float) -> Curve:
    """Return a curve whose efficiency is divided by the ratio; the curve itself if the ratio is 1."""
    return curve if time_ratio == 1.0 else replace(curve, table=curve.table - np.log(time_ratio))


def flat_curve(owner: str, name: str, efficiency: float, launch_s: float) -> Curve:
    """Return a curve of constant efficiency: an estimate from the data sheet, without axes.

    Parameters
    ----------
    owner : str
        Device or fabric.
    name : str
        Class of the curve.
    efficiency : float
        Fraction of the peak that is reached at every size, in (0, 1].
    launch_s : float

    Returns
    -------
    Curve
        Its evidence states that nothing was measured. Its sigma is `UNCALIBRATED_LOG_SIGMA`.
    """
    return Curve(
        name=name,
        owner=owner,
        axes=(),
        table=np.array(np.log(efficiency)),
        launch_s=launch_s,
        evidence=CurveEvidence(
            source="data sheet, uncalibrated", rows=0, rejected=0, relative_error=UNCALIBRATED_LOG_SIGMA
        ),
    )
