"""Only the rows that training needs: this library, and PyTorch on PyG's k-hop subgraph.

    python -m benchmarks.propagate.rows

The training nodes of each real graph, over a complete DAG whose links into the sink use the relations
that reach the target type, as DiffMG's do. All contenders compute the same rows and gradients; those in
PyTorch take every relation on every link, with weights of zero where a link has no choice, at the nodes
that k hops reach or at all.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.utils import k_hop_subgraph

from benchmarks.propagate import graphs
from benchmarks.propagate.measure import errors, inputs
from benchmarks.propagate.peers import PEERS, make_run
from benchmarks.timing import format_time, keep_freed_memory, machine_facts, measure
from tensus_tn import Dag, RelationGraph, propagate_dag

ROOT = Path(__file__).parents[2]
LINKS = 4
BURST = 0.05  # seconds
PEER_TITLES = ("sparse reduce mix first", "embedding_bag segments, loops folded")
ROWS, WHOLE = "tensus_tn, rows=", "tensus_tn, all rows, then select"
Run = Callable[[Tensor, dict], Tensor]


def run_case(name: str, seconds: float) -> dict[str, Any]:
    """Time all contenders, forward and backward, after a comparison of their results."""
    problem, rows = graphs.load(name), training_rows(name)
    dag = Dag.complete(LINKS)
    h, weights, grad = inputs(problem, dag, rank=2, features=64, ends=1)
    grad = grad[: len(rows)]
    choices = reaching_choices(problem, dag, rows)
    names = problem.graph.relation_names
    with torch.no_grad():  # the same numbers for peers that know no choices
        for edge, w in weights.items():
            w[[i for i, name in enumerate(names) if name not in choices[edge]]] = 0
    plan = problem.graph.plan_rows(dag, rows, choices)
    runs: dict[str, Run] = {
        ROWS: lambda h, w: propagate_dag(problem.graph, dag, h, w, choices=choices, rows=plan),
        WHOLE: lambda h, w: propagate_dag(problem.graph, dag, h, w, choices=choices)[rows],
    }
    part, nodes, place = k_hop(problem, rows)
    for peer in (peer for peer in PEERS if peer.title in PEER_TITLES):
        whole_run, part_run = make_run(peer, problem, dag), make_run(peer, part, dag)
        runs[f"{peer.title}, all rows"] = lambda h, w, run=whole_run: run(h, w)[rows]
        runs[f"{peer.title}, PyG's k-hop subgraph"] = lambda h, w, run=part_run: run(h[nodes], w)[
            place
        ]

    def step(run: Run) -> dict[str, Tensor]:
        y = run(h, weights)
        dh, *_ = torch.autograd.grad(y, [h, *weights.values()], grad)
        return {"y": y.detach(), "dh": dh}

    right = step(runs[WHOLE])
    for title, run in runs.items():
        assert max(errors(step(run), right).values()) < 1e-4, title
    # In pairs, as in the other tables: after a slow peer, nothing of ours is in the caches. And each
    # several times in a row, as in training: what is left out does not push out what comes next.
    peers = [title for title in runs if title != ROWS]
    pairs = {
        title: measure(
            {each: lambda each=each: step(runs[each]) for each in (ROWS, title)},
            seconds=seconds / len(peers),
            least_time=BURST,
        )
        for title in peers
    }
    both = {ROWS: {**asdict(pairs[WHOLE][ROWS]), "ratio": 1.0}}
    for title, times in pairs.items():
        both[title] = {
            **asdict(times[title]),
            "ratio": times[title].median / times[ROWS].median,
        }
    return {
        "graph": name,
        "rows": len(rows),
        "needed": [len(needed) for needed in plan.needed],
        "k-hop nodes": len(nodes),
        "threads": torch.get_num_threads(),
        "both": both,
    }


def training_rows(name: str) -> Tensor:
    with np.load(graphs.DATA / f"{graphs.REAL[name]}.npz", allow_pickle=False) as data:
        return torch.from_numpy(data["train_idx"].astype(np.int64))


def reaching_choices(problem: graphs.Problem, dag: Dag, rows: Tensor) -> dict:
    """All relations, but into the sink only those that lead to one of the rows from elsewhere."""
    names = list(problem.graph.relation_names)
    reaching = names[problem.num_sparse :]
    for name, matrix in zip(names, problem.matrices, strict=False):
        if (np.diff(matrix.indptr)[rows.numpy()] > 1).any():  # more than the self-loop
            reaching.append(name)
    return {(j, k): reaching if k == dag.sink else names for j, k in dag.edges}


def k_hop(problem: graphs.Problem, rows: Tensor) -> tuple[graphs.Problem, Tensor, Tensor]:
    """PyG's subgraph of all nodes within k hops of the rows, its nodes, and the rows among them."""
    union = sum(abs(m) for m in problem.matrices).tocoo()
    edges = torch.from_numpy(np.stack([union.col, union.row]).astype(np.int64))
    nodes, _, place, _ = k_hop_subgraph(
        rows, LINKS, edges, relabel_nodes=True, num_nodes=problem.graph.num_nodes
    )
    keep = nodes.numpy()
    names = problem.graph.relation_names
    matrices = {
        name: sp.csr_array(m[keep][:, keep])
        for name, m in zip(names, problem.matrices, strict=False)
    }
    graph = RelationGraph.from_scipy(
        matrices, identity=problem.has_identity, zero="zero" in names, dtype=torch.float32
    )
    return graphs.Problem(f"{problem.name}, k-hop", graph), nodes, place


def table(cases: list[dict[str, Any]]) -> str:
    """Markdown: the time of every contender, and how many times that of `rows=` in turn with it."""
    titles = list(cases[0]["both"])
    lines = [
        "| forward and backward | " + " | ".join(case["graph"] for case in cases) + " |",
        "| --- " * (len(cases) + 1) + "|",
        "| rows that the states need | "
        + " | ".join(", ".join(map(str, case["needed"])) for case in cases)
        + " |",
        "| nodes within k hops | " + " | ".join(str(case["k-hop nodes"]) for case in cases) + " |",
    ]
    for title in titles:
        cells = []
        for case in cases:
            time = case["both"][title]
            cells.append(f"{format_time(time['median'])} ({time['ratio']:.1f}x)")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="*", default=["dblp", "acm", "imdb"])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each graph")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/rows.json")
    options = parser.parse_args()
    keep_freed_memory()
    cases = [run_case(name, options.seconds) for name in options.graphs]
    stored = {"machine": machine_facts(("tensus_tn", "torch_geometric")), "cases": cases}
    options.output.write_text(json.dumps(stored, separators=(",", ":")) + "\n")
    print(table(cases))


if __name__ == "__main__":
    main()
