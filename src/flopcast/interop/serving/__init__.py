"""Launch commands and configurations of serving engines as serving jobs, and back.

`launched` (launch.py) reads scripts, pasted commands and YAML files; dynamo.py reads manifests of
Kubernetes. Each engine has a file with a reader and a writer: vllm.py, sglang.py, trtllm.py, tgi.py.
settings.py types their flags by the tables in tables/.
"""
