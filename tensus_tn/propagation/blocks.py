"""NeighborBlocks: a large graph in small pieces, each what a batch of nodes depends on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from tensus_tn._arguments import check_size
from tensus_tn.dag import Dag, Edge
from tensus_tn.propagation.assembly import GraphOptions
from tensus_tn.propagation.node_ids import RelationKey, relation_name, type_slices
from tensus_tn.propagation.relation_graph import RelationGraph
from tensus_tn.propagation.rows import RowPlan, as_ids
from tensus_tn.propagation.segments import Segments

if TYPE_CHECKING:
    from typing_extensions import Unpack

FanOut = Sequence[int] | Mapping[RelationKey, Sequence[int]]
Seeds = Tensor | str | tuple[str, Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """A part of a graph as a graph of its own, with the way back to the nodes of the whole.

    Attributes:
        graph: The relations over the block's nodes, all of the whole graph's in the same order.
        nodes: The ids (n,) of its nodes in the whole graph; `x[nodes]` are their features.
        rows: Where the seeds stand among them (B,), in the order in which they were given: the rows
            for `propagate_dag(block.graph, ..., rows=block.rows)`. Of groups of seeds, (B, k).
        whole_counts: The node types of the whole graph and their sizes.
        index: Which of the seeds of `NeighborBlocks` these are (B,), as for labels; None of a block
            that was made in another way.

    Example:
        >>> edges = {("a", "to", "b"): torch.tensor([[0, 1, 2], [0, 0, 1]])}
        >>> g = RelationGraph.from_edge_index(edges, {"a": 3, "b": 2})
        >>> (block,) = NeighborBlocks(g, ("b", torch.tensor([1])), [-1])
        >>> block
        Block(1 seed; 2 of 5 nodes, 1 edge)
        >>> {kind: ids.tolist() for kind, ids in block.ids.items()}
        {'a': [2], 'b': [1]}
    """

    graph: RelationGraph
    nodes: Tensor
    rows: Tensor
    whole_counts: tuple[tuple[str, int], ...]
    index: Tensor | None = None

    @property
    def ids(self) -> dict[str, Tensor]:
        """The block's nodes of each type, as ids within the type."""
        starts = type_slices(dict(self.whole_counts))
        return {
            kind: self.nodes[here] - starts[kind].start
            for kind, here in self.graph.node_types.items()
        }

    def rows_of(self, kind: str) -> Tensor:
        """Where the seeds stand among the block's nodes of a type, which all of them must have."""
        start, stop = self._range(kind)
        if bool(((self.rows < start) | (self.rows >= stop)).any()):
            raise ValueError(f"some seeds are not of the type {kind!r}")
        return self.rows - start

    def _range(self, kind: str) -> tuple[int, int]:
        """Where the block's nodes of a type begin and end."""
        here = self.graph.node_types[kind]
        return here.start, here.stop

    @overload
    def gather(self, x: Tensor) -> Tensor: ...
    @overload
    def gather(self, x: Mapping[str, Tensor]) -> dict[str, Tensor]: ...
    def gather(self, x: Tensor | Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
        """The block's rows of what all nodes have, (N, ...), or all nodes of each type.

        Features may be sparse, or mapped from a file.
        """
        if isinstance(x, Tensor):
            return feature_rows(x, self.nodes)
        return {kind: feature_rows(x[kind], ids) for kind, ids in self.ids.items() if kind in x}

    def plan(self, dag: Dag, choices: Mapping[Edge, Sequence[str]] | None = None) -> RowPlan:
        """The rows of every state that the seeds need: for `propagate_dag(..., rows=plan)`."""
        return self.graph.plan_rows(dag, self.rows.flatten(), choices)

    def to(self, device: torch.device | str) -> Block:
        """The block on another device."""
        return replace(
            self,
            graph=self.graph.to(device),
            nodes=self.nodes.to(device),
            rows=self.rows.to(device),
            index=None if self.index is None else self.index.to(device),
        )

    def to_hetero_data(self) -> Any:
        """The block as PyG's `HeteroData`: `n_id` of nodes, `rows` of seeds, `edge_weight` of edges.

        Identity and zero are left out. Folded self-loops can't be edges there: they are refused.
        """
        from torch_geometric.data import HeteroData

        data, graph = HeteroData(), self.graph
        for kind, ids in self.ids.items():
            start, stop = self._range(kind)
            mine = (self.rows >= start) & (self.rows < stop)
            data[kind].n_id, data[kind].num_nodes = ids, len(ids)
            data[kind].rows = self.rows[mine] - start
        seg = graph.forward.edge_seg()
        row, rel, value = graph.forward.seg_row()[seg], graph.forward.seg_rel[seg], graph.values()
        for i, name in enumerate(graph.relation_names):
            mine = rel == i
            if name in ("identity", "zero") and not bool(mine.any()):
                continue
            if float(graph.loop[i]):
                raise ValueError(f"the self-loops of {name!r} are folded: HeteroData has no place")
            kinds = (name if "__" in name else f"node__{name}__node").split("__")
            source, target = (self._range(kind)[0] for kind in (kinds[0], kinds[-1]))
            ends = graph.forward.col[mine].long() - source, row[mine] - target
            data[tuple(kinds)].edge_index = torch.stack(ends)
            data[tuple(kinds)].edge_weight = value[mine]
        return data

    @classmethod
    def from_hetero_data(
        cls, data: Any, num_nodes: Mapping[str, int], **options: Unpack[GraphOptions]
    ) -> Block:
        """The block that `to_hetero_data` wrote, or a batch of PyG's `NeighborLoader`.

        Args:
            data: With `n_id` for every node type. Seeds are the first `batch_size` of a loader's batch,
                otherwise its `rows`.
            num_nodes: The sizes of the node types in the whole graph.
            options: Those of `RelationGraph`; a loader knows no values but `edge_weight`.
        """
        graph = RelationGraph.from_hetero_data(data, **options)
        starts, nodes, rows = type_slices(num_nodes), [], []
        loaded = any("batch_size" in data[kind] for kind in graph.node_types)
        for kind, here in graph.node_types.items():
            store = data[kind]
            nodes.append(store.n_id + starts[kind].start)
            if "batch_size" in store:
                rows.append(torch.arange(store.batch_size) + here.start)
            elif "rows" in store and not loaded:  # a loader copies those of the whole graph
                rows.append(store.rows + here.start)
        return cls(graph, torch.cat(nodes), torch.cat(rows), tuple(num_nodes.items()))

    def __repr__(self) -> str:
        total = sum(count for _, count in self.whole_counts)
        seeds, edges = (
            f"{count} {noun}{'' if count == 1 else 's'}"
            for count, noun in ((self.rows.numel(), "seed"), (self.graph.num_edges, "edge"))
        )
        return f"Block({seeds}; {len(self.nodes)} of {total} nodes, {edges})"


class NeighborBlocks:
    """Batches of nodes, each with the part of the graph that it depends on: an iterable of `Block`.

    From the seeds, edges are walked backwards, one hop for each entry of `fan_out`. Of a segment (the
    edges of a node in one relation) that many are kept, drawn without replacement. As many hops as
    the links on the longest path of the DAG, times the layers, reach all that matters; then `-1` for
    each, whole neighbourhoods, gives the seeds the results of the whole graph.

    A node keeps the edges of the hop that found it first. If `f` of a segment's `m` edges are kept,
    their values are multiplied by `m / f`: then the expected sum is that of the whole segment, however
    it was normalised (a mean over the neighbours becomes one over those drawn). Self-loops keep their
    weights. Where a fan-out is 0, a node is as if it had no such edges.

    What is drawn depends on the generator, the number of the batch, the node and the relation alone:
    not on threads, nor on how a batch is shared among processes.

    Args:
        graph: The whole graph, on the CPU; it may be mapped (`RelationGraph.load(mmap=True)`).
        seeds: Global ids (M,), a mask (N,), a node type for all its nodes, or `(type, ids)`. Or groups
            of nodes (M, k), as the two ends of pairs: each group is in one batch.
        fan_out: One number a hop; or a list of them for each relation that has edges.
        batch_size: Seeds, or groups of them, in a batch, for each process.
        shuffle: Whether to take the seeds in another order each time.
        generator: Of the order and the draws; torch's own if None. Processes need the same one.
        rank, world: Of `world` processes, each batch of the `rank`-th has its part of the seeds. All
            have as many batches; the last may be smaller, or empty for some.
        workers: Threads that prepare blocks ahead; with 0, each is made when it is asked for.

    Example:
        >>> ring = torch.stack([torch.arange(6), torch.arange(1, 7) % 6])
        >>> g = RelationGraph.from_edge_index({"next": ring}, 6, identity=True)
        >>> blocks = NeighborBlocks(g, torch.arange(6), [1, 1], batch_size=4)
        >>> for block in blocks:
        ...     print(block, block.nodes.tolist())
        Block(4 seeds; 6 of 6 nodes, 5 edges) [0, 1, 2, 3, 4, 5]
        Block(2 seeds; 4 of 6 nodes, 3 edges) [2, 3, 4, 5]
    """

    def __init__(
        self,
        graph: RelationGraph,
        seeds: Seeds,
        fan_out: FanOut,
        batch_size: int = 1024,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        rank: int = 0,
        world: int = 1,
        *,
        workers: int = 0,
    ) -> None:
        if graph.device.type != "cpu":
            raise ValueError(f"blocks are drawn on the CPU, but the graph is on {graph.device}")
        if not 0 <= rank < check_size("world", world):
            raise ValueError(f"rank must be in 0 .. {world - 1}, got {rank}")
        if world > 1 and generator is None:
            raise ValueError("give several processes a generator, with the same seed in all")
        if workers < 0:
            raise ValueError(f"workers must not be negative, got {workers}")
        self.graph, self.seeds = graph, _seed_ids(graph, seeds)
        self.fan_out = _by_hop(graph, fan_out)
        self.batch_size, self.shuffle = check_size("batch_size", batch_size), shuffle
        self.generator, self.rank, self.world, self.workers = generator, rank, world, workers

    def __len__(self) -> int:
        """The number of batches."""
        return -(-len(self.seeds) // (self.batch_size * self.world))

    def __iter__(self) -> Iterator[Block]:
        order = torch.arange(len(self.seeds))
        if self.shuffle:
            order = torch.randperm(len(order), generator=self.generator)
        seed = int(torch.randint(2**62, (), generator=self.generator))
        batches = order.split(self.batch_size * self.world) if len(order) else ()
        parts = [batch.tensor_split(self.world)[self.rank] for batch in batches]
        jobs = [(part, seed + number) for number, part in enumerate(parts)]
        return self._ahead(jobs) if self.workers else (self._block(*job) for job in jobs)

    def sample(self, seeds: Tensor, seed: int) -> Block:
        """The block of some nodes (global ids), drawn by a number."""
        return draw_block(self.graph, seeds, self.fan_out, seed)

    def _block(self, index: Tensor, seed: int) -> Block:
        return replace(self.sample(self.seeds[index], seed), index=index)

    def _ahead(self, jobs: Sequence[tuple[Tensor, int]]) -> Iterator[Block]:
        """The blocks in their order, some of the next ones under way."""
        pool = ThreadPoolExecutor(self.workers, "tensus_tn blocks")
        waiting: deque[Future[Block]] = deque()
        try:
            for job in jobs:
                waiting.append(pool.submit(self._block, *job))
                if len(waiting) > 2 * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def draw_block(graph: RelationGraph, seeds: Tensor, fan_out: Sequence[int], seed: int) -> Block:
    """The block of some nodes: `fan_out` is (hops, relations) in one list, -1 for whole segments."""
    parts = torch.ops.tensus_tn.sample_block(
        seeds.flatten(), graph.forward.structure(), list(fan_out), graph.num_relations, seed
    )
    nodes, rows, segment, edge = parts[:4]
    forward = Segments(*parts[4:8])
    backward = replace(Segments(*parts[8:12]), edge_perm=parts[12])
    ends = torch.tensor([here.stop for here in graph.node_types.values()], dtype=torch.int64)
    counts = torch.searchsorted(nodes, ends).diff(prepend=ends.new_zeros(1)).tolist()
    sampled = any(number > 0 for number in fan_out)
    block = RelationGraph(
        *_with_values(graph, forward, backward, segment, edge, sampled),
        graph.loop,
        graph.relation_names,
        tuple(zip(graph.node_types, counts, strict=True)),
    )
    return Block(block, nodes, rows.view_as(seeds), graph.node_counts)


def _with_values(
    graph: RelationGraph,
    forward: Segments,
    backward: Segments,
    segment: Tensor,
    edge: Tensor,
    sampled: bool,
) -> tuple[Segments, Segments]:
    """The structure of a block with the values of its edges, scaled where some are left out."""
    whole, scale = graph.forward, None
    if sampled:
        kept, total = forward.seg_ptr.diff(), whole.seg_ptr[segment + 1] - whole.seg_ptr[segment]
        scale = None if torch.equal(kept, total.int()) else total.to(graph.dtype) / kept
    if whole.edge_val is not None:
        value = whole.edge_val.index_select(0, edge)
        value = value if scale is None else value * scale.index_select(0, forward.edge_seg())
        forward = replace(forward, edge_val=value)
    elif whole.seg_val is not None:
        value = whole.seg_val.index_select(0, segment)
        forward = replace(forward, seg_val=value if scale is None else value * scale)
    else:
        forward = replace(forward, seg_val=scale)
    if forward.edge_val is not None or forward.seg_val is not None:
        assert backward.edge_perm is not None
        value = forward.values(graph.dtype).detach().index_select(0, backward.edge_perm)
        backward = replace(backward, edge_val=value)
    loops = None if whole.seg_loop is None else whole.seg_loop.index_select(0, segment)
    added = None if whole.edge_added is None else whole.edge_added.index_select(0, edge)
    return replace(forward, seg_loop=loops, edge_added=added), backward


def feature_rows(x: Tensor, ids: Tensor) -> Tensor:
    """`x[ids]`, also of a sparse matrix."""
    ids = ids.to(x.device)
    if x.layout != torch.sparse_csr:
        return x.index_select(0, ids)
    ptr = x.crow_indices()
    sizes = ptr[ids + 1] - ptr[ids]
    new_ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    shift = (ptr[ids] - new_ptr[:-1]).repeat_interleave(sizes)
    places = torch.arange(len(shift), device=x.device) + shift
    cols, values, shape = x.col_indices()[places], x.values()[places], (len(ids), x.shape[1])
    return torch.sparse_csr_tensor(new_ptr, cols, values, shape, check_invariants=False)


def _seed_ids(graph: RelationGraph, seeds: Seeds) -> Tensor:
    """Global ids (M,), or (M, k) of groups."""
    if isinstance(seeds, Tensor):
        if seeds.ndim == 2:
            return as_ids("seeds", seeds.flatten(), graph.num_nodes).view(seeds.shape)
        return as_ids("seeds", seeds, graph.num_nodes)
    kind, ids = (seeds, None) if isinstance(seeds, str) else seeds
    if kind not in graph.node_types:
        raise ValueError(f"seeds of the type {kind!r}, but there are {list(graph.node_types)}")
    here = torch.arange(graph.num_nodes)[graph.node_types[kind]]
    return here if ids is None else here[as_ids(f"seeds of {kind!r}", ids, len(here))]


def _by_hop(graph: RelationGraph, fan_out: FanOut) -> list[int]:
    """The fan-out of every hop and relation, (hops, relations) in one list."""
    names = graph.relation_names
    if isinstance(fan_out, Mapping):
        given = {relation_name(key): list(numbers) for key, numbers in fan_out.items()}
        wanted = set(names) - {"identity", "zero"}
        if not wanted <= set(given) <= set(names):
            raise ValueError(f"fan_out is for {list(given)}, the graph has {list(names)}")
    else:
        given = {name: list(fan_out) for name in names}
    sizes = {len(numbers) for numbers in given.values()}
    if len(sizes) > 1 or 0 in sizes:
        raise ValueError(f"fan_out must have one number for each hop, got {fan_out}")
    for number in (number for numbers in given.values() for number in numbers):
        if isinstance(number, bool) or not isinstance(number, int) or number < -1:
            raise ValueError(f"a fan-out is a number of edges, or -1 for all, got {number!r}")
    hops = range(sizes.pop() if sizes else 0)
    return [given[name][hop] if name in given else 0 for hop in hops for name in names]
