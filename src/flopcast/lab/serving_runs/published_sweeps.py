"""Deployments of InferenceX: how many instances each pool had, and whether they drafted tokens.

Answers: with which pools was a row measured that states degrees and a concurrency alone?
Elsewhere: the rows (aiconfigurator.py).

Source: .github/configs/nvidia-master.yaml of SemiAnalysisAI/InferenceX (commit 0004cf5, Apache-2.0), of
whose results the rows are copies. A sweep is one system, engine, number format and pair of lengths. Each of
its deployments is written as CONCURRENCIES:PREFILL+DECODE, with "m" and the number of drafted tokens in
front where tokens are drafted by the model's own modules. A pool is a number of instances, a letter and the
devices of an instance: T for tensor parallelism alone, E for experts that are spread over these ranks, D
for attention that is data-parallel as well, P for data-parallel attention with experts that are cut.

Behind "x" stands the largest batch of a decoding instance, or of each of its groups with data-parallel
attention. It is part of the names of TensorRT-LLM's recipes ("gen4_tep8_batch16", CONFIG_FILE in the same
file); where such a name says that attention is not data-parallel, that counts. For gpt-oss it is
DECODE_MAX_BATCH_SIZE.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

SWEEPS = {
    "b200_sxm trtllm fp4 1024/1024": """
        m2 1214:1D4+2D8x64 m3 875:1D4+5D8x16 m3 6:1D4+5E8x1 m3 10,15,25,45,90,180:1D4+5E8x32 m1
        4968:3D4+4D8x128 m1 10860:3D4+5D4x512 4096:1D4+1D8x512 2192:1D4+2D8x128 1365:1D4+5D8x32
        6:1D4+5E8x1 10,15,25,45,90,180:1D4+5E8x32 450:1D4+6E8x64""",
    "b200_sxm trtllm fp4 8192/1024": """
        m3 90:1D4+1D8x8 m3 66:1D4+3E8x16 m3 6:1D4+5E8x1 m3 10,15,30,60:1D4+5E8x8 m3 548:3D4+1D8x64 m1
        1096,1691:5D4+1D8x192 m3 658:5D4+2D8x32 6:1D4+5E8x1 10,15,25,50,100:1D4+5E8x8 370:2D4+5E8x64
        1606:4D4+1D8x192 837:4D4+3D8x32 2222:7D4+2D8x128""",
    "b200_sxm trtllm fp8 1024/1024": """
        m3 8:1D8+8T8x1 m3 32:1D8+8T8x4 m3 64:1D8+8T8x8 m3 256:1D8+8T8x32 m3 896:1D8+7D8x128 m3
        1024:1D8+4D8x256 m3 1184:1D8+3D8x384 m2 1600:1D8+2D8x768 4,32,128:1D8+3T8x1024 1920:1D8+5D8x48
        4096:1D8+1D8x512 5152:2D8+5D8x128""",
    "b200_sxm trtllm fp8 8192/1024": """
        m3 8:1D8+6T8x8 m3 8:1D8+2T8x32 m3 48:1D8+6T8x8 m3 64:1D8+4T8x16 m3 224:2D8+3D8x8 m3
        288:2D8+1D8x32 m2 1088:4D8+1D8x128 1:1D8+1T8x1 32,128:1D8+4T8x32 96:1D8+6T8x16 128:1D8+1D8x128
        128:1D8+2D8x64 256:1D8+1D8x256 640:2D8+1D8x640""",
    "b300_sxm trtllm fp4 1024/1024": """
        m3 654:1D2+1D8x64 m3 271:1D2+2D8x16 m3 11:1D2+5E8x1 m3 10,20,25,60,120,200:1D2+5E8x32 m1
        2342:2D2+1D8x256 m1 8609:5D2+2D8x512 m1 12926:5D2+2D8x768 1176:1D2+2D8x64 6:1D2+4E8x1
        5,10,15,25:1D2+5E4x4 60,110,195,395:1D2+5E8x64 4405:2D2+1D8x512 8192:3D2+1D8x1024
        4611:3D2+2D8x256""",
    "b300_sxm trtllm fp4 8192/1024": """
        m1 2198:10D2+1D8x256 m3 52:1D2+4E4x8 m3 8:1D2+4E8x1 m3 32:1D2+4E8x4 m3 181:3D2+1D8x16 m1
        1197:9D2+1D8x128 105:1D2+3E4x32 63:1D2+3E8x16 4:1D2+3E8x1 12:1D2+4E4x2 589:5D2+2D8x32
        1093:6D2+1D8x128 2048:8D2+1D8x256""",
    "b300_sxm trtllm fp8 1024/1024": """
        m3 10:1P4+8T8x1 m3 160:1P4+8T8x16 m1 3072:1P4+1P8x256 m1 2560:1P4+2D8x128 m2 720:1P4+5D8x16 m1
        11264:3P4+2P8x512 2112:1P4+1D8x256 3072:1P4+2P8x128 1280:1P4+3P8x48 12,128,384:1P4+8T8x64
        16384:2P4+1P8x1024""",
    "b300_sxm trtllm fp8 8192/1024": """
        m3 40:1P4+2T8x16 m3 8:1P4+4T8x1 m3 20:1P4+4T8x4 m3 72:1P4+1P8x8 m3 144:2P4+1P8x16 m2
        512:4P4+1P8x64 64:1P4+4T8x16 16:1P4+8T8x2 256:2P4+1P8x32 512:3P4+1P8x64 256:3P4+5T8x64
        1075:5P4+1P8x128 3072:7P4+1D8x384""",
    "h200_sxm trtllm fp8 1024/1024": """
        m3 1:1D8+11E8x1 m3 4,8,32:1E8+11E8x128 m3 16:1E8+9E8x128 m3 64:1D8+8D8x128 m3 128:1D8+7D8x128 m3
        256:1D8+4D8x128 m1 512:1D8+2D8x256 1:1D8+9E8x1 4,8,16,32,64:1E8+9E8x256 128:1D8+9D8x512
        256:1D8+6D8x512 512:2D8+7D8x512""",
    "h200_sxm trtllm fp8 8192/1024": """
        m3 1:1E8+7E8x1 m3 4:1E8+7E8x32 m3 8:1E8+6E8x32 m2 16:1E8+3E8x32 m3 32:3E8+5E8x32 m2
        64:1D8+1D8x32 m2 128:2D8+1D8x32 m2 256:3D8+1D8x32 m1 512:3D8+1D8x64 1:1E8+7E8x1 4:1E8+7E8x32
        8:1E8+6E8x16 16:1E8+3E8x32 32:2E8+5E8x128 64:2D8+3D8x128 128:1D8+1D8x256 256:5D8+3D8x256
        512:3D8+1D8x512""",
    "h100_sxm trtllm fp8 1024/1024": """
        m3 6:1D16+3E16x1 m3 9:1D16+3E16x2 m3 30:1D16+3E16x8 m3 60:1D16+3E16x16 m3 117:1D16+3E16x32 m3
        462:1D16+3E16x128 m3 231:1D16+3D16x4 m2 615:1D16+1D16x32 m1 1229:1D16+1D16x64 6:1D16+3E16x1
        9:1D16+3E16x2 30:1D16+3E16x8 60:1D16+3E16x16 231:1D16+3D16x4 462:1D16+3D16x8 924:1D16+3D16x16
        1845:1D16+3D16x32 4916:2D16+1D16x256""",
    "h100_sxm trtllm fp8 8192/1024": """
        m3 6:1D16+3E16x1 m3 9:1D16+3E16x2 m3 30:1D16+3E16x8 m3 77:1D16+1D16x4 m3 154:2D16+1D16x8
        6:1D16+3E16x1 9:1D16+3E16x2 30:1D16+3E16x8 154:1D16+2E16x64 308:2D16+1D16x16""",
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
        m3 180:1D4+1D32x4 m3 4,8,12,24,48:1D4+4E8x8 m1 4301:2D4+1D16x256 m1 2253:3D4+1D32x64 m1
        16130:3D4+5D4x768 4301:1D4+1D8x512 666:1D4+1D32x16 6144:1D4+2D4x768 12,24,48,96,192:1D4+4E8x32
        5:1D4+4E8x1 4301:2D4+1D16x256 2253:2D4+1D32x64""",
    "gb200 trtllm fp4 1024/8192": """
        m3 4,8,12,24,48:1D4+7E8x4 m3 7:1D4+7E8x1 m3 128:1D4+1D32x4 m3 512:1D4+1D32x16 m3
        3072:1D4+3D16x64 m1 6144:1D4+3D16x128 m1 8192:1D4+1D32x256 5:1D4+7E8x1 60:1D4+15E4x4
        135:1D4+15E4x8 563:1D4+1D32x16 2048:1D4+1D32x64 4096:1D4+1D32x128 8192:1D4+1D32x256""",
    "gb200 trtllm fp4 8192/1024": """
        m3 4,8,12,24,48:1D4+4E8x8 m3 180:3D4+1D32x4 m1 1229:7D4+1D16x64 m3 666:8D4+1D32x16 m1
        4301:11D4+1D16x256 12,44,76:1D4+4E8x16 5:1D4+4E8x1 333:2D4+1D32x8 1229:7D4+1D32x32
        2253:8D4+1D16x128 4096:10D4+1D16x256""",
    "gb200 trtllm fp8 1024/1024": """
        m1 4301:1D8+1D8x512 m1 2151:1D8+1D8x256 m1 1229:1D8+1D16x64 m3 615:1D8+1D32x16 m3 36:1D8+3E8x8
        m3 18:1D8+3E8x4 m3 9:1D8+3E8x2 6144:1D8+1D8x768 4301:1D8+1D8x512 2151:1D8+1D16x128
        1127:1D8+1D32x32 256:1D8+1D32x8 27:1D8+3E8x8 3:1D8+3E8x1""",
    "gb200 trtllm fp8 1024/8192": """
        m1 8192:1D8+2D16x256 m1 2152:1D8+2D16x64 m3 564:1D8+1D32x16 m3 72:1D8+1D32x2 m3 4,8:1D8+4E8x2
        8192:1D8+2D16x256 2048:1D8+1D32x64 564:1D8+1D32x16 36:1D8+4E8x8 4:1D8+4E8x1""",
    "gb200 trtllm fp8 8192/1024": """
        m3 666:3D8+1D8x64 m3 666:5D8+1D16x32 m3 333:3D8+1D16x16 m3 333:4D8+1D32x8 m3 90:2D8+1D32x2 m3
        15:1D8+3E8x4 m3 6:1D8+3E8x2 1229:5D8+1D16x64 666:4D8+1D32x16 615:3D8+1D16x32 333:2D8+1D32x8
        63:1D8+3E8x16 18:1D8+3E8x4 6:1D8+3E8x1""",
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
        m1 3226:1D2+1D4x768 m3 333:1D2+1D32x8 m3 5:1D2+4E8x1 m3 8,12,24,48:1D2+4E8x8 m1
        2253:3D2+1D16x128 m3 1229:3D2+1D32x32 5:1D2+4E8x1 12,48,96,192:1D2+4E8x32 8192:2D2+1D8x1024
        1229:2D2+1D32x32 4301:3D2+1D16x256 2253:3D2+1D32x64""",
    "gb300 trtllm fp4 1024/8192": """
        m3 7:1D2+7E8x1 m3 63:1D2+7E8x8 m3 563:1D2+1D32x16 m3 2088:1D2+1D32x64 m1 8192:1D2+2D16x256 m1
        16384:1D2+4D8x512 7:1D2+7E8x1 245:1D2+7E8x32 60:1D2+15E4x4 1024:1D2+1D32x32 4096:1D2+1D32x128
        8192:1D2+1D32x256""",
    "gb300 trtllm fp4 8192/1024": """
        m3 33:1D2+3E8x8 m3 5:1D2+4E8x1 m3 12,24:1D2+4E8x4 m3 180:4D2+1D32x4 m3 308:8D2+1D32x8 m1
        2253:10D2+1D8x256 m3 666:10D2+1D16x32 m3 1127:13D2+1D16x64 72:1D2+3E8x16 5:1D2+4E8x1
        12:1D2+4E8x2 5,15,30:1D2+5E4x4 666:7D2+1D32x16 1229:9D2+1D16x64 3228:11D2+3D4x256
        2253:14D2+1D16x128""",
    "gb300 trtllm fp8 1024/1024": """
        m3 8:1D4+4E8x1 m3 24:1D4+4E8x4 m3 180:1D4+1D32x4 m3 564:2D4+1D32x16 m3 666:1D4+1D16x32 m1
        2253:2D4+1D16x128 m1 8192:3D4+2D8x512 4:1D4+4E8x1 24:1D4+4E8x4 84:1D4+4E8x16 1229:2D4+1D32x32
        2253:2D4+1D16x128 8602:3D4+2D8x512 12288:3D4+2D8x768""",
    "gb300 trtllm fp8 1024/8192": """
        m3 4:1D4+4E8x1 m3 16:1D4+4E8x4 m3 141:1D4+1D32x4 m3 544:1D4+1D32x16 m1 2048:1D4+2D16x64 m1
        8192:1D4+4D8x256 4:1D4+4E8x1 36:1D4+4E8x8 282:1D4+1D32x8 1024:1D4+1D32x32 4096:1D4+2D16x128
        8192:1D4+2D16x256""",
    "gb300 trtllm fp8 8192/1024": """
        m3 8:1D4+4E8x1 m3 24:1D4+4E8x4 m3 333:6D4+1D32x8 m3 666:8D4+1D16x32 m1 1229:10D4+1D16x64 m1
        1229:7D4+1D8x128 4:1D4+4E8x1 24:1D4+4E8x4 36:1D4+4E8x8 512:6D4+1D32x16 666:4D4+1D16x32
        1229:7D4+1D16x64 2151:7D4+1D8x256""",
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
        1,2,4,16,32,64,128:1T1+1T4x256 16:1T1+4T2x32 256,512,1024,2048,2560:1T1+1D2x1536
        512,1024,2048,2560:1T1+2D2x1536 256,1024,1536:1T1+1D4x512 3072:1T1+3D4x1024""",
    "gb200 trtllm fp4 8192/1024": """
        1:1T1+1T8x4 2,4,8,16,32,64:1T1+1T4x128 128,512:2T1+1T4 256,384:2T1+1T2 128,512:2T1+1D2""",
}
DEPLOYMENT = re.compile(r"(?:m(\d)\s+)?([\d,]+):(\d+)([TEDP])(\d+)\+(\d+)([TEDP])(\d+)(?:x(\d+))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptPool:
    """The instances of a pool: how many, and the degrees of each."""

    instances: int
    kind: str
    devices: int
    most_sequences: int = 0  # of a group of ranks with requests of its own; 0: the engine's default

    @property
    def experts(self) -> int:
        """Return the ranks over which experts are spread."""
        return self.devices if self.kind in "ED" else 1

    def fields(self) -> dict[str, int]:
        """Return the fields of a pool of a deployment."""
        groups = self.devices if self.kind in "DP" else 1
        limit = {"max_sequences": self.most_sequences} if self.most_sequences else {}
        return limit | {
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

    >>> (found,) = deployments("m3 8,24:1D4+4E8x16")
    >>> found.concurrencies, found.decode.fields()["expert_parallel"], found.drafted
    ((8, 24), 8, 3)
    >>> found.decode.fields()["max_sequences"]
    16
    """
    found = []
    for drafted, numbers, *pools, limit in DEPLOYMENT.findall(text):
        first, second = (
            SweptPool(instances=int(count), kind=kind, devices=int(devices), most_sequences=int(most or 0))
            for count, kind, devices, most in ((*pools[:3], 0), (*pools[3:], limit))
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
