"""What the Kineto reader makes of each kind of event, argument and header."""

from __future__ import annotations

import json

import pytest

from diagnose.errors import InputError
from diagnose.ingest import kineto
from tests.ingest.traces import BASE, Pieces, event, problems, read, rows, trace


def test_times_are_exact_and_absolute() -> None:
    relative = trace(event(ts=5106758186048.414, dur=0.2)).replace("5106758186048.414", "5106758186048.414")
    assert rows(read(relative)["events"], "ts_ns", "dur_ns") == [(BASE + 5106758186048414, 200)]
    text = trace(event(ts="T", dur=1)).replace('"T"', "1712195495505583.125")
    assert rows(read(text)["events"], "ts_ns") == [1712195495505583125], "no float ever; the base is not added"


def test_the_base_may_follow_the_events() -> None:
    text = json.dumps({"traceEvents": [event(ts=1)], "baseTimeNanoseconds": BASE, "distributedInfo": {"rank": 3}})
    tables = read(text)
    assert rows(tables["events"], "ts_ns") == [BASE + 1000]
    assert rows(tables["files"], "rank", "base_ns", "status") == [(3, BASE, "ok")]


def test_no_base_is_said() -> None:
    assert problems(read(json.dumps([event(ts=1)]))) == {"missing_base": 1}


@pytest.mark.parametrize(
    ("cat", "kind"),
    [
        ("cpu_op", "op"),
        ("Operator", "op"),
        ("user_annotation", "annotation"),
        ("gpu_user_annotation", "device_annotation"),
        ("Kernel", "kernel"),
        ("gpu_memcpy", "memcpy"),
        ("Memset", "memset"),
        ("collective_comm", "comm"),
        ("cuda_driver", "runtime"),
        ("Runtime", "runtime"),
        ("cuda_sync", "sync"),
        ("python_function", "python"),
        ("overhead", "overhead"),
        ("Trace", "other"),
        ("my own", "other"),
    ],
)
@pytest.mark.parametrize("lead", ["ph", "name"])
def test_kinds(cat: str, kind: str, lead: str) -> None:
    first = event(cat=cat)
    first = {lead: first.pop(lead), **first}
    tables = read(trace(first, first))
    assert rows(tables["events"], "kind") == [kind, kind]
    assert problems(tables).get("unknown_category", 0) == (2 if cat == "my own" else 0)


def test_flows_and_metadata_are_no_events() -> None:
    flow = {"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts": 1, "cat": "ac2g", "name": "ac2g"}
    named = {"ph": "M", "name": "thread_name", "pid": 7, "tid": 9, "ts": 0, "args": {"name": "thread 9 (main)"}}
    stream = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7 "}}
    tables = read(trace(flow, event(), {**flow, "ph": "f"}, named, named, stream, flow))
    assert rows(tables["files"], "events_count") == [1]
    assert rows(tables["threads"], "process", "thread", "name") == [(7, 9, "thread 9 (main)")]
    assert problems(tables) == {}


def test_device_rows_take_device_and_stream_from_arguments_else_from_their_place() -> None:
    given = event("k", "kernel", device=2, stream=9)
    drawn = {**event("k", "kernel"), "pid": 1, "tid": "stream 7"}
    sync = event("Context Sync", "cuda_sync", device=0, stream=-1, wait_on_stream=-1)
    tables = read(trace(given, drawn, sync))
    assert rows(tables["events"], "device", "stream", "process") == [(2, 9, None), (1, 7, None), (0, None, None)]


def test_text_ids_are_distinct_negative_numbers_and_text_numbers_are_numbers() -> None:
    found = [
        {**event(), "pid": pid, "tid": tid} for pid, tid in [("Spans", "a"), ("", "b"), ("12", "34"), ("Spans", "a")]
    ]
    process, thread = zip(*rows(read(trace(*found))["events"], "process", "thread"), strict=True)
    assert process[2] == 12
    assert thread[2] == 34
    assert process[0] == process[3] < -1
    assert process[1] < -1
    assert process[1] != process[0]


