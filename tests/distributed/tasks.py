"""What the processes of the tests do together."""

import os
from dataclasses import replace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tensus_tn import Dag, RelationGraph, propagate_dag
from tensus_tn.data import planted
from tensus_tn.distributed import (
    DistributedGraph,
    Partition,
    Processes,
    global_mean,
    partition,
    sum_gradients,
)
from tensus_tn.distributed import handshake as handshakes
from tensus_tn.distributed.halo import Halo
from tensus_tn.nn import MetaGraphNet, TwoTowers
from tensus_tn.propagation.blocks import NeighborBlocks
from tensus_tn.tasks import Config, Trainer, build_model, make_task, run
from tests.tasks.problems import small_links

FEATURES = 5
#: What a graph can be like: options, and whether its edges have values.
KINDS = {
    "plain": ({}, False),
    "rows": ({"normalize": "row", "self_loops": True, "identity": True, "zero": True}, False),
    "sym": ({"normalize": "sym"}, False),
    "sym with loops": ({"normalize": "sym", "self_loops": True, "identity": True}, False),
    "folded": ({"normalize": {"A": "row", "B": None}, "self_loops": True}, True),
    "valued": ({"normalize": "sym", "self_loops": True, "zero": True}, True),
    "float64": ({"normalize": "row", "self_loops": True, "dtype": torch.float64}, True),
}
DAGS = {"complete": (Dag.complete(3), 2), "path": (Dag.path(3), 8), "link": (Dag.path(1), 1)}


def edges(seed, nodes=40, count=120, valued=False):
    """Two relations that are not symmetric, with duplicates, and nodes without edges."""
    generator = torch.Generator().manual_seed(seed)
    last = max(nodes - 4, 1)
    index = {
        name: torch.randint(last, (2, count if nodes else 0), generator=generator) for name in "AB"
    }
    weight = {
        name: torch.rand(e.shape[1], generator=generator).add(0.1) for name, e in index.items()
    }
    return index, weight if valued else {}


def own_edges(index, weight, part, rank):
    """The edges into the nodes of a part, and their values."""
    keep = {name: part.owner[e[1]] == rank for name, e in index.items()}
    return {k: index[k][:, keep[k]] for k in index}, {k: weight[k][keep[k]] for k in weight}


def numbers(graph, dag, rank, nodes, dtype, seed=7):
    """Features, what their results are multiplied by, and weights."""
    generator = torch.Generator().manual_seed(seed)
    size = {v: 1 if v in (dag.source, dag.sink) else rank for v in dag.nodes}

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    sums = torch.float64 if dtype == torch.float64 else torch.float32
    weights = {
        e: draw(graph.num_relations, size[e[0]], size[e[1]]).to(sums).requires_grad_()
        for e in dag.edges
    }
    return draw(nodes, 1, FEATURES), draw(nodes, 1, FEATURES), weights


def outcome(graph, dag, h, target, weights, **options):
    """The result and the gradients of features and weights."""
    h = h.clone().requires_grad_()
    y = propagate_dag(graph, dag, h, weights, **options)
    grads = torch.autograd.grad((y * target).sum(), [h, *weights.values()])
    return y.detach(), grads[0], torch.cat([g.flatten() for g in grads[1:]])


