"""One tool predicts jobs in a process of its own: `python -m benchmarks.peer_programs TOOL FOLDER ROUNDS`.

Answers: how is a job handed to each tool, and how many CPU seconds does the tool take for it?
Elsewhere: which jobs, and how the tools compare (peers.py).

Reads a JSON list of jobs (`peers.jobs_of_suite`) on stdin. Prints JSON: `step_times_s`, one per job, and
`rounds_s`, the CPU seconds of each job in each of ROUNDS further rounds. The process imports only the
tool that is named, from FOLDER, so that its CPU seconds are those of this tool.
"""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Facts = dict[str, Any]  # one job, see `peers.jobs_of_suite`
Predict = Callable[[Facts], float]  # a job → seconds of a step
NewRound = Callable[[], Predict]  # starts a round of predictions that knows nothing of earlier rounds

CALCULON_SYSTEMS = {
    "a100-sxm4-80gb": "a100_80g",
    "h100-sxm5-80gb": "h100_80g_nvl8",
}  # of its folder systems
CALCULON_RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}
LLM_ANALYSIS_DEVICES = {"a100-sxm4-80gb": "a100-sxm-80gb"}
LLM_ANALYSIS_EFFICIENCY = 0.5  # its constant.py: "FLOPS efficiency achieved by Megatron-LM is ~0.5"


def flopcast(_folder: Path) -> NewRound:
    """Return flopcast, with a new `Predictor` in each round; the files of the catalogue stay read."""
    import flopcast as tool

    def new_round() -> Predict:
        predictor = tool.Predictor()
        return lambda facts: predictor.predict(tool.job(**facts["words"])).step_time_s

    return new_round


def calculon(folder: Path) -> NewRound:
    """Return Calculon (`calculon.llm.Llm`), with the systems of its own folder `systems`."""
    import calculon.llm  # type: ignore[import-not-found]
    from calculon.system import System  # type: ignore[import-not-found]

    tool, logger = calculon.llm.Llm, logging.getLogger("calculon")
    systems = {
        device: System(json.loads(path.read_text()))
        for device, name in CALCULON_SYSTEMS.items()
        if (path := folder / "systems" / f"{name}.json").is_file()
    }

    def predict(facts: Facts) -> float:
        system = systems[facts["device"]]
        model = tool(tool.Application(calculon_application(facts)), logger)
        model.compile(system, tool.Execution.from_json(calculon_execution(facts)))
        model.run(system)
        return float(model.get_stats_json(False)["total_time"])

    return lambda: predict


def calculon_application(facts: Facts) -> Facts:
    """Return a model in the terms of Calculon's files in `models`."""
    return {
        "hidden": facts["hidden"],
        "feedforward": facts["feed_forward"],
        "seq_size": facts["sequence_length"],
        "attn_heads": facts["heads"],
        "attn_size": facts["head_size"],
        "num_blocks": facts["num_blocks"],
    }


def calculon_execution(facts: Facts) -> Facts:
    """Return a plan in the terms of Calculon's files in `validation/seqsel/tab5`."""
    sequence_parallel = facts["sequence_parallel"]
    return {
        "num_procs": facts["num_devices"],
        "tensor_par": facts["tensor_parallel"],
        "pipeline_par": facts["pipeline_parallel"],
        "data_par": facts["data_parallel"],
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": facts["global_batch"],
        "microbatch_size": facts["micro_batch"],
        "datatype": "float16",
        "fused_activation": False,
        "attention_type": "multihead",
        "activation_recompute": CALCULON_RECOMPUTE[facts["recompute"]],
        "pipeline_interleaving": facts["virtual_stages"],
        "optimizer_sharding": facts["zero"] > 0,
        "tensor_par_comm_type": "rs_ag" if sequence_parallel else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": sequence_parallel and facts["recompute"] != "full",
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }


def llm_analysis(_folder: Path) -> NewRound:
    """Return llm-analysis (`LLMAnalysis.training`), at half of the peak as its documentation advises."""
    import llm_analysis.analysis as tool  # type: ignore[import-not-found]
    from llm_analysis import config  # type: ignore[import-not-found]
    from llm_analysis.logger import logger  # type: ignore[import-not-found]

    logger.setLevel(logging.ERROR)

    def predict(facts: Facts) -> float:
        model = config.ModelConfig(
            name=facts["name"],
            num_layers=facts["num_blocks"],
            n_head=facts["heads"],
            hidden_dim=facts["hidden"],
            vocab_size=facts["vocabulary"],
            max_seq_len=facts["sequence_length"],
            ffn_embed_dim=facts["feed_forward"],
        )
        ranks = config.ParallelismConfig(
            tp_size=facts["tensor_parallel"],
            pp_size=facts["pipeline_parallel"],
            dp_size=facts["data_parallel"],
            sp_size=facts["tensor_parallel"] if facts["sequence_parallel"] else 1,
        )
        device = config.get_gpu_config_by_name(LLM_ANALYSIS_DEVICES[facts["device"]])
        analysis = tool.LLMAnalysis(
            model, device, parallelism_config=ranks, flops_efficiency=LLM_ANALYSIS_EFFICIENCY
        )
        summary = analysis.training(
            batch_size_per_gpu=facts["micro_batch"],
            global_batch_size=facts["global_batch"],
            seq_len=facts["sequence_length"],
            activation_recomputation=tool.ActivationRecomputation[facts["recompute"].upper()],
            ds_zero=tool.DSZeRO(facts["zero"]),
            flash_attn=False,
        )
        return float(summary["latency_per_iter"])

    return lambda: predict


TOOLS: dict[str, Callable[[Path], NewRound]] = {
    "flopcast": flopcast,
    "calculon": calculon,
    "llm-analysis": llm_analysis,
}


def main(tool: str, folder: Path, rounds: int) -> None:
    """Predict the jobs on stdin, and print the seconds of their steps and of the predictions."""
    sys.path.insert(0, str(folder))
    jobs = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # a tool may print messages
        new_round = TOOLS[tool](folder)
        predict = new_round()
        step_times_s = [predict(facts) for facts in jobs]
        rounds_s = [_round_s(new_round(), jobs) for _ in range(rounds)]
    print(json.dumps({"step_times_s": step_times_s, "rounds_s": rounds_s}))


def _round_s(predict: Predict, jobs: list[Facts]) -> list[float]:
    """Return the CPU seconds that the prediction of each job takes."""
    taken_s = []
    for facts in jobs:
        begin_s = time.process_time()
        predict(facts)
        taken_s.append(time.process_time() - begin_s)
    return taken_s


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
