"""When items run: inside a layer, through a stage, along the pipeline, and in the whole step.

`run_step` (step.py) takes priced programs and an order of tasks and returns the `Timeline` of one plan:
begin and end of every task, the step, its critical path and its busiest stage. A layer is a max-plus matrix
over streams (layer.py, max_plus.py), in which messages overlap with compute and slow it down
(contention.py). The pipeline is a graph of tasks and transfers (chains.py, pipeline.py). closed_form.py
estimates steps of many plans at once for a search; a prediction never uses it.

Elsewhere: the interval, which follows from the factors of the step (uncertainty.py), and the report
(report/).
"""
