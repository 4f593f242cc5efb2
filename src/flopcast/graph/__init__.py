"""Graphs of exported models, and the blocks that they become.

operator_graph.py has the graph as data, canonical.py what each operator computes and keeps, and saved.py
what autograd keeps. `model_of_graph` (model_of_graph.py) finds parts that repeat (segments.py), makes each
operator a step of a traced block (steps.py, products.py), and returns the data of a model.

Elsewhere: the file formats (interop/graphs/), the layers of such blocks (layers/graph_operators.py).
"""
