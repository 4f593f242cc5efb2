"""Launch commands of serving engines: what documented flags mean, several commands, and faults."""

import pytest
from all_cases import all_cases
from command_line import flopcast
from foreign_cases import FOREIGN, files

from flopcast import predict_serving
from flopcast.errors import SpecError
from flopcast.files.yaml_text import read_yaml
from flopcast.interop.serving.kinds import KINDS
from flopcast.interop.serving.settings import keys_of_engine
from flopcast.interop.serving.sources import serving_document
from flopcast.library import catalog
from flopcast.requests.job_request import JobRequest
from flopcast.requests.serving_request import check_serving, resolve_serving
from flopcast.requests.sources import source_of

SGLANG = "python -m sglang.launch_server --model-path"
LLAMA = "meta-llama/Llama-3.1-70B"


def data_of(text, name="serve.sh", **request):
    return source_of(text.encode(), name, JobRequest(**request)).document.data


def plan_of(text):
    return data_of(text)["plan"]


# What the engines' documentation says that a command starts: ranks, groups, experts, replicas.
DEGREES = (
    ("vllm serve meta-llama/Llama-3.1-70B -tp 8", {"tensor_parallel": 8}),
    ("vllm serve meta-llama/Llama-3.1-8B -dp 4", {"tensor_parallel": 1, "replicas": 4}),
    (
        "vllm serve deepseek-ai/DeepSeek-V3 -dp 8 -tp=2 --enable-expert-parallel",
        {"tensor_parallel": 2, "data_parallel": 8, "expert_parallel": 16},
    ),
    (
        "vllm serve deepseek-ai/DeepSeek-V3 -tp 8 -pp 2",
        {"tensor_parallel": 8, "pipeline_parallel": 2, "data_parallel": 1},
    ),
    (
        f"{SGLANG} deepseek-ai/DeepSeek-V3 --tp 16 --dp 4 --enable-dp-attention --ep-size 16",
        {"tensor_parallel": 4, "data_parallel": 4, "expert_parallel": 16, "max_tokens": 2048},
    ),
    (f"{SGLANG} meta-llama/Llama-3.1-8B --tp 2 --dp 4", {"tensor_parallel": 2, "replicas": 4}),
    (
        f"{SGLANG} deepseek-ai/DeepSeek-V3 --tp 8 --moe-a2a-backend deepep",
        {"tensor_parallel": 8, "expert_parallel": 8},
    ),
    (
        "trtllm-serve deepseek-ai/DeepSeek-V3 --tp_size 8 --ep_size 4 --pp_size 2",
        {"tensor_parallel": 8, "expert_parallel": 4, "pipeline_parallel": 2},
    ),
    (
        "python -m dynamo.trtllm --model-path deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8"
        " --expert-parallel-size 8 --enable-attention-dp",
        {"tensor_parallel": 1, "data_parallel": 8, "expert_parallel": 8},
    ),
    ("text-generation-launcher --model-id meta-llama/Llama-3.1-70B --num-shard 4", {"tensor_parallel": 4}),
)


@all_cases("text, expected", DEGREES)
def test_degrees_are_those_that_the_documentation_of_an_engine_describes(text, expected):
    assert plan_of(text).items() >= ({"replicas": 1} | expected).items()


FORMATS = (
    ("vllm serve meta-llama/Llama-3.1-8B --quantization fp8 --kv-cache-dtype fp8", "fp8", "fp8"),
    ("vllm serve Qwen/Qwen2.5-72B-Instruct-AWQ", "int4", None),
    ("vllm serve deepseek-ai/DeepSeek-V3 --quantization fp8", None, None),  # published in blocks of fp8
    (
        f"{SGLANG} meta-llama/Llama-3.1-8B --quantization modelopt_fp4 --kv-cache-dtype fp8_e4m3",
        "nvfp4",
        "fp8",
    ),
    ("trtllm-serve nvidia/Llama-3.1-8B-Instruct-FP8", "fp8", None),
    ("vllm serve Qwen/Qwen3-8B-FP8 --quantization fp8", "fp8_block", None),
    (
        "text-generation-launcher --model-id meta-llama/Llama-3.1-8B --quantize bitsandbytes-nf4",
        "int4",
        None,
    ),
)


@all_cases("text, weights, cache", FORMATS)
def test_formats_follow_from_flags_and_from_names_of_checkpoints(text, weights, cache):
    plan = plan_of(text)

    assert (plan.get("weights"), plan.get("cache")) == (weights, cache)