def parts_of(graph, size, method):
    """A partition: by a method, or one with empty parts."""
    if method == "lopsided":
        owner = torch.full((graph.num_nodes,), size - 1)
        owner[: graph.num_nodes // 3] = size // 2
        return Partition(owner, size, dict(graph.node_counts))
    return partition(graph, size, method=method)


def choices_of(how, dag):
    """None; one relation on one link; or one on every link, by turns."""
    if how == "turns":
        return {edge: ["AB"[k % 2]] for k, edge in enumerate(dag.edges)}
    return {dag.edges[0]: ["A"]} if how else None


def compare(kind, dag_name, method, source, choices, dtype=None, rows=None, support=None):
    """One process against all: (result equal, gradient equal, error of the weights' gradient)."""
    options, valued = KINDS[kind]
    dag, rank = DAGS[dag_name]
    index, weight = edges(3, valued=valued)
    whole = RelationGraph.from_edge_index(index, 40, edge_weight=weight, **options)
    processes = Processes.of(None)
    part = parts_of(whole, processes.size, method)
    if source == "graph":
        graph = DistributedGraph.from_graph(whole, part)
    else:
        mine, values = own_edges(index, weight, part, processes.rank)
        graph = DistributedGraph.from_edge_index(mine, part, edge_weight=values, **options)
    graph.verify()
    rel = whole.forward.seg_rel[whole.forward.edge_seg()].long()  # passes are planned by these
    assert torch.equal(graph.edges_by_relation, rel.bincount(minlength=whole.num_relations))
    h, target, weights = numbers(whole, dag, rank, 40, dtype or whole.dtype)
    chosen = choices_of(choices, dag)
    wanted, counts = _mask(rows), _mask(support)
    target = target * wanted[:, None, None]
    zeroed = h * counts[:, None, None]
    expected = outcome(whole, dag, zeroed, target, weights, choices=chosen)
    mine = wanted[graph.own].nonzero().flatten()
    for _ in range(2):  # the second time by the plan that was kept
        given = outcome(
            graph,
            dag,
            graph.scatter(h if processes.rank == 0 else None),
            target[graph.own][mine],
            weights,
            choices=chosen,
            rows=None if rows is None else mine,
            support=None if support is None else counts[graph.own],
        )
    sink = torch.zeros_like(h)[graph.own].index_copy(0, mine, given[0])
    y, dh, dw = graph.gather(sink), graph.gather(given[1]), processes.sum(given[2])
    masks = wanted[:, None, None], counts[:, None, None]
    expected = (expected[0] * masks[0], expected[1] * masks[1], expected[2])
    error = float((dw - expected[2]).abs().max() / expected[2].abs().max().clamp(min=1e-30))
    if processes.rank:
        return None
    return torch.equal(y, expected[0]), torch.equal(dh, expected[1]), error


def _mask(rows):
    """Which of the 40 nodes are among the rows; all, if None."""
    ids = torch.arange(40) if rows is None else torch.tensor(rows, dtype=torch.int64)
    return torch.zeros(40, dtype=torch.bool).index_fill(0, ids, True)


def traffic(dag_name, method, choices=None, rows=False, support=False):
    """The bytes that a pass forward and backward took, and the bound for all rows and relations."""
    dag, rank = DAGS[dag_name]
    index, _ = edges(3)
    whole = RelationGraph.from_edge_index(index, 40, normalize="row", self_loops=True)
    graph = DistributedGraph.from_graph(whole, parts_of(whole, dist.get_world_size(), method))
    h, target, weights = numbers(whole, dag, rank, 40, torch.float32)
    wanted = torch.arange(min(graph.num_nodes, 1)) if rows else torch.arange(graph.num_nodes)
    outcome(
        graph,
        dag,
        h[graph.own],
        target[graph.own][wanted],
        weights,
        choices=choices_of(choices, dag),
        rows=wanted if rows else None,
        support=torch.arange(min(graph.num_nodes, 1)) if support else None,
    )
    inner = rank * (len(dag.nodes) - 2)
    width = (1 + inner) * FEATURES
    bound = (len(graph.forward.halo) + len(graph.backward.halo)) * width * 4
    return graph.bytes_received, bound, graph.bytes_per_pass(FEATURES), len(graph.forward.halo)


def kept(dag_name):
    """The bytes that are kept for a backward pass, those of the own rows, and the rows of the halo."""
    dag, rank = DAGS[dag_name]
    index, _ = edges(3)
    whole = RelationGraph.from_edge_index(index, 40)
    graph = DistributedGraph.from_graph(whole, parts_of(whole, dist.get_world_size(), "range"))
    h, _, weights = numbers(whole, dag, rank, 40, torch.float32)
    y = propagate_dag(graph, dag, h[graph.own].clone().requires_grad_(), weights)
    _, *states = y.grad_fn.saved_tensors
    own = graph.num_nodes * (1 + rank * (len(dag.nodes) - 2)) * FEATURES * 4
    return sum(state.untyped_storage().nbytes() for state in states), own, len(graph.forward.halo)


def typed():
    """A network over typed nodes, one type empty: (scores, gradients) of one process and of all."""
    counts = {"author": 12, "paper": 20, "venue": 0}
    generator = torch.Generator().manual_seed(1)
    index = {
        ("paper", "by", "author"): torch.stack(
            [torch.randint(n, (50,), generator=generator) for n in (20, 12)]
        ),
        ("author", "of", "paper"): torch.stack(
            [torch.randint(n, (50,), generator=generator) for n in (12, 20)]
        ),
        ("paper", "in", "venue"): torch.zeros(2, 0, dtype=torch.int64),
    }
    torch.manual_seed(0)
    net = MetaGraphNet(
        dict.fromkeys(counts, 3), 8, 2, (list(counts), list(index)), "author", dropout=0.0, rank=2
    )
    net.eval()
    whole = net.layers[0].relation_graph(index, counts)
    graph = DistributedGraph.from_graph(whole, partition(whole, dist.get_world_size()))
    x = torch.randn(32, 3, generator=generator)
    labelled = torch.tensor([0, 3, 11])  # some parts have none of them

    def scores(graph, ids, rows=None):
        features = {kind: x[ids][here] for kind, here in graph.node_types.items()}
        return net(features, graph, rows=rows)

    every = torch.arange(32)
    expected = scores(whole, every)
    expected[labelled].square().sum().backward()
    grads = [p.grad for p in net.parameters()]
    net.zero_grad()
    given = scores(graph, graph.own)
    mine = graph.own[graph.node_types["author"]]
    given[torch.isin(mine, labelled)].square().sum().backward()
    shares = [graph.processes.sum(p.grad) for p in net.parameters()]
    error = max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))
        for a, b in zip(shares, grads, strict=True)
        if b.numel()
    )
    some = torch.arange(len(mine))[graph.processes.rank :]
    same = torch.equal(scores(graph, graph.own, some), expected[mine][some])
    return same and torch.equal(given, expected[mine]), error


