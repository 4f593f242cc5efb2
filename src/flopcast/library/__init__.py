"""The catalogue: devices, clusters, models, stacks, engines, curves and constants by name.

catalog.py returns entries as the models of spec/. curves.py reads the curves that a prediction may use,
constants.py and graph_efficiencies.py the fitted constants, hub.py models of the Hugging Face hub by their
ids. edits.py understands the short forms in which users write plans and changes.

The files themselves are in the folder `catalog` of the package.
"""
