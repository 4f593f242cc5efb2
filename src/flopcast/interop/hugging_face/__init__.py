"""Models of Hugging Face from their config.json.

`model_from_config` (config.py) returns the data of a model. families.yaml has an entry for each family: the
keys of its facts, their defaults, and values that are not supported. derived_facts.py, experts.py and
windows.py hold rules that need several keys.
"""