def round_trip(folder, mmap):
    """A graph through files: the same results, and parts of another partition refused."""
    index, _ = edges(3)
    whole = RelationGraph.from_edge_index(index, 40, normalize="row", self_loops=True)
    graph = DistributedGraph.from_graph(whole, partition(whole, dist.get_world_size()))
    graph.save(folder)
    again = DistributedGraph.load(folder, mmap=mmap)
    again.verify()
    dag, rank = DAGS["path"]
    h, target, weights = numbers(whole, dag, rank, 40, torch.float32)
    arguments = (dag, h[graph.own], target[graph.own], weights)
    pairs = zip(outcome(graph, *arguments), outcome(again, *arguments), strict=True)
    return all(torch.equal(a, b) for a, b in pairs) and repr(graph) == repr(again)


def load(folder):
    return repr(DistributedGraph.load(folder))


def there_and_back():
    """Features of many types and shapes, handed out and brought together on another process."""
    processes = Processes.of(None)
    owner = torch.tensor([2, 0, 0, 2, 1, 0]) % processes.size
    index = {"A": torch.zeros(2, 0, dtype=torch.int64)}
    part = Partition(owner, processes.size, {"node": 6})
    graph = DistributedGraph.from_edge_index(index, part)
    last = processes.size - 1
    for dtype, shape in ((torch.float32, (6, 2)), (torch.int64, (6,)), (torch.bfloat16, (6, 1, 3))):
        x = torch.arange(36).reshape(6, -1)[:, : max(1, shape[-1])].to(dtype)
        x = x[:, 0] if len(shape) == 1 else x[:, : torch.Size(shape[1:]).numel()].reshape(shape)
        rows = graph.scatter(x if processes.rank == last else None, source=last)
        assert torch.equal(rows, x[graph.own])
        back = graph.gather(rows, target=0)
        assert (back is None) == (processes.rank != 0)
        assert back is None or torch.equal(back, x)
    return True


def wrong_features():
    processes = Processes.of(None)
    part = Partition(torch.arange(4) % processes.size, processes.size, {"node": 4})
    graph = DistributedGraph.from_edge_index({}, part, identity=True)
    graph.scatter(torch.zeros(3, 2) if processes.rank == 0 else None)


