"""The prices of programs with several layouts, each of which is priced like a separate plan.

Answers: what is the price of each item if the ranks of an axis depend on the layout of a block?
Elsewhere: the price of one layout (price.py), the layouts (workload/layer_strategies.py).
"""

from flopcast.cost.factors import FactorBook
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.price import price
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.records import replace
from flopcast.spec.cluster import Cluster
from flopcast.workload.program import Programs


def price_legs(
    programs: Programs,
    cluster: Cluster,
    book: CurveBook,
    factors: FactorBook,
    kept: KeptResults = NOTHING_KEPT,
) -> Priced:
    """Return prices as `price` does, for the items of every layout and the messages between layouts."""
    each = [price(one, cluster, book, factors, kept) for one in (*programs.legs, *programs.between)]
    used = {(one.curve.name, one.extrapolated): one for part in each for one in part.used}
    return replace(
        each[0],
        programs=programs,
        prices={item: found for part in each for item, found in part.prices.items()},
        factors={name: factor for part in each for name, factor in part.factors.items()},
        used=tuple(used.values()),
        warnings=tuple(dict.fromkeys(text for part in each for text in part.warnings)),
    )