def test_numbers_as_text() -> None:
    assert rows(read(trace(event(ts="300.5", dur="20")))["events"], "ts_ns", "dur_ns") == [(BASE + 300_500, 20_000)]


def test_links() -> None:
    equal = event("k", "kernel", correlation=5, **{"External id": 5})
    linked = event("k", "kernel", correlation=6, **{"External id": 90})
    none = event("k", "kernel", correlation=0, **{"External id": 0})
    old = event("k", "Kernel", correlation=7, **{"external id": 91})
    tables = read(trace(equal, linked, none))
    assert rows(tables["events"], "launch_id", "external_id") == [(5, None), (6, 90), (None, None)]
    assert rows(read(trace(old))["events"], "launch_id", "external_id") == [(7, 91)]


def test_external_ids_that_nearly_all_repeat_the_correlation_are_no_links() -> None:
    found = [event("k", "kernel", correlation=i, **{"External id": i}) for i in range(1, 300)]
    tables = read(trace(*found, event("k", "kernel", correlation=300, **{"External id": 7})))
    assert set(rows(tables["events"], "external_id")) == {None}


def test_operator_arguments() -> None:
    args = {"Sequence number": 3, "Fwd thread id": 1, "Input Dims": [[8, 32], []], "Input type": ["float", ""]}
    tables = read(trace(event(**args), event()))
    found = rows(
        tables["op_args"], "event_id", "sequence", "forward_thread", "input_dims", "input_types", "concrete_inputs"
    )
    assert found == [(0, 3, 1, "[[8,32],[]]", '["float",""]', None)]
    old = read(trace(event("aten::mm", "Operator", **{"Input dims": [[2]]})))
    assert rows(old["op_args"], "input_dims") == ["[[2]]"]


def test_device_arguments() -> None:
    kernel = event("k", "kernel", grid=[2, 3, 4], **{"est. achieved occupancy %": 50, "graph node id": 8, "context": 1})
    copy = event("c", "gpu_memcpy", bytes=4096)
    columns = ("event_id", "size_bytes", "grid_count", "occupancy_ratio", "graph_node", "context", "wait_stream")
    tables = read(trace(kernel, copy, event("k", "kernel")))
    assert rows(tables["device_args"], *columns) == [
        (0, None, 24, 0.5, 8, 1, None),
        (1, 4096, None, None, None, None, None),
    ]


def test_memory_events_in_both_dialects() -> None:
    args = {
        "Bytes": -512,
        "Addr": 2**63 + 1,
        "Device Id": 0,
        "Device Type": 1,
        "Total Allocated": 9,
        "Total Reserved": 10,
    }
    instant = {**event("[memory]", "cpu_instant_event", **args), "ph": "i", "s": "t"}
    python = event("[memory]", "cpu_instant_event", dur=402, **{**args, "Bytes": 1024})
    bare = {"ph": "i", "name": "[memory]", "pid": 7, "tid": 7, "ts": 1, "args": args}
    oom = {**instant, "name": "[OutOfMemory]"}
    tables = read(trace(instant, python, bare, oom))
    columns = ("action", "size_bytes", "address", "device", "device_type", "allocated_bytes", "reserved_bytes")
    rest = (2**63 + 1, 0, 1, 9, 10)
    found = rows(tables["allocations"], *columns)
    assert sorted(found) == sorted(
        [("free", 512, *rest), ("alloc", 1024, *rest), ("free", 512, *rest), ("oom", 512, *rest)]
    )
    assert rows(tables["events"], "kind", "dur_ns") == [("instant", 0)] * 4


def test_durations() -> None:
    negative, missing, none = event(dur=-37), event(), event("lost")
    del missing["dur"]
    text = trace(negative, missing, {**none, "dur": "D"}).replace('"D"', "nan")
    tables = read(text)
    assert rows(tables["events"], "name", "dur_ns") == [("aten::mm", 0)]
    assert problems(tables) == {"negative_duration": 1, "non_finite_number": 1, "unparsed_value": 1}