def disagree():
    handshakes.handshake(Processes.of(None), {"rank": 2 + dist.get_rank(), "links": "same"})


def other_partition():
    index, _ = edges(3)
    whole = RelationGraph.from_edge_index(index, 40)
    owner = (torch.arange(40) + dist.get_rank()) % dist.get_world_size()
    DistributedGraph.from_graph(whole, Partition(owner, dist.get_world_size(), {"node": 40}))


def other_call():
    """The last process asks for other features than the first."""
    index, _ = edges(3)
    whole = RelationGraph.from_edge_index(index, 40)
    graph = DistributedGraph.from_graph(whole, partition(whole, dist.get_world_size()))
    width = 5 if dist.get_rank() == 0 else 6
    h = torch.ones(graph.num_nodes, width)
    propagate_dag(graph, Dag.path(1), h, {(0, 1): torch.ones(2, 1, 1)})


def other_rows():
    """The last process has rows of another type."""
    part = Partition(torch.arange(4) % dist.get_world_size(), dist.get_world_size(), {"node": 4})
    graph = DistributedGraph.from_edge_index({}, part, identity=True)
    graph.gather(torch.ones(2, 3, dtype=[torch.float32, torch.int64][dist.get_rank()]))


def other_groups():
    """The last process has weights for one more group, which has no columns."""
    index, _ = edges(3)
    whole = RelationGraph.from_edge_index(index, 40)
    graph = DistributedGraph.from_graph(whole, partition(whole, dist.get_world_size()))
    w = torch.ones(2 + dist.get_rank(), 2, 1, 1)
    propagate_dag(
        graph, Dag.path(1), torch.ones(graph.num_nodes, 4), {(0, 1): w}, groups=[0, 0, 1, 1]
    )


def other_parameters():
    """The last process has one more."""
    sum_gradients([torch.nn.Parameter(torch.ones(2)) for _ in range(1 + dist.get_rank())])


def other_graph(folder):
    """The part of the last process is of a graph that lacks an edge of each relation."""
    processes = Processes.of(None)
    index, _ = edges(3)
    for place, count in ((folder, 120), (folder / "other", 119)):
        whole = RelationGraph.from_edge_index({k: e[:, :count] for k, e in index.items()}, 40)
        DistributedGraph.from_graph(whole, partition(whole, processes.size, method="range")).save(
            place
        )
    if processes.rank:
        name = f"part-{processes.rank}-of-{processes.size}.npz"
        os.replace(folder / "other" / name, folder / name)
    DistributedGraph.load(folder)


