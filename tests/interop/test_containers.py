"""Docker Compose and manifests of Kubernetes: what containers start, with which variables, how often."""

import pytest
from foreign_cases import job_in

from flopcast.errors import SpecError
from flopcast.interop.serving.containers import one_manifest
from flopcast.requests.job_request import JobRequest
from flopcast.requests.serving_request import resolve_serving
from flopcast.requests.sources import source_of

COMPOSE = """services:
  proxy:
    image: nginx
    ports: ["80:80"]
  engine:
    image: vllm/vllm-openai:latest
    environment:
      - MODEL=meta-llama/Llama-3.1-70B
      - LONGEST
    deploy: {replicas: 3}
    command: >
      --model ${MODEL}
      --tensor-parallel-size ${DEGREE:-4}
"""
MANIFEST = """apiVersion: v1
kind: Secret
metadata: {name: token}
---
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 2
  template:
    spec:
      containers:
        - name: engine
          image: lmsysorg/sglang:latest
          env:
            - {name: MODEL, value: meta-llama/Llama-3.1-8B}
            - {name: TOKEN, valueFrom: {secretKeyRef: {name: token, key: a}}}
          command: ["python3", "-m", "sglang.launch_server"]
          args: ["--model-path", "$(MODEL)", "--tp", "2", "--mem-fraction-static", "0.8"]
        - name: exporter
          image: prom/node-exporter
"""


def document_of(text, name="serve.yaml", **request):
    return source_of(text.encode(), name, JobRequest(**request)).document


def told(text):
    with pytest.raises(SpecError) as error:
        document_of(text)
    return [(problem.where, problem.field) for problem in error.value.problems]


def test_variables_of_a_compose_file_have_their_values_or_what_the_command_line_says():
    usual = document_of(COMPOSE).data
    eight = document_of(COMPOSE, env=("DEGREE=8",)).data

    assert (usual["engine"], usual["model"]) == ("vllm", "llama-3.1-70b")
    assert (usual["plan"]["tensor_parallel"], usual["plan"]["replicas"]) == (4, 3)
    assert eight["plan"]["tensor_parallel"] == 8


def test_a_shell_in_a_container_expands_its_own_variables():
    text = """services:
  engine:
    image: vllm/vllm-openai
    environment: {DEGREE: "4"}
    entrypoint: ["/bin/bash", "-c"]
    command: ["vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size $${DEGREE}"]
"""
    assert document_of(text).data["plan"]["tensor_parallel"] == 4


def test_vllm_starts_from_an_image_of_its_own_and_from_an_entry_point_in_parts():
    own = COMPOSE.replace("vllm/vllm-openai:latest", "${IMAGE:-registry/team-vllm:cu130}")
    parts = """services:
  engine:
    image: team-engine
    entrypoint: ["vllm"]
    command: [serve, meta-llama/Llama-3.1-70B, --tensor-parallel-size, "4"]
"""
    for text in (own, parts):
        assert document_of(text).data["plan"]["tensor_parallel"] == 4


def test_pods_of_one_instance_are_counted_once():
    flags = '"--tp", "16", "--nnodes", "2", "--node-rank", "$(POD_INDEX)"'
    nodes = MANIFEST.replace('"--tp", "2"', flags)
    pod = """
        spec:
          containers:
            - image: vllm/vllm-openai
              command: ["/bin/bash", "-c"]
              args: ["vllm serve meta-llama/Llama-3.1-70B -tp $((LWS_GROUP_SIZE * 4))"]"""
    worker = f"""apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: 2
    workerTemplate: {pod}
"""
    leader = worker + f"    leaderTemplate: {pod}\n"

    for text, expected in ((nodes, (16, 1)), (worker, (8, 3)), (leader, (8, 3))):
        plan = document_of(text).data["plan"]
        assert (plan["tensor_parallel"], plan["replicas"]) == expected


def test_a_manifest_of_several_documents_is_that_of_the_container_with_an_engine(tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(MANIFEST, encoding="utf-8")
    job = resolve_serving(JobRequest(files=(str(file),), cluster="dgx-h100:1"))

    assert (job.model.name, job.plan.tensor_parallel, job.plan.replicas) == ("llama-3.1-8b", 2, 2)
    assert one_manifest(MANIFEST.encode()).count(b"\n") == MANIFEST.count("\n")


def test_a_fault_names_the_line_of_the_word_in_its_list():
    text = MANIFEST.replace('"--tp", "2"', '"--tp", "two"')
    line = next(number for number, each in enumerate(text.splitlines(), 1) if '"two"' in each)

    assert told(text) == [(f"serve.yaml:{line}", "--tp")]


def test_containers_without_an_engine_are_no_job(tmp_path):
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.replace("vllm/vllm-openai", "redis"), encoding="utf-8")

    with pytest.raises(SpecError, match="format"):
        job_in(file)


def test_a_folder_that_is_not_here_needs_the_name_of_its_model(tmp_path):
    text = "vllm serve $HOME/models/own/ --tensor-parallel-size 2"

    with pytest.raises(SpecError) as error:
        document_of(text, "serve.sh")
    assert [problem.fix for problem in error.value.problems] == [
        "add --model NAME, the model that is in this folder"
    ]
    assert document_of(text, "serve.sh", model="llama-3.1-8b").data["plan"]["tensor_parallel"] == 2
    for folder in ("/data/Llama-3.1-8B/", "/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f2"):
        assert document_of(f"vllm serve {folder}", "serve.sh").data["model"] == "llama-3.1-8b"