def test_a_script_a_file_and_a_quoted_command_say_the_same():
    words = (
        "--tensor-parallel-size 4 --max-num-seqs 64 --gpu-memory-utilization 0.8 --no-enable-prefix-caching"
    )
    command = f"vllm serve {LLAMA} {words}"
    script = f"#!/bin/bash\nARGS=({words})\nvllm serve {LLAMA} \\\n  ${{ARGS[@]}} > log 2>&1 &\n"
    module = f"python -m vllm.entrypoints.openai.api_server --model {LLAMA} {words}"
    container = f"docker run --gpus all -p 8000:8000 vllm/vllm-openai:latest --model {LLAMA} {words}"
    written = (
        "cat > c.yaml <<EOF\nmodel: meta-llama/Llama-3.1-70B\ntensor_parallel_size: 4\nmax-num-seqs: 64\n"
        "gpu-memory-utilization: 0.8\nenable-prefix-caching: false\nEOF\nvllm serve --config c.yaml\n"
    )

    every = [data_of(text) for text in (command, script, module, container, written)]

    facts = [{key: data[key] for key in ("model", "engine", "plan")} for data in every]
    assert all(each == facts[0] for each in facts)
    assert facts[0]["engine"] == {"base": "vllm", "memory_fraction": 0.8, "prefix_cache": False}


def test_tags_of_images_and_requirements_of_pip_state_the_release():
    """A tag of another image, such as that of Dynamo, is no release of the engine."""
    words = f"--model {LLAMA}"
    cases = (
        (f"docker run vllm/vllm-openai:v0.5.4 {words}", "vllm", "0.5.4"),
        (f"pip install vllm==0.6.3.post1\nvllm serve {LLAMA}", "vllm", "0.6.3.post1"),
        (f"docker run lmsysorg/sglang:v0.4.3-cu124 {SGLANG} {LLAMA}", "sglang", "0.4.3"),
        (f"pip install 'sglang[all]==0.5.6'\n{SGLANG} {LLAMA}", "sglang", "0.5.6"),
        (
            f"docker run nvcr.io/nvidia/tensorrt-llm/release:1.0.0 trtllm-serve {LLAMA}",
            "tensorrt-llm",
            "1.0.0",
        ),
    )
    for text, base, release in cases:
        assert data_of(text)["engine"] == {"base": base, "release": release}
    assert data_of(f"docker run ai-dynamo/vllm-runtime:0.8.1 vllm serve {LLAMA}")["engine"] == "vllm"


def test_flags_that_turn_cuda_graphs_off_lengthen_tokens_as_measured():
    """Pull request 8352 of DeepSpeed: 4.81 and 4.88 ms for a token of GPT-2 on H200."""
    settings = "cat > c.yaml <<EOF\n{}\nEOF\ntrtllm-serve gpt2 --extra_llm_api_options c.yaml"
    cases = (
        ("vllm serve gpt2 --enforce-eager", 4.81),
        (f"{SGLANG} gpt2 --disable-cuda-graph", 4.88),
        (settings.format("cuda_graph_config: null"), None),
        (settings.format("use_cuda_graph: false"), None),
    )
    for text, measured_ms in cases:
        source = source_of(text.encode(), "serve.sh", JobRequest())
        traffic = "concurrency=1 prompt=128 output=32"
        job = resolve_serving(JobRequest(source=source, cluster="dgx-h200", traffic=traffic))
        token_ms = 1e3 * predict_serving(job).latencies["tpot"]["mean"].value
        if measured_ms is not None:
            assert token_ms == pytest.approx(measured_ms, rel=0.03), text
        assert 4 < token_ms < 6, text
        assert any("needs 31 us to launch a kernel" in each for each in job.assumptions), text
    assert data_of(settings.format("cuda_graph_config: {max_batch_size: 8}"))["engine"] == "tensorrt-llm"


def test_tgi_has_an_entry_whose_fields_its_flags_change():
    command = "text-generation-launcher --model-id meta-llama/Llama-3.1-8B --num-shard 1"
    flags = " --cuda-graphs 1,2,64,8 --cuda-memory-fraction 0.5 --max-concurrent-requests 200"

    assert data_of(command)["engine"] == "tgi" == catalog.known("engines", "Hugging Face TGI")
    changed = data_of(command + flags)
    assert changed["engine"] == {"base": "tgi", "graph_sequences": 64, "memory_fraction": 0.45}
    assert changed["plan"]["max_sequences"] == 200
    with pytest.raises(SpecError, match="separated by commas"):
        data_of(f"{command} --cuda-graphs many")


