"""Formats of other programs, which are read as jobs, models and traffic, and written from jobs.

configs/ reads configurations of trainers, megatron/ reads launch scripts of Megatron-LM and its forks,
serving/ reads launch commands of engines, hugging_face/ reads config.json, graphs/ reads exported models,
request_traces/ reads traffic, and tracing/ reads models that PyTorch runs without weights. exports/
writes files. Readers return the data of a job file with the line of every value, so that one validator
checks all formats. No reader runs the code of a file.
"""
