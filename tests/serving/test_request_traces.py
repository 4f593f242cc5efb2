"""Files of recorded requests: known formats, errors with their lines, bounded memory."""

import gzip
import itertools
import json
import tracemalloc

import numpy as np
import pytest
from all_cases import all_cases
from conftest import PACKAGE
from serving.test_request_traffic import traffic_of

from flopcast.api import predict_serving
from flopcast.errors import SpecError
from flopcast.interop.request_traces import reader
from flopcast.interop.request_traces.reader import read_request_trace
from flopcast.jobs import serving_job
from flopcast.serving.arrivals import requests_of
from flopcast.serving.requests import Limits
from flopcast.serving.scheduler import run

SHARED = PACKAGE.parents[2] / "shared" / "data" / "serving"
HEADER = "arrival_s,prompt_tokens,output_tokens"
PLAIN = f"{HEADER}\n0.0,374,44\n4.5,396,109\n4.5,879,55\n"

UNTIMED = '{"input_length": 3, "output_length": 2}'
TIMED = '{"input_length": 3, "output_length": 2, "timestamp": 9}'


def written(folder, text, name="trace.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def faults(folder, text, name="trace.csv", **limits):
    path = written(folder, text, name)
    with pytest.raises(SpecError) as caught:
        read_request_trace(path, **limits)
    return [(p.where.removeprefix(str(folder)).lstrip("/"), p) for p in caught.value.problems]


@all_cases(
    "text",
    [
        PLAIN,
        PLAIN.replace("\n", "\r\n"),
        "\ufeff" + PLAIN,
        f"\n{PLAIN}\n\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:51.1805900,396,109\n2023-11-16 18:15:51.1805900,879,55",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,374,44\n"
        "2024-05-10 00:00:04.509930+00:00,396,109\n2024-05-10 00:00:04.509930+00:00,879,55\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,374,44,418,API log\n9.5,GPT-4,396,109,505,API log\n9.5,GPT-4,879,55,934,API log\n",
    ],
)
def test_tables_of_requests_are_read(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")

    requests = read_request_trace(written(folder, text)).requests

    assert requests.arrival_s == pytest.approx([0, 4.5, 4.5], abs=1e-6)
    assert requests.prompt_tokens.tolist() == [374, 396, 879]
    assert requests.output_tokens.tolist() == [44, 109, 55]


def test_a_packed_trace_is_read_like_a_plain_one(tmp_path):
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(PLAIN.encode()))

    assert read_request_trace(packed).requests.prompt_tokens.tolist() == [374, 396, 879]


MOONCAKE = [
    {"timestamp": 1000, "input_length": 1100, "output_length": 7, "hash_ids": [5, 6, 7]},
    {"timestamp": 3500, "input_length": 1030, "output_length": 9, "hash_ids": [5, 6, 8]},
]


@all_cases("form", ["json", "csv"])
def test_hashes_of_blocks_say_which_prompts_begin_alike(form, tmp_path_factory):
    lines = "\n".join(map(json.dumps, MOONCAKE))
    table = f"{HEADER},blocks_of_512_hashes\n1.0,1100,7,5 6 7\n3.5,1030,9,5 6 8\n"
    path = written(tmp_path_factory.mktemp("trace"), lines if form == "json" else table, f"trace.{form}")

    requests = read_request_trace(path).requests

    assert requests.arrival_s.tolist() == [0, 2.5]
    assert requests.segment_starts.tolist() == [0, 3, 6]
    assert requests.segment_ids.tolist() == [5, 6, 7, 5, 6, 8]
    assert requests.segment_tokens.tolist() == [512, 512, 76, 512, 512, 6]
    limits = Limits(max_sequences=4, max_tokens=512, kv_blocks=1000)
    served = run(requests, limits, lambda new, sequences, kv, pairs: 1e-3 + 0 * new)
    assert served.hit_tokens.tolist() == [0, 1024]


def conversation(*turns):
    return {"id": "a", "conversations": [{"from": who, "value": "x" * size} for who, size in turns]}


def test_conversations_become_turns_that_follow_each_other(tmp_path):
    lines = [
        conversation(("human", 400), ("gpt", 200), ("human", 40), ("gpt", 80), ("human", 4)),
        conversation(("gpt", 8)),
        conversation(("system", 80), ("human", 20), ("gpt", 4)),
    ]

    trace = read_request_trace(written(tmp_path, "\n".join(map(json.dumps, lines)), "chats.jsonl"))

    requests = trace.requests
    assert requests.prompt_tokens.tolist() == [100, 160, 25]
    assert requests.output_tokens.tolist() == [50, 20, 1]
    assert requests.after.tolist() == [-1, 0, -1]
    assert requests.segment_tokens.tolist() == [149]
    assert requests.keep_ids[0] == requests.keep_ids[1] == requests.segment_ids[0]
    assert "4 characters per token" in trace.notes[0]
    with pytest.raises(SpecError, match="does not contain arrival times"):
        requests_of(traffic_of("trace=chats.jsonl"), requests)
    timed = requests_of(traffic_of("trace=chats.jsonl rate=3/s arrivals=constant"), requests)
    assert timed.arrival_s == pytest.approx([0.5, 0.0, 1.0])  # 3 requests in 2 conversations
    closed = requests_of(traffic_of("trace=chats.jsonl concurrency=2"), requests)
    limits = Limits(max_sequences=4, max_tokens=512, kv_blocks=1000)
    served = run(closed, limits, lambda new, sequences, kv, pairs: 1e-3 + 0 * new)
    assert served.arrival_s[1] == served.last_token_s[0]


def test_requests_beyond_those_wanted_are_not_read(tmp_path):
    path = written(tmp_path, PLAIN)

    assert read_request_trace(path, most_requests=2).requests.size == 2


@all_cases(
    ("text", "name", "where", "words"),
    [
        ("", "a.csv", "a.csv", "no requests"),
        (HEADER, "a.csv", "a.csv", "no requests"),
        ("\n\n", "a.csv", "a.csv", "no requests"),
        ("time,prompt_tokens,output_tokens\n1,2,3", "a.csv", "a.csv:1", "arrival_s or timestamp"),
        (f"{PLAIN}3.0,10,10\n", "a.csv", "a.csv:5", "sort the lines"),
        (f"{PLAIN}5.0,-10,10\n", "a.csv", "a.csv:5", "at least 1"),
        (f"{PLAIN}5.0,10,0\n", "a.csv", "a.csv:5", "at least 1"),
        (f"{PLAIN}5.0,10.5,9\n", "a.csv", "a.csv:5", "prompt_tokens = '10.5' is not allowed"),
        (f"{PLAIN}5.0,1e30,9\n", "a.csv", "a.csv:5", "prompt_tokens = '1e30' is not allowed"),
        (f"{PLAIN}5.0,many,9\n", "a.csv", "a.csv:5", "a whole number"),
        (f"{PLAIN}soon,10,9\n", "a.csv", "a.csv:5", "a date and a time"),
        (f"{PLAIN}nan,10,9\n", "a.csv", "a.csv:5", "a date and a time"),
        (f"{PLAIN}\n5.0,10\n", "a.csv", "a.csv:6", "3 columns"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 99:15,1,1", "a.csv", "a.csv:2", "a date"),
        (f"{HEADER},blocks_of_512_hashes\n1,2,3,4 x\n", "a.csv", "a.csv:2", "separated by spaces"),
        (f"{HEADER},blocks_of_512_hashes\n1,2,3,-4\n", "a.csv", "a.csv:2", "separated by spaces"),
        (f"{HEADER},blocks_of_512_hashes\n1,2,3,{9**30}\n", "a.csv", "a.csv:2", "separated by spaces"),
        ("[\n{}\n]", "a.json", "a.json:1", "jq -c"),
        ('{"promt_tokens": 3, "output_len": 1}\n' * 3, "a.jsonl", "a.jsonl:1", "prompt_tokens is missing"),
        ('{"prompt_tokens": 3}', "a.jsonl", "a.jsonl:1", "output_tokens is missing"),
        ('{"prompt_tokens": 3, "output_tokens": true}', "a.jsonl", "a.jsonl:1", "a whole number"),
        ('{"input_length": 3, "output_length": -2, "timestamp": 5}', "a.jsonl", "a.jsonl:1", "at least 1"),
        ('{"input_length": 3, "output_length": 2, "timestamp": "x"}', "a.jsonl", "a.jsonl:1", "a number"),
        ('{"input_length": 3, "output_length": 2, "hash_ids": [-1]}', "a.jsonl", "a.jsonl:1", "a list"),
        ('{"input_length": 3, "output_length": 2\n', "a.jsonl", "a.jsonl:1", "one object on each line"),
        (f"{TIMED}\n{UNTIMED}", "a.jsonl", "a.jsonl:2", "timestamp is missing"),
        ('{"input_length": 3, "output_length": -2}', "a.jsonl", "a.jsonl:1", "output_length = -2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,0,1", "a.csv", "a.csv:2", "ContextTokens = 0"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,x,1", "a.csv", "a.csv:2", "ContextTokens = 'x'"),
        (f"{TIMED}\n{UNTIMED}\n", "a.jsonl", "a.jsonl:2", "other requests of the trace have"),
        (f"{UNTIMED}\n{TIMED}", "a.jsonl", "a.jsonl:2", "earlier requests of the trace have no"),
        ('{"conversations": "none"}', "a.jsonl", "a.jsonl", "no requests"),
    ],
)  # fmt: skip
def test_a_faulty_trace_is_refused_with_the_line(text, name, where, words, tmp_path_factory):
    ((place, problem),) = faults(tmp_path_factory.mktemp("trace"), text, name)

    assert place == where
    assert words in f"{problem} {problem.message}"


def test_several_faulty_lines_are_named_together(tmp_path):
    found = faults(tmp_path, f"{PLAIN}5.0,-10,10\n6.0,10,-10\n1.0,10,10\n")

    assert [place for place, _ in found] == ["trace.csv:5", "trace.csv:6", "trace.csv:7"]


def test_many_faulty_lines_are_not_all_named(tmp_path):
    assert len(faults(tmp_path, PLAIN + 500 * "5.0,-10,10\n")) == 10


def test_a_request_longer_than_the_context_is_refused(tmp_path):
    found = faults(tmp_path, PLAIN, longest_tokens=800)

    ((place, problem),) = found
    assert place == "trace.csv:4"
    assert problem.value == 934
    assert problem.allowed == "at most 800 tokens of prompt and output"
    assert read_request_trace(written(tmp_path, PLAIN), longest_tokens=934).requests.size == 3


@all_cases("kind", ["missing", "folder", "binary", "damaged", "long line"])
def test_what_cannot_be_read_is_an_error(kind, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("trace")
    path = folder / "trace.csv"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(f"{HEADER}\n".encode() + b"1,2,\xff\xfe\n")
    elif kind == "damaged":
        path = folder / "trace.csv.gz"
        path.write_bytes(gzip.compress(PLAIN.encode())[:-9])
    elif kind == "long line":
        monkeypatch.setattr("flopcast.interop.request_traces.lines.MOST_LINE_BYTES", 1000)
        path.write_text(PLAIN + "1" * 5000, encoding="utf-8")

    with pytest.raises(SpecError) as caught:
        read_request_trace(path)

    (problem,) = caught.value.problems
    assert problem.where.startswith(str(path))
    assert problem.field == "traffic.trace"


def test_chunks_do_not_cut_requests(tmp_path, monkeypatch):
    rows = [f"{place / 7:.6f},{place % 50 + 1},{place % 9 + 1}" for place in range(2000)]
    path = written(tmp_path, "\n".join([HEADER, *rows]))
    whole = read_request_trace(path).requests

    for size in (64, 1000, 4096):
        monkeypatch.setattr("flopcast.interop.request_traces.lines.CHUNK_BYTES", size)
        cut = read_request_trace(path).requests
        assert (cut.arrival_s == whole.arrival_s).all()
        assert (cut.prompt_tokens == whole.prompt_tokens).all()
    late = written(tmp_path, "\n".join([HEADER, *rows, "1.0,1,1"]), "late.csv")
    with pytest.raises(SpecError, match=r"late\.csv:2002"):
        read_request_trace(late)


def test_the_choice_of_a_deployment_and_its_prediction_read_a_trace_once(tmp_path, monkeypatch):
    """A changed file is read again."""
    read, opened = reader.chunks, []
    monkeypatch.setattr(reader, "chunks", lambda *told: opened.append(told) or read(*told))
    for number in (1, 2):
        rows = (f"{row / 4},500,50" for row in range(100 * number))
        path = written(tmp_path, "\n".join([HEADER, *rows]))

        predict_serving(serving_job("llama-3.1-8b", gpus=2, traffic=f"trace={path}"))

        assert len(opened) == number


def test_turns_in_later_chunks_follow_their_own_conversation(tmp_path, monkeypatch):
    line = json.dumps(conversation(("human", 40), ("gpt", 40), ("human", 40), ("gpt", 40)))
    monkeypatch.setattr("flopcast.interop.request_traces.lines.CHUNK_BYTES", 300)

    requests = read_request_trace(written(tmp_path, "\n".join([line] * 9), "a.jsonl")).requests

    assert requests.after.tolist() == [each for turn in range(9) for each in (-1, 2 * turn)]


def test_a_long_trace_takes_memory_for_its_numbers_alone(tmp_path):
    number = 400_000
    path = tmp_path / "long.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(f"{HEADER}\n")
        for begin in range(0, number, 1000):
            file.write("".join(f"{(begin + row) / 100:.2f},{row + 1},7\n" for row in range(1000)))

    tracemalloc.start()
    requests = read_request_trace(path).requests
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert requests.size == number
    assert np.diff(requests.arrival_s).min() >= 0
    assert peak < 100_000_000 + 80 * number  # a chunk as text, and three numbers for each request twice


TRACES = {  # file → requests, and their mean prompt as the file's own columns give it
    "trace_azure2023_code.csv.gz": 8819,
    "trace_azure2023_conv.csv.gz": 19366,
    "trace_mooncake_conversation_trace.csv.gz": 12031,
    "trace_mooncake_synthetic_trace.csv.gz": 3993,
}


@all_cases("name", TRACES)
def test_recorded_production_traffic_is_read(name):
    if not SHARED.is_dir():
        pytest.skip("the data folder is not here")
    with gzip.open(SHARED / name, "rt") as file:
        rows = [line.split(",")[:3] for line in file][1:]

    requests = read_request_trace(SHARED / name).requests

    assert requests.size == TRACES[name]
    assert requests.prompt_tokens.tolist() == [int(row[1]) for row in rows]
    assert requests.arrival_s == pytest.approx([float(row[0]) for row in rows])
    if "mooncake" in name:
        blocks = np.diff(requests.segment_starts)
        assert (blocks == -(-requests.prompt_tokens // 512)).all()


@all_cases("name", [name for name in TRACES if "mooncake" in name])
def test_a_cache_without_limits_hits_every_block_that_was_seen_before(name):
    if not SHARED.is_dir():
        pytest.skip("the data folder is not here")
    requests = read_request_trace(SHARED / name, most_requests=3000).requests
    seen, expected = set(), []
    for begin, end in itertools.pairwise(requests.segment_starts.tolist()):
        blocks = requests.segment_ids[begin:end].tolist()
        expected.append(next((place for place, one in enumerate(blocks) if one not in seen), len(blocks)))
        seen.update(blocks)
    endless = Limits(max_sequences=3000, max_tokens=10**6, kv_blocks=10**8)

    served = run(requests, endless, lambda new, sequences, kv, pairs: 1e-4 + 0 * new)

    hits = np.ceil((served.hit_tokens + 16) / 512)  # the last block of a prompt is not hit whole
    whole = np.array(expected) == np.diff(requests.segment_starts)
    assert (served.hit_tokens[~whole] / 512).tolist() == np.array(expected)[~whole].tolist()
    assert hits[whole].tolist() == np.array(expected)[whole].tolist()