def test_flags_turn_the_all_reduce_of_the_engine_off():
    for text in (f"vllm serve {LLAMA}", f"{SGLANG} {LLAMA}"):
        assert data_of(f"{text} --disable-custom-all-reduce")["engine"]["own_all_reduce"] is False


def test_commands_for_prompts_and_for_decoding_are_the_pools_of_a_plan():
    text = f"""
{SGLANG} meta-llama/Llama-3.1-70B --tp 2 --disaggregation-mode prefill --port 1 &
{SGLANG} meta-llama/Llama-3.1-70B --tp 2 --disaggregation-mode prefill --port 2 &
{SGLANG} meta-llama/Llama-3.1-70B --tp 4 --disaggregation-mode decode --max-running-requests 64
"""

    plan = plan_of(text)

    assert plan == {
        "prefill": {"tensor_parallel": 2, "replicas": 2},
        "decode": {"tensor_parallel": 4, "max_sequences": 64, "replicas": 1},
    }


def test_a_command_on_a_further_node_is_no_further_instance():
    each = f"{SGLANG} deepseek-ai/DeepSeek-V3 --tp 16 --nnodes 2 --node-rank"

    assert plan_of(f"{each} 0 &\n{each} 1\n")["replicas"] == 1


MANIFEST = """
kind: DynamoGraphDeployment
spec:
  services:
    Frontend: {replicas: 1}
    Decode:
      replicas: 1
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.vllm]
          args: [--model, meta-llama/Llama-3.1-70B, --tensor-parallel-size, "4", --is-decode-worker]
    Prefill:
      replicas: 2
      extraPodSpec:
        mainContainer:
          command: [/bin/sh, -c]
          args:
            - python3 -m dynamo.vllm --model llama-3.1-70b -tp 2 --max-num-seqs 0 --is-prefill-worker
"""


def test_a_manifest_of_dynamo_states_both_pools_and_its_faults_have_their_line():
    right = data_of(MANIFEST.replace(" --max-num-seqs 0", ""), "disagg.yaml")
    with pytest.raises(SpecError) as caught:
        data_of(MANIFEST, "disagg.yaml")

    assert right["plan"] == {
        "prefill": {"tensor_parallel": 2, "replicas": 2},
        "decode": {"tensor_parallel": 4, "replicas": 1},
    }
    assert [problem.where for problem in caught.value.problems] == ["disagg.yaml:18"]


CLOSED = "add } at the end of line 1"
FAULTS = (
    (
        "vllm serve gpt2 --tensor-parallel-size 0",
        "--tensor-parallel-size",
        "write --tensor-parallel-size 1",
    ),
    (
        "vllm serve gpt2 --enable-expert-parallel",
        "--enable-expert-parallel",
        "remove --enable-expert-parallel",
    ),
    (
        "vllm serve gpt2 --max-num-seqs 512 --max-num-batched-tokens 256",
        "--max-num-batched-tokens",
        "write --max-num-batched-tokens 512",
    ),
    ("vllm serve gpt2 --gpu-memory-utilization 90", "--gpu-memory-utilization", "write 0.9 in place of 90"),
    (
        "vllm serve gpt2 --tensor-parallel-sizes 2",
        "--tensor-parallel-sizes",
        "did you mean --tensor-parallel-size?",
    ),
    ("trtllm-serve gpt2 --max_num_tokens 8k", "--max_num_tokens", "write --max_num_tokens 8192"),
    (f"{SGLANG} gpt2 --chunked-prefill-size 8k", "--chunked-prefill-size", "write 8192 in place of 8k"),
    ("vllm serve gpt2 --max-num-seqs 1k", "--max-num-seqs", "write 1024 in place of 1k"),
    ("vllm serve gpt2 -tp $TP", "-tp", "add --env TP=2, with its value"),
    ("vllm serve --tensor-parallel-size 2", "--model", "add --model llama-3.1-8b, or another model"),
    (
        "vllm serve gpt2 --cpu-offload-gb 8",
        "--cpu-offload-gb",
        "remove --cpu-offload-gb to predict the job without it",
    ),
    ("vllm serve gpt2 --speculative-config '{\"method\": 3'", "--speculative-config", CLOSED),
    (f"{SGLANG} deepseek-ai/DeepSeek-V3 --tp 8 --dp 3 --enable-dp-attention", "--dp", "write --dp 8"),
    (f"{SGLANG} gpt2 --kv-cache-dtype fp8_e4m4", "--kv-cache-dtype", "did you mean fp8_e4m3?"),
    ("vllm serve gpt2 --kv-cache-dtype fp16", "--kv-cache-dtype", "did you mean float16?"),
    (
        "vllm serve mistralai/Mixtral-8x7B-v0.1 --enable-expert-parallel=yes",
        "--enable-expert-parallel",
        "write --enable-expert-parallel without a value",
    ),
    ("trtllm-serve deepseek-ai/DeepSeek-V3 --tp_size 8 --ep_size 3", "--ep_size", "write --ep_size 8"),
    (
        f"{SGLANG} gpt2 --disaggregation-mode prefill",
        "command",
        "give the commands of both kinds in one script",
    ),
    ("vllm serve gpt2\nvllm serve gpt2-xl", "model", "keep the commands with gpt2"),
)