def mistake(what, folder):
    """The last process gives something that it must not; then all work together again."""
    processes = Processes.of(None)
    wrong = processes.rank == processes.size - 1
    index, _ = edges(3)
    whole = RelationGraph.from_edge_index(index, 40, identity=True, zero=True)
    part = partition(whole, processes.size)
    graph = DistributedGraph.from_graph(whole, part)
    dag, weights = Dag.path(2), {e: torch.ones(4, 1, 1) for e in Dag.path(2).edges}
    h, rows = torch.ones(graph.num_nodes, 4), torch.tensor([0])
    kinds = dict.fromkeys(index, ("node", "node"))
    net = MetaGraphNet({"node": 4}, 4, 2, kinds, "node", dag=dag)
    try:
        if what == "rows":
            propagate_dag(graph, dag, h, weights, rows=rows + 40 if wrong else rows)
        elif what == "choices":
            propagate_dag(graph, dag, h, weights, choices={(0, 1): ["C" if wrong else "A"]})
        elif what == "type":
            propagate_dag(graph, dag, h.double() if wrong else h, weights)
        elif what == "features":
            net({"node": h * float("nan") if wrong else h}, graph)
        elif what == "node":
            net({"node": h}, graph, rows=rows + 40 if wrong else rows)
        elif what == "draws":
            drawn = [conv.sample() for conv in net.layers]
            net({"node": h}, graph, draw=[] if wrong else drawn)
        elif what == "heads":
            [[drawn]] = [conv.sample() for conv in net.layers]
            net({"node": h}, graph, draw=[[drawn, drawn] if wrong else [drawn]])
        elif what == "links":
            [[drawn]] = [conv.sample() for conv in net.layers]
            drawn = replace(drawn, choice={}) if wrong else drawn
            net({"node": h}, graph, draw=[[drawn]])
        elif what == "pairs":
            TwoTowers(net, net)({"node": h}, graph, torch.tensor([[0], [40 if wrong else 0]]))
        elif what == "edges":
            mine = {
                name: e + 40 if wrong else e for name, e in part.rows(index, processes.rank).items()
            }
            DistributedGraph.from_edge_index(mine, part)
        elif what == "values":
            values = {
                name: torch.full((e.shape[1],), 1e300 if wrong else 1.0, dtype=torch.float64)
                for name, e in index.items()
            }
            own, values = own_edges(index, values, part, processes.rank)
            DistributedGraph.from_edge_index(own, part, edge_weight=values, dtype=torch.float32)
        elif what == "file":
            graph.save(folder)
            if wrong:
                os.remove(folder / f"part-{processes.rank}-of-{processes.size}.npz")
            DistributedGraph.load(folder)
        elif what == "graph":
            DistributedGraph.from_graph(None if wrong else whole, part)
        elif what == "folder":
            (folder / "file").touch()
            graph.save(folder / "file" if wrong else folder)
        elif what in ("column", "halo"):
            broken = (
                graph.forward.boundary.segments.col if what == "column" else graph.forward.halo.ids
            )
            broken[0] = 99 if wrong else broken[0]
            try:
                graph.verify()
            finally:
                graph = DistributedGraph.from_graph(whole, part)
        elif what == "scatter":
            graph.scatter(torch.ones(39, 4) if wrong else None, source=processes.size - 1)
        elif what == "nothing":
            graph.scatter(None, source=processes.size - 1)
        elif what == "source":
            graph.scatter(torch.ones(40, 4), source=5 if wrong else 0)
        elif what == "gather":
            graph.gather(h[1:] if wrong else h)
        elif what == "sparse":
            graph.gather(h.to_sparse() if wrong else h)
        elif what == "target":
            graph.gather(h, target=-1 if wrong else 0)
        elif what == "losses":
            global_mean(h.long() if wrong else h)
        elif what == "gradients":
            w = torch.nn.Parameter(torch.ones(3, 2))
            (F.embedding(torch.tensor([1]), w, sparse=wrong)).sum().backward()
            sum_gradients([w])
    except handshakes.DisagreementError as error:
        assert propagate_dag(graph, dag, h, weights).shape == (graph.num_nodes, 1, 4)
        return str(error)


def foreign_edge():
    index, _ = edges(3)
    part = Partition(torch.arange(40) % 2, 2, {"node": 40})
    DistributedGraph.from_edge_index(part.rows(index, 0), part)


def halo_of(foreign):
    """Ask for `foreign[rank]` nodes; then a state of which only the own rows are known."""
    processes = Processes.of(None)
    owner = torch.arange(8) % processes.size
    own = (owner == processes.rank).nonzero().flatten()
    halo = Halo.of(torch.tensor(foreign[processes.rank], dtype=torch.int64), owner, own, processes)
    exchange = halo.start(own.float().view(-1, 1, 1).expand(-1, 1, 2).contiguous())
    rows = exchange.wait()
    assert exchange.wait() is rows  # a second time is of no consequence
    assert torch.equal(rows[:, 0, 1], halo.ids.float())
    return halo.received.bytes, halo.give, halo.receive


def talk():
    """The words that processes exchange."""
    processes = Processes.of(None)
    rank, size = processes.rank, processes.size
    rows = torch.arange(size) + 10 * rank
    came, counts = processes.exchange_lists(rows, [1] * size)
    assert came.tolist() == [10 * other + rank for other in range(size)]
    assert counts == [1] * size
    assert processes.sum(torch.tensor(rank)).item() == size * (size - 1) // 2
    assert processes.extremes(rank) == (0, size - 1)
    assert processes.gather(rank) == list(range(size))
    return repr(processes)


