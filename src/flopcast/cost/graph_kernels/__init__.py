"""Times of kernels of exported graphs, such as convolutions.

No table of single kernels covers these models. Efficiencies were therefore fitted on measured steps: a
level for each kernel class (kernel_classes.py), and small tables over the coordinates of a kernel.
operator_rows.py turns items into rows, efficiency.py prices rows, rates.py gives the bounds of a device,
and software.py chooses the numbers for a stack. All of these numbers count as fitted constants.

Elsewhere: the fit and its scores (lab/graph_runs/), the file of the numbers
(library/graph_efficiencies.py).
"""
