"""Complete a tensor: a function of four variables from a tenth of its values.

The price of an option, say, on a grid of 8^4 points, of which a few were computed. A tensor train is
fitted to these, and compared with all the others.
"""

from __future__ import annotations

import torch

from tensus_tn import Dag, complete


def main() -> tuple[float, float]:
    x = torch.linspace(0.2, 1, 8, dtype=torch.float64)
    a, b, c, d = torch.meshgrid(*[x] * 4, indexing="ij")
    truth = torch.exp(-a * b) * torch.cos(b + c) + c * d
    seen = torch.rand(truth.shape, generator=torch.Generator().manual_seed(0)) < 0.1
    network, report = complete(
        seen.nonzero(), truth[seen], Dag.path(4), choices=8, rank=3, restarts=2
    )
    rest = network.to_dense().detach()[~seen] - truth[~seen]
    error = (rest.norm() / truth[~seen].norm()).item()
    print(f"{int(seen.sum())} of {truth.numel()} values, {network.num_parameters} parameters")
    print(report)
    print(f"relative error at the values that were not seen: {error:.1e}")
    return report.error, error


if __name__ == "__main__":
    main()
