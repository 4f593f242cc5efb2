"""Deployments of InferenceX: how many instances each pool had, and whether they drafted tokens.

Answers: with which pools was a row measured that states degrees and a concurrency alone?
Elsewhere: the rows (aiconfigurator.py).

Source: .github/configs/nvidia-master.yaml of SemiAnalysisAI/InferenceX (commit 0004cf5, Apache-2.0), of
whose results the rows are copies. A sweep is one system, engine, number format and pair of lengths. Each of
its deployments is written as CONCURRENCIES:PREFILL+DECODE, with "m" and the number of drafted tokens in
front where tokens are drafted by the model's own modules. A pool is a number of instances, a letter and the
devices of an instance: T for tensor parallelism alone, E for experts that are spread over these ranks, D
for attention that is data-parallel as well, P for data-parallel attention with experts that are cut.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

SWEEPS = {
    "b200_sxm trtllm fp4 1024/1024": """
        m2 1214:1D4+2D8 m3 875:1D4+5D8 m3 6:1D4+5E8 m3 10,15,25,45,90,180:1D4+5E8 m1 4968:3D4+4D8
        m1 10860:3D4+5D4 4096:1D4+1D8 2192:1D4+2D8 1365:1D4+5D8 6:1D4+5E8 10,15,25,45,90,180:1D4+5E8
        450:1D4+6E8""",
    "b200_sxm trtllm fp4 8192/1024": """
        m3 90:1D4+1D8 m3 66:1D4+3E8 m3 6:1D4+5E8 m3 10,15,30,60:1D4+5E8 m3 548:3D4+1D8 m1 1096,1691:5D4+1D8
        m3 658:5D4+2D8 6:1D4+5E8 10,15,25,50,100:1D4+5E8 370:2D4+5E8 1606:4D4+1D8 837:4D4+3D8
        2222:7D4+2D8""",
    "b200_sxm trtllm fp8 1024/1024": """
        m3 8,32,64,256:1D8+8T8 m3 896:1D8+7D8 m3 1024:1D8+4D8 m3 1184:1D8+3D8 m2 1600:1D8+2D8
        4,32,128:1D8+3T8 1920:1D8+5D8 4096:1D8+1D8 5152:2D8+5D8""",
    "b200_sxm trtllm fp8 8192/1024": """
        m3 8:1D8+6T8 m3 8:1D8+2T8 m3 48:1D8+6T8 m3 64:1D8+4T8 m3 224:2D8+3D8 m3 288:2D8+1D8 m2 1088:4D8+1D8
        1:1D8+1T8 32,128:1D8+4T8 96:1D8+6T8 128:1D8+1D8 128:1D8+2D8 256:1D8+1D8 640:2D8+1D8""",
    "b300_sxm trtllm fp4 1024/1024": """
        m3 654:1D2+1D8 m3 271:1D2+2D8 m3 11:1D2+5E8 m3 10,20,25,60,120,200:1D2+5E8 m1 2342:2D2+1D8
        m1 8609,12926:5D2+2D8 1176:1D2+2D8 6:1D2+4E8 5,10,15,25:1D2+5E4 60,110,195,395:1D2+5E8 4405:2D2+1D8
        8192:3D2+1D8 4611:3D2+2D8""",
    "b300_sxm trtllm fp4 8192/1024": """
        m1 2198:10D2+1D8 m3 52:1D2+4E4 m3 8,32:1D2+4E8 m3 181:3D2+1D8 m1 1197:9D2+1D8 105:1D2+3E4
        63,4:1D2+3E8 12:1D2+4E4 589:5D2+2D8 1093:6D2+1D8 2048:8D2+1D8""",
    "b300_sxm trtllm fp8 1024/1024": """
        m3 10,160:1P4+8T8 m1 3072:1P4+1P8 m1 2560:1P4+2D8 m2 720:1P4+5D8 m1 11264:3P4+2P8 2112:1P4+1D8
        3072:1P4+2P8 1280:1P4+3P8 12,128,384:1P4+8T8 16384:2P4+1P8""",
    "b300_sxm trtllm fp8 8192/1024": """
        m3 40:1P4+2T8 m3 8,20:1P4+4T8 m3 72:1P4+1P8 m3 144:2P4+1P8 m2 512:4P4+1P8 64:1P4+4T8 16:1P4+8T8
        256:2P4+1P8 512:3P4+1P8 256:3P4+5T8 1075:5P4+1P8 3072:7P4+1D8""",
    "h200_sxm trtllm fp8 1024/1024": """
        m3 1:1D8+11E8 m3 4,8,32:1E8+11E8 m3 16:1E8+9E8 m3 64:1D8+8D8 m3 128:1D8+7D8 m3 256:1D8+4D8
        m1 512:1D8+2D8 1:1D8+9E8 4,8,16,32,64:1E8+9E8 128:1D8+9D8 256:1D8+6D8 512:2D8+7D8""",
    "h200_sxm trtllm fp8 8192/1024": """
        m3 1,4:1E8+7E8 m3 8:1E8+6E8 m2 16:1E8+3E8 m3 32:3E8+5E8 m2 64:1D8+1D8 m2 128:2D8+1D8 m2 256:3D8+1D8
        m1 512:3D8+1D8 1,4:1E8+7E8 8:1E8+6E8 16:1E8+3E8 32:2E8+5E8 64:2D8+3D8 128:1D8+1D8 256:5D8+3D8
        512:3D8+1D8""",
    "h100_sxm trtllm fp8 1024/1024": """
        m3 6,9,30,60,117,462:1D16+3E16 m3 231:1D16+3D16 m2 615:1D16+1D16 m1 1229:1D16+1D16
        6,9,30,60:1D16+3E16 231,462,924,1845:1D16+3D16 4916:2D16+1D16""",
    "h100_sxm trtllm fp8 8192/1024": """
        m3 6,9,30:1D16+3E16 m3 77:1D16+1D16 m3 154:2D16+1D16 6,9,30:1D16+3E16 154:1D16+2E16
        308:2D16+1D16""",
    "h100_sxm sglang fp8 1024/1024": """
        m2 1,2,4,8,16,32,64,128:1T16+2T16 m2 1,2,4,8,16,32,64:1T16+1D16
        1,2,4,8,16,32,64,128:1T16+2T16 1,2,4,8,16,32,64:1T16+1D16""",
    "h100_sxm sglang fp8 1024/8192": """
        m2 1,2,4,8,16,32,64:1T16+2T16 m2 1,2,4,8,16,32,64:1T16+1D16 1,2,4,8,16,32:1T16+2T16
        1,2,4,8:1T16+1D16""",
    "h100_sxm sglang fp8 8192/1024": """
        m2 1,2,4,8,16,32,64,128:1T16+1T16 m2 1,2,4,8,16,32,64:1T16+1D16
        1,2,4,8,16,32,64,128:1T16+1T16 1,2,4,8,16,32,64:1T16+1D16""",
    "gb200 trtllm fp4 1024/1024": """
        m3 180:1D4+1D32 m3 4,8,12,24,48:1D4+4E8 m1 4301:2D4+1D16 m1 2253:3D4+1D32 m1 16130:3D4+5D4
        4301:1D4+1D8 666:1D4+1D32 6144:1D4+2D4 12,24,48,96,192:1D4+4E8 5:1D4+4E8 4301:2D4+1D16
        2253:2D4+1D32""",
    "gb200 trtllm fp4 1024/8192": """
        m3 4,8,12,24,48:1D4+7E8 m3 7:1D4+7E8 m3 128,512:1D4+1D32 m3 3072:1D4+3D16 m1 6144:1D4+3D16
        m1 8192:1D4+1D32 5:1D4+7E8 60,135:1D4+15E4 563,2048,4096,8192:1D4+1D32""",
    "gb200 trtllm fp4 8192/1024": """
        m3 4,8,12,24,48:1D4+4E8 m3 180:3D4+1D32 m1 1229:7D4+1D16 m3 666:8D4+1D32 m1 4301:11D4+1D16
        12,44,76:1D4+4D8 5:1D4+4D8 333:2D4+1D32 1229:7D4+1D32 2253:8D4+1D16 4096:10D4+1D16""",
    "gb200 trtllm fp8 1024/1024": """
        m1 4301,2151:1D8+1D8 m1 1229:1D8+1D16 m3 615:1D8+1D32 m3 36,18,9:1D8+3E8 6144,4301:1D8+1D8
        2151:1D8+1D16 1127,256:1D8+1D32 27,3:1D8+3E8""",
    "gb200 trtllm fp8 1024/8192": """
        m1 8192,2152:1D8+2D16 m3 564,72:1D8+1D32 m3 4,8:1D8+4E8 8192:1D8+2D16 2048,564:1D8+1D32
        36,4:1D8+4E8""",
    "gb200 trtllm fp8 8192/1024": """
        m3 666:3D8+1D8 m3 666:5D8+1D16 m3 333:3D8+1D16 m3 333:4D8+1D32 m3 90:2D8+1D32 m3 15,6:1D8+3E8
        1229:5D8+1D16 666:4D8+1D32 615:3D8+1D16 333:2D8+1D32 63,18,6:1D8+3E8""",
    "gb200 sglang fp8 1024/1024": """
        4,8:1T4+1T4 1024,2048,4096:3D8+1D48 1024,2048,4096,6144:2D8+1D32 4096:1D8+1D8""",
    "gb200 sglang fp8 8192/1024": """
        4,8,16:1T8+1T8 512,1024,2048,6144:5D8+1D32 2048,4096,6144:6D8+1D24""",
    "gb300 sglang fp8 1024/1024": """
        4,8,16,32:1T4+4T4 1024,2048,4096,6144:2D8+1D32 4096,7168,7680:1D8+1D8""",
    "gb300 sglang fp8 8192/1024": """
        4,8:1T4+1T4 128,256,512,1024:5D8+1D32 2048,4096:6D8+1D24""",
    "gb200 sglang fp4 1024/1024": """
        4,8,32:1T4+2T4 512,2048,4096,8192:4D4+1D32 2048,4096:4D4+1D48""",
    "gb200 sglang fp4 8192/1024": """
        4,8:1T4+4T4 512,2048,4096:6T4+1D48 2048:10T4+1D32""",
    "gb300 sglang fp4 1024/1024": """
        4,8,32:1T4+2T4 512,2048,4096,8192:4D4+1D32 512,2048,4096,8192:4D4+1D48""",
    "gb300 sglang fp4 8192/1024": """
        4,8,32,64:1T4+4T4 512,2048,4096:6T4+1D48 2048:10T4+1D32""",
    "gb300 trtllm fp4 1024/1024": """
        m1 3226:1D2+1D4 m3 333:1D2+1D32 m3 5:1D2+4E8 m3 8,12,24,48:1D2+4E8 m1 2253:3D2+1D16 m3 1229:3D2+1D32
        5:1D2+4E8 12,48,96,192:1D2+4E8 8192:2D2+1D8 1229:2D2+1D32 4301:3D2+1D16 2253:3D2+1D32""",
    "gb300 trtllm fp4 1024/8192": """
        m3 7,63:1D2+7E8 m3 563,2088:1D2+1D32 m1 8192:1D2+2D16 m1 16384:1D2+4D8 7,245:1D2+7E8 60:1D2+15E4
        1024,4096,8192:1D2+1D32""",
    "gb300 trtllm fp4 8192/1024": """
        m3 33:1D2+3E8 m3 5,12,24:1D2+4E8 m3 180:4D2+1D32 m3 308:8D2+1D32 m1 2253:10D2+1D8 m3 666:10D2+1D16
        m3 1127:13D2+1D16 72:1D2+3E8 5,12:1D2+4E8 5,15,30:1D2+5E4 666:7D2+1D32 1229:9D2+1D16 3228:11D2+3D4
        2253:14D2+1D16""",
    "gb300 trtllm fp8 1024/1024": """
        m3 8,24:1D4+4E8 m3 180:1D4+1D32 m3 564:2D4+1D32 m3 666:1D4+1D16 m1 2253:2D4+1D16 m1 8192:3D4+2D8
        4,24,84:1D4+4E8 1229:2D4+1D32 2253:2D4+1D16 8602,12288:3D4+2D8""",
    "gb300 trtllm fp8 1024/8192": """
        m3 4,16:1D4+4E8 m3 141,544:1D4+1D32 m1 2048:1D4+2D16 m1 8192:1D4+4D8 4,36:1D4+4E8
        282,1024:1D4+1D32 4096,8192:1D4+2D16""",
    "gb300 trtllm fp8 8192/1024": """
        m3 8,24:1D4+4E8 m3 333:6D4+1D32 m3 666:8D4+1D16 m1 1229:10D4+1D16 m1 1229:7D4+1D8 4,24,36:1D4+4E8
        512:6D4+1D32 666:4D4+1D16 1229:7D4+1D16 2151:7D4+1D8""",
    "h200_sxm sglang fp8 1024/1024": """
        1,4,8,16,32,64,128,256:1T8+9T8 512,1024,2048:1T8+6T8 128,256,512,1024,2048:1D8+6D8
        m2 1,4,8,16,32,64,128,256:1T8+9T8 m2 512,1024,2048:1T8+6T8 m2 128,256,512,1024,2048:1D8+6D8""",
    "h200_sxm sglang fp8 8192/1024": """
        1,4,8:1T8+7T8 4,8,16:1T8+6T8 8,16,32:1T8+3T8 32,64,128:2T8+3T8 64,128,256:1T8+1D8 m2 1,4,8:1T8+7T8
        m2 2,4,8,16,32:1T8+6T8 m2 4,8,16,32,64:1T8+3T8 m2 32,64,128:2T8+3T8
        m2 32,64,128,256,512:1T8+1D8""",
    "b200_sxm sglang fp4 1024/1024": """
        16,128:1D4+5E8 32,64,256:1D4+6E8 512:1D4+1D8 512:1D4+2D8 m2 16,512:1D4+5E8 m2 32,64,256,512:1D4+6E8
        m2 512,1024:1D4+1D8 m2 512:1D4+2D8""",
    "b200_sxm sglang fp4 8192/1024": """
        64,128:1D4+1E8 8:1D4+5E8 4,128:2D4+5E8 4,8,16,64:1T4+1T8 1024,2048:7D4+2D8 m2 64,128:1D4+1E8
        m2 8:1D4+5E8 m2 4,128:2D4+5E8 m2 4,8,16,64:1T4+1T8""",
    "b200_sxm sglang fp8 1024/1024": """
        4:1E8+1E8 16,32,64,128,256:1E8+3E8 1024,2048,4096:1D8+5D8 2048,4096:2D8+5D8 m2 4,64:1E8+1E8
        m2 4,8,16,32,128:1E8+3E8 m2 512,4096:1D8+5D8 m2 1024,2048,4096:2D8+5D8 m2 512,1024,2048:1D8+2D8""",
    "b200_sxm sglang fp8 8192/1024": """
        4,32,64,512:1E8+1E8 64,512:1E8+4E8 32:1E8+6E8 128,512,1024:1D8+1D8 256,512,1024:2D8+1D8
        m2 16,32,64:1E8+1E8 m2 8,256:1E8+4E8 m2 4,8,16,256:1E8+6E8 m2 256:1D8+1D8 m2 128,512:2D8+1D8""",
}
GPT_OSS = {
    "gb200 trtllm fp4 1024/1024": """
        1,2,4,16,32,64,128:1T1+1T4 16:1T1+4T2 256,512,1024,2048,2560:1T1+1D2 512,1024,2048,2560:1T1+2D2
        256,1024,1536:1T1+1D4 3072:1T1+3D4""",
    "gb200 trtllm fp4 8192/1024": """
        1:1T1+1T8 2,4,8,16,32,64:1T1+1T4 128,512:2T1+1T4 256,384:2T1+1T2 128,512:2T1+1D2""",
}
DEPLOYMENT = re.compile(r"(?:m(\d) )?([\d,]+):(\d+)([TEDP])(\d+)\+(\d+)([TEDP])(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptPool:
    """The instances of a pool: how many, and the degrees of each."""

    instances: int
    kind: str
    devices: int

    @property
    def experts(self) -> int:
        """Return the ranks over which experts are spread."""
        return self.devices if self.kind in "ED" else 1

    def fields(self) -> dict[str, int]:
        """Return the fields of a pool of a deployment."""
        groups = self.devices if self.kind in "DP" else 1
        return {
            "replicas": self.instances,
            "tensor_parallel": self.devices // groups,
            "data_parallel": groups,
            "expert_parallel": self.experts,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """One deployment of a sweep, with the concurrencies that it was measured at."""

    concurrencies: tuple[int, ...]
    prefill: SweptPool
    decode: SweptPool
    drafted: int  # tokens; 0 without a draft


@lru_cache(maxsize=256)
def deployments(text: str) -> tuple[Swept, ...]:
    """Return the deployments that a text describes.

    >>> (found,) = deployments("m3 8,24:1D4+4E8")
    >>> found.concurrencies, found.decode.fields()["expert_parallel"], found.drafted
    ((8, 24), 8, 3)
    """
    found = []
    for drafted, numbers, *pools in DEPLOYMENT.findall(text):
        first, second = (
            SweptPool(instances=int(count), kind=kind, devices=int(devices))
            for count, kind, devices in (pools[:3], pools[3:])
        )
        concurrencies = tuple(int(number) for number in numbers.split(","))
        swept = Swept(concurrencies=concurrencies, prefill=first, decode=second, drafted=int(drafted or 0))
        found.append(swept)
    return tuple(found)


def of_row(row: Mapping[str, str], concurrency: int) -> tuple[Swept, ...]:
    """Return the deployments that a row without numbers of instances may be, those without a draft first.

    Its degrees are the devices of an instance of each pool; it does not say whether attention is
    data-parallel.
    """
    sweeps = GPT_OSS if "gpt-oss" in row["model_path"] else SWEEPS
    name = f"{row['system']} {row['backend']} {row.get('precision', '')} {row['isl']}/{row['osl']}"
    devices = [int(float(row[f"{pool}_tp_size"])) for pool in ("prefill", "decode")]
    found = [
        each
        for each in deployments(sweeps.get(name, ""))
        if concurrency in each.concurrencies
        and [each.prefill.devices, each.decode.devices] == devices
        and each.prefill.experts == int(float(row["prefill_moe_ep_size"] or 1))
    ]
    return tuple(sorted(found, key=lambda each: each.drafted))