@all_cases("text, field, fix", FAULTS)
def test_a_wrong_flag_is_an_error_with_its_line_and_its_mend(text, field, fix):
    with pytest.raises(SpecError) as caught:
        data_of(text)

    problem = caught.value.problems[0]
    assert (problem.field, problem.fix) == (field, fix)
    assert problem.where.startswith("serve.sh:")


def checked(text, prompt):
    source = source_of(text.encode(), "serve.sh", JobRequest())
    traffic = f"rate=1/s prompt={prompt} output=50 requests=4"
    check_serving(resolve_serving(JobRequest(source=source, cluster="dgx-h100:1", traffic=traffic)))


def test_a_prompt_beyond_the_longest_of_the_engine_is_an_error_whose_fix_works():
    """TensorRT-LLM computes whole prompts, unless chunked prefill is on."""
    both = "text-generation-launcher --model-id gpt2 --num-shard 1 --max-input-tokens 300"
    for text, fits in (
        (both, 300),
        (f"{both} --max-total-tokens 400", 300),
        ("trtllm-serve gpt2 --max_num_tokens 300", 300),
        ("trtllm-serve gpt2 --max_num_tokens 300 --max_seq_len 320", 270),
    ):
        with pytest.raises(SpecError) as caught:
            checked(text, 500)
        assert {problem.fix for problem in caught.value.problems} >= {f"write prompt={fits}"}
        checked(text, fits)
    checked("trtllm-serve gpt2 --max_num_tokens 300 --enable_chunked_prefill", 500)
    with pytest.raises(SpecError, match="the launcher would not start"):
        data_of(f"{both} --max-total-tokens 300")


def test_vllm_starts_only_if_its_cache_holds_a_request_of_the_stated_length():
    """17,987 tokens fit beside the weights of Llama 3.1 70B on two H100: 1,124 blocks of 16."""
    text = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 2 --max-model-len"

    with pytest.raises(SpecError) as caught:
        checked(f"{text} 131072", 500)

    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("model.context_length", 131072)
    fits = problem.fix.edits[0]["model.context_length"]
    assert fits % 16 == 0
    checked(f"{text} {fits}", 500)
    for automatic in ("auto", "-1"):
        checked(f"{text} {automatic}", 500)


def test_a_longest_request_beyond_the_context_of_the_model_is_told_because_vllm_does_not_start():
    line = "vllm serve gpt2 --max-model-len"
    told = {tokens: data_of(f"{line} {tokens}")["assumptions"] for tokens in (1024, 1025)}

    assert [note for note in told[1025] if note not in told[1024] and "refuses to start" in note]
    assert not [note for note in told[1024] if "refuses to start" in note]


def test_a_request_beyond_the_longest_of_the_engine_is_an_error_whose_fix_works():
    for text in (
        "vllm serve gpt2 --max-model-len 512",
        f"{SGLANG} gpt2 --context-length 512",
        "text-generation-launcher --model-id gpt2 --num-shard 1 --max-total-tokens 512",
        "trtllm-serve gpt2 --max_seq_len 512",
    ):
        source = source_of(text.encode(), "serve.sh", JobRequest())

        def check(prompt, source=source):
            traffic = f"rate=1/s prompt={prompt} output=50 requests=4"
            check_serving(resolve_serving(JobRequest(source=source, cluster="dgx-h100:1", traffic=traffic)))

        with pytest.raises(SpecError) as caught:
            check(500)
        (problem,) = caught.value.problems
        assert (problem.value, problem.fix) == (550, "write prompt=462")
        check(462)
    both = "vllm serve gpt2 --max-model-len 512\nvllm serve gpt2"
    assert data_of(both)["model"] == {"base": "gpt2", "context_length": 512}


