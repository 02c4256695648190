"""A small folder in the format of the Heterogeneous Graph Benchmark."""

import json

import numpy as np

PAPERS, AUTHORS, VENUES = 20, 6, 2
INFO = {
    "node.dat": {"node type": {"0": "paper", "1": "author", "2": "venue"}},
    "link.dat": {
        "link type": {
            "0": {"start": 0, "end": 1, "meaning": "paper-author"},
            "1": {"start": 1, "end": 0, "meaning": "author-paper"},
            "2": {"start": 0, "end": 2, "meaning": "paper-venue"},
            "3": {"start": 0, "end": 0, "meaning": "paper-cite-paper"},
        }
    },
    "label.dat": {"node type": {"0": {"0": "database", "1": "network", "2": "mining"}}},
}


def write_hgb(folder, *, several=False):
    """A folder in the benchmark's format, as real ones are: odd names, types without features."""
    random = np.random.default_rng(0)
    features = random.integers(0, 2, (PAPERS, 5)) * 0.5
    names = ["", "a b", "#1", '"quoted', "Gödel, Escher", "x_y"]
    nodes = [f"{i}\t{names[i % 6]}\t0\t{','.join(map(str, row))}" for i, row in enumerate(features)]
    nodes += [f"{PAPERS + i}\tauthor {i}\t1\t{i}.0,-1e-3" for i in range(AUTHORS)]
    nodes += [f"{PAPERS + AUTHORS + i}\tvenue\t2" for i in range(VENUES)]
    wrote = [(i, PAPERS + i % AUTHORS) for i in range(PAPERS)]
    links = [f"{i}\t{j}\t0\t1.0" for i, j in wrote] + [f"{j}\t{i}\t1\t1.0" for i, j in wrote]
    links += [f"{i}\t{PAPERS + AUTHORS + i % VENUES}\t2\t1.0" for i in range(PAPERS)]
    links += [f"{i}\t{i + 1}\t3\t1.0" for i in range(PAPERS - 1)]
    several_of = ["0", "1,2", "2", "0,1,2"]
    label = [several_of[i % 4] if several else str(i % 3) for i in range(PAPERS)]
    lines = [f"{i}\t{names[i % 6]}\t0\t{label[i]}" for i in range(PAPERS)]
    contents = {
        "node.dat": nodes,
        "link.dat": links,
        "label.dat": lines[:10],
        "label.dat.test": lines[10:],
        "info.dat": [json.dumps(INFO)],
        "meta.dat": ["not read"],
    }
    folder.mkdir(exist_ok=True)
    for name, text in contents.items():
        (folder / name).write_text("\n".join(text) + "\n", encoding="utf-8")
    return folder
