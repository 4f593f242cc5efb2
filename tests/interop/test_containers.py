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


def test_the_tag_of_an_image_selects_the_release_whatever_its_arguments_begin_with():
    flags = '["--model", "meta-llama/Llama-3.1-8B", "--max-num-seqs", "64"]'
    text = f"services:\n  engine:\n    image: vllm/vllm-openai:v0.6.3\n    command: {flags}\n"

    assert document_of(text).data["engine"] == {"base": "vllm", "release": "0.6.3"}


STACK = """servingEngineSpec:
  modelSpec:
    - name: llama
      repository: vllm/vllm-openai
      tag: v0.8.5
      modelURL: meta-llama/Llama-3.1-70B
      replicaCount: 2
      vllmConfig: {tensorParallelSize: 4, maxNumSeqs: 64, v0: "0", extraArgs: ["--block-size", "32"]}
"""
MODELSERVICE = """modelArtifacts: {uri: "hf://meta-llama/Llama-3.1-70B", name: llama}
decode:
  replicas: 1
  parallelism: {tensor: 4}
  containers: [{image: own/llm, modelCommand: vllmServe, args: ["--max-num-seqs=64"]}]
prefill:
  create: true
  replicas: 2
  parallelism: {tensor: 2}
  containers: [{image: own/llm, modelCommand: vllmServe, args: ["--max-num-seqs=64"]}]
"""
KSERVE = """apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
spec:
  model: {uri: "hf://Qwen/Qwen3-30B-A3B", name: own}
  replicas: 3
  parallelism: {tensor: 2, data: 4, dataLocal: 4, expert: true}
  template:
    containers:
      - name: main
        env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 64 --gpu-memory-utilization=0.8"}]
"""
RUNTIME = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
spec:
  predictor:
    minReplicas: 2
    maxReplicas: 3
    model:
      modelFormat: {name: huggingface}
      args: [--model_name=own, --model_id=meta-llama/Llama-3.1-8B, --tensor-parallel-size=2]
"""
RAY = """applications:
  - import_path: ray.serve.llm:build_openai_app
    args:
      llm_configs:
        - model_loading_config: {model_id: own, model_source: meta-llama/Llama-3.1-8B}
          engine_kwargs: {tensor_parallel_size: 2, enable_prefix_caching: false, max_num_seqs: 64}
          deployment_config: {autoscaling_config: {min_replicas: 2, max_replicas: 2}}
"""


def test_settings_without_a_command_are_those_of_vllms_flags():
    """Of Helm values, KServe and Ray Serve. The chart turns the prefix cache off unless it is asked for."""
    stack, kserve, runtime, ray = (document_of(text).data for text in (STACK, KSERVE, RUNTIME, RAY))

    assert stack["engine"] == {
        "base": "vllm", "release": "0.8.5", "block_tokens": 32, "prefix_cache": False,
    }  # fmt: skip
    assert (stack["model"], stack["plan"]) == (
        "llama-3.1-70b", {"tensor_parallel": 4, "max_sequences": 64, "replicas": 2},
    )  # fmt: skip
    assert kserve["model"] == "qwen3-30b-a3b"
    assert kserve["plan"] == {
        "tensor_parallel": 2, "data_parallel": 4, "expert_parallel": 8, "max_sequences": 64, "replicas": 3,
    }  # fmt: skip
    assert (runtime["model"], runtime["plan"]) == ("llama-3.1-8b", {"tensor_parallel": 2, "replicas": 2})
    assert "2 replicas, the smallest number (at most 3)" in runtime["assumptions"]
    assert ray["plan"] == {"tensor_parallel": 2, "max_sequences": 64, "replicas": 2}
    assert (ray["model"], ray["engine"]["prefix_cache"]) == ("llama-3.1-8b", False)


def test_pools_of_helm_kserve_and_ray_have_their_roles():
    pools = {
        "prefill": {"tensor_parallel": 2, "replicas": 2},
        "decode": {"tensor_parallel": 4, "replicas": 1},
    }
    named = "model_loading_config: {model_id: meta-llama/Llama-3.1-8B}"
    config = f"{{{named}, engine_kwargs: {{tensor_parallel_size: 2}}}}"
    ray = f"applications:\n  - args:\n      prefill_config: {config}\n      decode_config: {config}\n"
    prefill = "  prefill: {replicas: 2, parallelism: {tensor: 2}, template: {containers: [{name: main}]}}\n"
    stack = STACK.replace(
        "vllmConfig", "lmcacheConfig: {enabled: true, kvRole: kv_producer}\n      vllmConfig"
    )
    more = stack[stack.index("    - name") :].replace("kv_producer", "kv_consumer")

    helm = document_of(MODELSERVICE).data["plan"]
    for role, own in pools.items():
        assert helm[role].items() >= own.items()
    assert document_of(ray).data["plan"].keys() >= {"prefill", "decode"}
    assert document_of(KSERVE + prefill).data["plan"]["prefill"]["replicas"] == 2
    assert document_of(stack + more).data["plan"]["decode"]["tensor_parallel"] == 4


def test_settings_without_a_command_have_the_faults_of_flags_on_the_line_of_their_part():
    wrong = STACK.replace("maxNumSeqs", "maxNumSeq").replace(
        "tensorParallelSize: 4", "tensorParallelSize: two"
    )

    assert sorted(told(wrong)) == [
        ("serve.yaml:3", "--max-num-seq"),
        ("serve.yaml:3", "--tensor-parallel-size"),
    ]


def test_a_file_of_a_configmap_beside_the_manifest_is_read_unless_two_have_its_name():
    mapped = """apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  engine.yaml: |
    tensor_parallel_size: 8
    max_batch_size: 64
---
"""
    manifest = """apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
spec:
  services:
    Worker:
      extraPodSpec:
        mainContainer:
          command: [/bin/sh, -c]
          args:
            - >-
              python3 -m dynamo.trtllm --model-path deepseek-ai/DeepSeek-R1
              --extra-engine-args /own/engine.yaml
"""
    plan = document_of(mapped + manifest).data["plan"]

    assert (plan["tensor_parallel"], plan["max_sequences"]) == (8, 64)
    assert [field for _, field in told(mapped + mapped + manifest)] == ["file"]


TGI = """apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 2
  template:
    spec:
      containers:
        - image: IMAGE
          env: [{name: MODEL_ID, value: meta-llama/Llama-3.1-8B}, {name: NUM_SHARD, value: "2"}]
"""


def test_tgi_is_known_by_the_images_of_clouds_and_by_images_that_somebody_built():
    images = (
        "ghcr.io/huggingface/text-generation-inference:3.3.5",
        "us-docker.pkg.dev/x/gcr.io/huggingface-text-generation-inference-cu124.2-4.ubuntu2204.py311",
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-tgi-inference:2.6.0-tgi3.2.3",
        "ghcr.io/huggingface/tgi-gaudi:2.3.1",
        "registry.example.com/team/our-tgi:7",
    )
    for image in images:
        made = document_of(TGI.replace("IMAGE", image)).data
        flags = TGI.replace("IMAGE", image).partition("          env:")[0]
        stated = document_of(
            f'{flags}          args: ["--model-id", "meta-llama/Llama-3.1-8B", "--num-shard", "2"]\n'
        ).data

        for job in (made, stated):
            assert (job["model"], job["plan"]["tensor_parallel"], job["plan"]["replicas"]) == (
                "llama-3.1-8b",
                2,
                2,
            ), image


def test_an_image_with_another_name_starts_no_tgi():
    with pytest.raises(SpecError):
        document_of(TGI.replace("IMAGE", "registry.example.com/tgi-team/proxy:7"))
