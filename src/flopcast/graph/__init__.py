"""Graphs of exported models, and the blocks that they become.

operator_graph.py holds the graph as data, canonical.py states what each operator computes and keeps, and
saved.py states what autograd keeps. `model_of_graph` (model_of_graph.py) finds parts that repeat
(segments.py), makes each operator a step of a traced block (steps.py, products.py), and returns the data
of a model.

Elsewhere: the file formats (interop/graphs/), the layers of these blocks (layers/graph_operators.py).
"""
