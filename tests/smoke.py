"""What a wheel must do in an empty environment; `make dist` runs this there, away from the sources."""

import subprocess
import sys
from pathlib import Path

import torch

import tensus_tn
from tensus_tn import Dag, DagTensor, RelationGraph, propagate
from tensus_tn.data import planted
from tensus_tn.tasks import Config, make_task, run


def main() -> None:
    installed = Path(tensus_tn.__file__).resolve()
    assert Path(sys.prefix).resolve() in installed.parents, f"not the wheel: {installed}"
    assert tensus_tn.show_config()["backend"] == "native"

    tensor = DagTensor(Dag.complete(3), choices=3, rank=2)
    assert torch.isclose(tensor.to_dense().sum(), torch.tensor(1.0))
    assert tensor.top_k(1).exact

    edges = torch.tensor([[0, 1], [1, 2]])
    graph = RelationGraph.from_edge_index({"A": edges}, 3, identity=True)
    h = torch.randn(3, 1, 4)
    y = propagate(graph, h, torch.ones(2, 1, 1))
    torch.testing.assert_close(y, h + torch.cat([torch.zeros(1, 1, 4), h[:2]]))

    result = run(Config(epochs=1), make_task(planted(num_nodes=50)))
    assert 0 <= result.test["micro_f1"] <= 1
    command = Path(sys.executable).parent / "tensus-tn"
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.strip() == tensus_tn.__version__
    print("the wheel works")


if __name__ == "__main__":
    main()
