"""Times of single kernels and messages, and the factors that scale them.

`price` (price.py) gives every item of some programs a price: its time if nothing else runs, the factors
that scale this time, and the link of a message. kernels/ prices kernels by measured curves, collectives/
messages by formulas and measured curves, graph_kernels/ kernels of exported graphs by fitted efficiencies,
tier_copies.py copies to other memories, and host.py the launches. placement.py says which links join the
ranks of an axis. Factors and their uncertainty are in factors.py.

Elsewhere: when items run and what overlaps (timeline/), the fit of curves (lab/calibration/).
"""