def test_launches_without_device_work() -> None:
    launches = [event(name, "cuda_runtime") for name in ("cudaLaunchKernel", "hipExtModuleLaunchKernel", "cudaFree")]
    assert problems(read(trace(*launches))) == {"gpu_events_missing": 2}
    assert problems(read(trace(*launches, event("k", "kernel")))) == {}


def test_two_processes_with_operators() -> None:
    assert problems(read(trace(event(), {**event(), "pid": 8}))) == {"merged_processes": 2}


def test_the_gpu_in_use() -> None:
    devices = [{"id": i, "name": name, "totalGlobalMem": 100 + i, "numSms": 3} for i, name in enumerate("ABC")]
    tables = read(trace(event("k", "kernel", device=1), deviceProperties=devices))
    assert rows(tables["files"], "gpu", "gpu_memory_bytes", "gpu_count") == [("B", 101, 3)]
    assert ("gpu.sm_count", "3") in rows(tables["settings"], "key", "value")
    unknown = read(trace(event("k", "kernel", device=5), deviceProperties=devices))
    assert rows(unknown["files"], "gpu", "gpu_count") == [(None, 3)]


def test_header_rows() -> None:
    info = {"backend": "nccl", "rank": 1, "world_size": 2, "nccl_version": "2.21.5"}
    tables = read(trace(event(), with_stack=1, host_name="n1", distributedInfo=info))
    assert rows(tables["files"], "host", "backend", "world_size", "rank") == [("n1", "nccl", 2, 1)]
    assert {("profiler.with_stack", "1"), ("distributed.nccl_version", "2.21.5")} <= set(
        rows(tables["settings"], "key", "value")
    )


