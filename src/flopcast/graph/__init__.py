"""Operator graphs of exported models, and the layers that they become."""
