"""Training and filtered ranking, one line of JSON a run; a run that is there is not run again.

One that was stopped goes on from its last epoch; its processor time is then not known, its seconds are.
"""

import json
import resource
import time
import warnings
from pathlib import Path

import torch

from tensus_tn.rules import RuleModel

METHODS = {
    "TENSUS": {},
    "CP": {"ties": "global"},
    "softmax": {"weights": "softmax"},
    "softmax CP": {"weights": "softmax", "ties": "global"},
    "without popularity": {"popularity": False},
}
# The same model, trained otherwise.
TRAINING = {"batches of 500": {"batch": 500}}
# What others found good on these graphs: an extra row, while all other rows are defaults that adapt.
PRESETS = {
    "umls": {"steps": 2, "rank": 4},
    "family": {"steps": 3, "rank": 3},
    "wn18rr": {"steps": 4, "rank": 3},
    "fb15k237": {"steps": 3, "rank": 3, "scaling": "sqrt"},
}


def key(row):
    return tuple(row[name] for name in ("data", "method", "asked_steps", "asked_rank", "seed"))


def read(out):
    path = Path(out)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def options(name, method, steps, rank):
    chosen = PRESETS[name] if method == "preset" else METHODS.get(method, {})
    given = {"steps": steps, "rank": rank}
    return chosen | {k: v for k, v in given.items() if v is not None}


def checkpoint_of(asked, out):
    name = "-".join(str(value).replace(" ", "") for value in asked.values())
    return Path(out).parent / "checkpoints" / f"{name}.pt"


def run(graph, name, method, seed, out, steps=None, rank=None, threads=1):
    asked = {"data": name, "method": method, "asked_steps": steps, "asked_rank": rank, "seed": seed}
    if key(asked) in map(key, read(out)):
        return
    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RuleModel(graph, seed=seed, **options(name, method, steps, rank))
    checkpoint = checkpoint_of(asked, out)
    resumed = checkpoint.exists()
    start = time.process_time()
    report = model.fit(
        seed=seed, progress=False, checkpoint=checkpoint, resume=True, **TRAINING.get(method, {})
    )
    trained = time.process_time() - start
    start = time.process_time()
    test = model.rank(graph.test)
    row = asked | {
        "steps": len(model.dag.edges), "rank": max(model.structure.ranks, default=1),
        "parameters": model.num_parameters, "threads": threads,
        "seconds": report.seconds, "cpu_seconds": None if resumed else trained,
        "test_cpu_seconds": time.process_time() - start,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "best_epoch": report.best_epoch, "epochs": len(report.history),
        "history": [round(record["valid_mrr"], 5) for record in report.history],
        "valid": model.rank(graph.valid).metrics(), "test": test.to_dict(),
    }  # fmt: skip
    found = f"valid {row['valid']['mrr']:.4f} test {row['test']['mrr']:.4f}"
    print(name, method, row["steps"], row["rank"], seed, found, f"{trained:.0f} s", flush=True)
    with open(out, "a") as file:
        file.write(json.dumps(row) + "\n")
    checkpoint.unlink()