def test_two_documents_are_two_files() -> None:
    first = trace(event("a"), distributedInfo={"rank": 0})
    second = trace(event("b", **{"Sequence number": 1}), with_stack=1)
    tables = read(first + "\n" + second)
    assert rows(tables["files"], "file", "rank", "events_count") == [(0, 0, 1), (1, None, 1)]
    assert rows(tables["events"], "event_id", "file", "name") == [(0, 0, "a"), (1, 1, "b")]
    assert rows(tables["op_args"], "event_id") == [1]
    assert ("profiler.with_stack", -2) in rows(tables["settings"], "key", "rank")
    assert problems(tables) == {"several_documents": 2}


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schemaVersion": 1}', "[1, 2", '{"traceEvents"'])
def test_nothing_to_read(text: str) -> None:
    if text in ("[]", "[1, 2"):
        assert rows(read(text)["files"], "status") == ["unusable"]
    else:
        with pytest.raises(InputError):
            read(text)


def test_metadata_only() -> None:
    tables = read(trace({"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}))
    assert rows(tables["files"], "status", "events_count", "start_ns") == [("unusable", 0, None)]
    (said,) = tables["files"]["detail"].to_pylist()
    assert said.startswith("found no timed event; expected ") and "check that" in said
    assert problems(tables) == {"no_timed_events": 1}


@pytest.mark.parametrize(
    ("head", "yes"),
    [
        (b'\n {"schemaVersion": 1, "deviceProperties": [', True),
        (b'[{"name": "add", "ph": "X", "ts": 1', True),
        (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": [', False),
        (b"[[1.5, 2.5], [[0, 1]]]", False),
        (b"{}", False),
        (b"iteration 5 | loss 3", False),
    ],
)
def test_sniff(head: bytes, yes: bool) -> None:
    assert kineto.sniff(head, "x.json") is yes


def test_nanoseconds_in_place_of_microseconds() -> None:
    absolute = read(trace(event("k", "kernel", ts=1_712_195_495_505_583_125, dur=4000)))
    assert rows(absolute["events"], "ts_ns", "dur_ns") == [(1_712_195_495_505_583_125, 4000)]
    assert problems(absolute) == {"unit_mismatch": 1}
    home_made = {"displayTimeUnit": "ns", "traceEvents": [event("gemm", "kernel", ts=1_000_000, dur=900_000)]}
    assert "unit_mismatch" in problems(read(json.dumps(home_made)))
    kineto_file = {**home_made, "baseTimeNanoseconds": BASE}
    assert problems(read(json.dumps(kineto_file))) == {}, "displayTimeUnit is not a unit"
    short = {**home_made, "traceEvents": [event("gemm", "kernel", ts=1000, dur=900)]}
    assert problems(read(json.dumps(short))) == {"missing_base": 1}


def test_a_source_in_tiny_pieces() -> None:
    text = trace(*[event(str(i), ts=i) for i in range(50)])
    assert rows(read(text, piece=1)["events"], "ts_ns") == [BASE + 1000 * i for i in range(50)]


def test_the_reader_closes_over_no_path() -> None:
    assert kineto.read(Pieces(trace(event())))["files"]["path"].to_pylist() == ["trace.json"]


def test_a_writer_that_changes_its_habits_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "BLOCK_BYTES", 4096)
    found = [json.dumps(event(str(i), ts=i)) for i in range(300)]
    text = ",".join(found[:100]) + "," + ",\n  ".join(found[100:200]) + ", " + " , ".join(found[200:])
    tables = read(f'{{"baseTimeNanoseconds": 1, "traceEvents": [{text}]}}')
    assert sorted(rows(tables["events"], "name"), key=int) == [str(i) for i in range(300)]
    assert problems(tables) == {}


@pytest.mark.parametrize("block", [64, 1000, 4096, 1 << 20])
def test_old_spellings_in_every_block(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(kineto, "BLOCK_BYTES", block)
    found = [event("aten::mm", ts=i, **{"external id": i + 1, "Input dims": [[4, 4]]}) for i in range(200)]
    tables = read(trace(*found), piece=777)
    assert rows(tables["events"], "external_id") == list(range(1, 201))
    assert tables["op_args"].num_rows == 200


def test_text_that_looks_like_another_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "BLOCK_BYTES", 64)
    names = ["a", '}],"traceEvents":[{', "b"]
    tables = read(trace(*[event(name) for name in names]), piece=1)
    assert rows(tables["events"], "name") == names
    assert problems(tables) == {}


def test_a_cut_is_a_cut_wherever_it_falls() -> None:
    """Behind an inner list, inside a word or an escaped character; text of the event looks like another event."""
    nested = event("b", cat="cpu_op", x='},{"ph":"X"', y=[{"z": "\u00e9"}], w=None)
    text = json.dumps([event("a"), nested])
    for size in range(text.index('"b"'), len(text) - 1):
        tables = read(text[:size])
        assert rows(tables["events"], "name") == ["a"], size
        assert "truncated" in problems(tables), text[:size]


def test_phases_that_are_not_read_are_counted() -> None:
    tables = read(trace(event(), {**event(), "ph": "B"}, {**event(), "ph": "E"}, {"name": "no phase", "ts": 1}))
    assert rows(tables["files"], "events_count", "status") == [(1, "partial")]
    assert problems(tables) == {"unknown_category": 2, "damaged_event": 1}


def test_damage_costs_no_more_than_the_text_it_lies_in(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    decode = json.JSONDecoder.raw_decode

    def measured(self: json.JSONDecoder, s: str, idx: int = 0) -> tuple[object, int]:
        given.append(len(s))
        return decode(self, s, idx)

    events = [json.dumps(event(name=f"op{i}")) for i in range(4000)]
    events[10:3000:10] = ['{"ph": "X" "cat"]: }'] * 299
    monkeypatch.setattr(json.JSONDecoder, "raw_decode", measured)
    tables = read('{"traceEvents": [' + ", ".join(events) + "]}")
    assert tables["events"].num_rows == 4000 - 299
    assert sum(given) < 299 * 40_000, "each error counts the lines of all the text that it is given"
