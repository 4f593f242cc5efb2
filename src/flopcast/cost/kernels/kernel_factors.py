"""The named factors that scale a kernel class on a device, in a stack.

Answers: which factors scale the times of a kernel class?
Elsewhere: what a factor is (cost/factors.py), the seconds that they scale (cost/price.py).
"""

import math

from flopcast.cost.factors import Factor, FactorBook
from flopcast.cost.kernels.classes import KernelClass
from flopcast.cost.kernels.clocks import clock_factors
from flopcast.cost.kernels.curve_book import CurveMatch
from flopcast.cost.kernels.generations import generation_ratio, kernel_that_runs
from flopcast.spec.cluster import Cluster
from flopcast.spec.stack import Stack

RESERVED_LOG_SIGMA = 0.05  # an estimate: tiles run in waves on the other multiprocessors


def kernel_factors(
    priced: KernelClass, found: CurveMatch, cluster: Cluster, stack: Stack, factors: FactorBook
) -> tuple[Factor, ...]:
    """Return the factors of a kernel class.

    These are the level of its family (GEMMs, attention, memory-bound), factors for a curve of another class
    or device or of another generation of the kernel, factors of the site's clocks (clocks.py), a factor for
    multiprocessors that messages occupy, and the stack's derate for GEMMs.
    """
    device = cluster.node.device
    generation, doubt = generation_ratio(stack.attention_generation, priced.curve, found.curve.owner)
    level_log_sigma = found.curve.evidence.log_sigma_factor
    if priced.kind.is_product:
        level_log_sigma = math.hypot(level_log_sigma, device.sustained.log_sigma_factor)
    made = [(f"{priced.kind.family}[{device.name}]", level_log_sigma, 1.0)]
    if found.class_log_sigma_factor > 0:
        made.append((f"borrowed[{priced.curve}]", found.class_log_sigma_factor, 1.0))
    if found.device_log_sigma_factor > 0:
        label = f"uncalibrated[{device.name}: {priced.kind.name}]"
        made.append((label, found.device_log_sigma_factor, 1.0))
    if doubt > 0:
        runs = kernel_that_runs(stack.attention_generation, found.curve.owner)
        label = f"attention_generation[{runs}: {priced.curve}]"
        made.append((label, doubt, generation))
    made += clock_factors(priced, factors.site, device, cluster.num_devices)
    if priced.kind.is_core_bound and (reserved := stack.contention.reserved_multiprocessors):
        ratio = device.multiprocessors / (device.multiprocessors - reserved)
        made.append((f"reserved_multiprocessors[{stack.name}]", RESERVED_LOG_SIGMA, ratio))
    found_factors = tuple(factors.get(*each) for each in made)
    return (*found_factors, factors.derate(stack)) if priced.is_derated else found_factors
