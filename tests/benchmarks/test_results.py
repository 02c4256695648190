"""One file of results: every process's lines are there, and no moment shows a part of one."""

import json
import multiprocessing

from benchmarks.reproduce.results import add, read


def result(data, method, seed, **more):
    return {"data": data, "method": method, "seed": seed, **more}


def add_many(path, method, count):
    for seed in range(count):
        add(path, result("acm", method, seed, curve=[0.25] * 500))


def test_a_line_a_run_in_order_compact_and_the_last_word_counts(tmp_path):
    path = tmp_path / "folder" / "runs.jsonl"
    assert read(path) == {}
    add(path, result("dblp", "cp", 0, test=1.5))
    add(path, result("acm", "tensus", 10))
    add(path, result("acm", "tensus", 9))
    add(path, result("dblp", "cp", 0, test=2.5))
    assert path.read_text().splitlines() == [
        '{"data":"acm","method":"tensus","seed":9}',
        '{"data":"acm","method":"tensus","seed":10}',
        '{"data":"dblp","method":"cp","seed":0,"test":2.5}',
    ]
    assert read(path)["dblp", "cp", 0]["test"] == 2.5
    assert [file.name for file in path.parent.iterdir()] == ["runs.jsonl"]


def test_processes_add_at_once_and_a_reader_sees_whole_lines(tmp_path):
    path, count = tmp_path / "runs.jsonl", 10
    spawn = multiprocessing.get_context("fork")
    writers = [spawn.Process(target=add_many, args=(path, m, count)) for m in ("cp", "tensus")]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        assert len(read(path)) >= seen  # `read` would raise at half a line
        seen = len(read(path))
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(read(path)) == 2 * count


def test_a_kill_leaves_a_file_that_reads(tmp_path):
    path = tmp_path / "runs.jsonl"
    add(path, result("acm", "gcn", 0))
    writer = multiprocessing.get_context("fork").Process(target=add_many, args=(path, "cp", 1000))
    writer.start()
    while len(read(path)) < 5:
        pass
    writer.kill()
    writer.join()
    before = read(path)
    assert len(before) >= 5
    add(path, result("acm", "gcn", 1))  # the lock of the dead is free
    assert read(path).keys() == before.keys() | {("acm", "gcn", 1)}
    assert all(json.loads(line) for line in path.read_text().splitlines())
