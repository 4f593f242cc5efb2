"""Launch scripts of Megatron-LM, its releases and its forks, as jobs.

`launch_document` (launch_script.py) parses the shell without running it (interop/shell/), takes the flags
of the training command (arguments.py, flags.yaml), and builds the data of a job (job_builder.py): model.py,
plan.py, stages.py, precision.py, optimizer.py, offload.py and stack.py read one subject each.
"""
