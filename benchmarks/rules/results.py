"""Training and filtered ranking, one line of JSON a run; a run that is there is not run again."""

import json
import time
import warnings
from pathlib import Path

import torch

from tensus_tn.rules import RuleModel

METHODS = {
    "TENSUS": {},
    "CP": {"ties": "global"},
    "rank 1": {"rank": 1},
    "rank 2": {"rank": 2},
    "softmax": {"weights": "softmax"},
    "without popularity": {"popularity": False},
    "steps 2": {"steps": 2},
}


def done(out):
    path = Path(out)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["data"], row["method"], row["seed"]) for row in rows}


def run(graph, name, method, seed, out):
    if (name, method, seed) in done(out):
        return
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RuleModel(graph, seed=seed, **METHODS[method])
    start = time.process_time()
    report = model.fit(seed=seed, progress=False)
    trained = time.process_time() - start
    row = {
        "data": name, "method": method, "seed": seed, "steps": len(model.dag.edges),
        "parameters": model.num_parameters, "cpu_seconds": trained,
        "best_epoch": report.best_epoch, "valid": model.rank(graph.valid).metrics(),
        "test": model.rank(graph.test).to_dict(),
    }  # fmt: skip
    print(
        name,
        method,
        seed,
        f"valid {row['valid']['mrr']:.4f} test {row['test']['mrr']:.4f}",
        flush=True,
    )
    with open(out, "a") as file:
        file.write(json.dumps(row) + "\n")