def test_every_fault_is_reported_at_once_and_only_flags_of_no_size_are_ignored():
    with pytest.raises(SpecError) as caught:
        data_of("vllm serve gpt2 --tensor-parallel-size no --max-num-seqs -3 --kv-cache-dtype fp3")
    notes = data_of("vllm serve gpt2 --mascot llama")["assumptions"]

    assert len(caught.value.problems) == 3
    assert [note for note in notes if "is not known and is ignored" in note] == [
        "--mascot is not known and is ignored (serve.sh:1)"
    ]
    for flag in ("--expert-mascots 3", "--quant-mascot=llama"):
        with pytest.raises(SpecError, match="suggests that it affects time or memory"):
            data_of(f"vllm serve gpt2 {flag}")


def test_a_switch_that_is_turned_off_is_off_however_it_is_written():
    flags = f"vllm serve {LLAMA} --no-enable-prefix-caching --enable-chunked-prefill False"
    file = (
        f"model: {LLAMA}\nmax-num-seqs: 8\nno-enable-prefix-caching: true\nenable_chunked_prefill: false\n"
    )

    for engine in (data_of(flags)["engine"], data_of(file, "vllm.yaml")["engine"]):
        assert engine == {"base": "vllm", "prefix_cache": False, "prefill": "whole"}


def test_flags_of_older_releases_and_short_flags_are_those_of_today():
    older = f"vllm serve {LLAMA} --speculative-model meta-llama/Llama-3.2-1B --num-speculative-tokens 5"
    searched = f"vllm serve {LLAMA} --speculative-model [ngram] --num-speculative-tokens 3"

    assert (plan_of(older)["draft"], plan_of(older)["drafted"]) == ("llama-3.2-1b", 5)
    assert (plan_of(searched)["draft"], plan_of(searched)["drafted"]) == ("ngram", 3)
    for text in (f"vllm serve {LLAMA} -dcp 2", f"{SGLANG} {LLAMA} --tp 4 --attn-cp-size 2"):
        with pytest.raises(SpecError, match="context parallelism"):
            data_of(text)


@all_cases("kind", KINDS)
def test_tables_name_each_flag_once_and_every_spelling_leads_to_a_key(kind):
    keys = keys_of_engine(kind)
    tables = [
        keys.read.split(),
        *(names.split() for names in keys.free.values()),
        keys.left_out,
        keys.refused,
    ]
    names = [name for table in tables for name in table]

    assert sorted({name for name in names if names.count(name) > 1}) == []
    assert [key for key in keys.same.values() if not keys.knows(key)] == []


def test_files_of_training_are_no_settings_of_an_engine():
    texts = {name: (FOREIGN / name).read_bytes() for name in files() if not name.endswith(".toml")}

    made = {name: serving_document(read_yaml(text, name), lambda *_: b"") for name, text in texts.items()}

    assert len(made) > 10
    assert [name for name, document in made.items() if document is not None] == []


def test_a_quoted_command_is_predicted_as_the_job_that_it_states():
    traffic = "concurrency=2 prompt=200 output=20 requests=20"
    command = "vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size=2 --max-num-seqs 8"
    job = resolve_serving(JobRequest(files=(command,), traffic=traffic))
    stated = resolve_serving(
        JobRequest(
            model="llama-3.1-8b", engine="vllm", plan="tp=2 replicas=1 max_sequences=8", traffic=traffic
        )
    )

    assert job.model_copy(update={"assumptions": ()}) == stated.model_copy(update={"assumptions": ()})


def test_import_writes_a_job_file_that_resolves_to_the_same_job(tmp_path):
    script, made = tmp_path / "serve.sh", tmp_path / "serve.yaml"
    script.write_text("trtllm-serve deepseek-ai/DeepSeek-V3 --tp_size 8 --ep_size 8 --max_batch_size 64\n")

    ended = flopcast("import", script, "--cluster", "dgx-h200:1", "-o", made)

    assert ended.code == 0
    first = resolve_serving(JobRequest(files=(str(script),), cluster="dgx-h200:1"))
    again = resolve_serving(JobRequest(files=(str(made),)))
    assert (first.plan, first.engine, first.model) == (again.plan, again.engine, again.model)


def test_a_kind_that_the_file_does_not_have_is_refused():
    with pytest.raises(SpecError, match="no command of the script starts the engine"):
        data_of("vllm serve gpt2", kind="sglang")
