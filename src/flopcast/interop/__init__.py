"""Formats of other programs: they become jobs, models and traffic, or jobs become files of theirs.

configs/ reads configurations of trainers, megatron/ launch scripts of Megatron-LM and its forks, serving/
launch commands of engines, hugging_face/ config.json, graphs/ exported models, request_traces/ traffic, and
tracing/ models that PyTorch runs without weights. exports/ writes. Readers return the data of a job file
with the line of every value, so that one validator checks all formats. No reader runs the code of a file.
"""