def leave_early(how):
    """The last process dies, or hangs; the others wait for it."""
    processes = Processes.of(None)
    if processes.rank == processes.size - 1:
        if how == "die":
            os._exit(1)
        import time

        time.sleep(60)
    processes.sum(torch.ones(1))


def uneven():
    """Process r has r losses of 1 .. ; parameters that some, all or none have a gradient of."""
    rank = dist.get_rank()
    w = [torch.nn.Parameter(torch.zeros(n)) for n in (2, 1, 1)]
    losses = torch.arange(1.0, rank + 1) + 0 * w[1]
    mean = Processes.of(None).sum(global_mean(losses).detach()) / dist.get_world_size()
    (w[1].sum()).backward()
    if rank:
        (rank * w[0][1]).backward()
    sum_gradients(w)
    return float(mean), [None if p.grad is None else p.grad.tolist() for p in w]


def over_blocks(how, draw):
    """The largest differences of losses and parameters between two processes and one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = planted(num_nodes=60, seed=1)
    task = make_task(data)
    start = data.slices[task.target].start
    nodes = task.nodes["train"][:21]  # batches of 8, 8 and 5

    def network():
        torch.manual_seed(0)
        return build_model(Config(steps=2, dropout=0.0, hidden=8), task.spec)

    def batches(rank, world):
        generator = torch.Generator().manual_seed(5)
        blocks = NeighborBlocks(
            task.graph, nodes + start, [-1, -1], 8 // world, True, generator, rank, world
        )
        for block in blocks:
            seeds = block.nodes[block.rows] - start
            x, before = {}, 0
            for kind, ids in data.slices.items():
                here = block.nodes[(block.nodes >= ids.start) & (block.nodes < ids.stop)]
                x[kind] = task.x[kind][here - ids.start]
                before += len(here) if ids.stop <= start else 0
            rows = block.rows - before
            yield x, block.graph, rows, task.labels[seeds]

    def step(model, net, batch, generator, mean):
        x, graph, rows, labels = batch
        drawn = {"draw": net.sample(generator=generator)} if draw else {}
        losses = F.cross_entropy(model(x, graph, rows=rows, **drawn), labels, reduction="none")
        loss = mean(losses)
        loss.backward()
        return loss.detach()

    alone, together = network(), network()
    if how == "ddp":
        model = DistributedDataParallel(together)
    else:
        model = fully_shard(together, mesh=init_device_mesh("cpu", (size,)))
    optimizers = [torch.optim.SGD(m.parameters(), 0.5) for m in (alone, model)]
    generators = [torch.Generator().manual_seed(3) for _ in optimizers]
    difference = 0.0
    for whole, mine in zip(batches(0, 1), batches(rank, size), strict=True):
        for optimizer in optimizers:
            optimizer.zero_grad()
        expected = step(alone, alone, whole, generators[0], torch.mean)
        given = step(model, together, mine, generators[1], global_mean)
        given = Processes.of(None).sum(given) / size
        difference = max(difference, abs(float(given - expected)))
        for optimizer in optimizers:
            optimizer.step()
    pairs = zip(together.parameters(), alone.parameters(), strict=True)
    apart = [((a.full_tensor() if how == "fsdp" else a) - b).abs().max() for a, b in pairs]
    return difference, float(max(apart))


def train(out, pairs=False, **values):
    """A run of all processes together: the losses of every epoch, and what stands in its folder."""
    config = Config(
        epochs=6, hidden=8, steps=2, progress=False, checkpoint_every=2, out=str(out)
    ).with_values(values)
    task = make_task(small_links() if pairs else planted(num_nodes=60, seed=1))
    result = run(config, task)
    return [(r["train_loss"], r["val_loss"]) for r in result.history]


def train_otherwise(out):
    """Processes with different settings."""
    return train(out, lr=0.1 * (1 + dist.get_rank()))


def shares():
    """What each process trains on."""
    trainer = Trainer(
        torch.nn.Linear(1, 1), make_task(planted(num_nodes=60, seed=1)), Config(progress=False)
    )
    return trainer._share.nodes["train"].tolist(), trainer.task.nodes["train"].tolist()
