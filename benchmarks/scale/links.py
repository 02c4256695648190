"""Two hosts with a limited link between them, on one machine: the share of communication.

    sudo python -m benchmarks.scale.links --rates 10gbit 1gbit 200mbit

Hosts are network namespaces, joined by a pair of virtual cards whose rate `tc` limits. Each runs one
part of the community graph in one thread, forward and backward. The time in which that thread does not
compute is the share of communication: waiting for rows that the interior could not hide. A last run
cuts the link.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from benchmarks.scale.community import FEATURES, Step, community_graph
from benchmarks.scale.parts import rounds
from tensus_tn.distributed import DistributedGraph, PeerError, init, partition

HOSTS = ("tensus0", "tensus1")
ADDRESSES = ("10.77.0.1", "10.77.0.2")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def connect(rate: str) -> None:
    """Two namespaces and the link between them."""
    disconnect()
    for host in HOSTS:
        run("ip", "netns", "add", host)
    cards = ("card0", "card1")
    run("ip", "link", "add", cards[0], "type", "veth", "peer", "name", cards[1])
    for host, card, address in zip(HOSTS, cards, ADDRESSES, strict=True):
        inside = ("ip", "netns", "exec", host)
        run("ip", "link", "set", card, "netns", host)
        run(*inside, "ip", "addr", "add", f"{address}/24", "dev", card)
        run(*inside, "ip", "link", "set", card, "up")
        run(*inside, "ip", "link", "set", "lo", "up")
        limit = ("rate", rate, "burst", "1mb", "latency", "50ms")
        run(*inside, "tc", "qdisc", "add", "dev", card, "root", "tbf", *limit)


def disconnect() -> None:
    """Remove the namespaces, and the cards with them."""
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], check=False, stderr=subprocess.DEVNULL)


def start(
    rank: int, options: argparse.Namespace, timeout: float, forever: bool
) -> subprocess.Popen[str]:
    """One host at work."""
    command = ["ip", "netns", "exec", HOSTS[rank], sys.executable, "-m", "benchmarks.scale.links"]
    command += ["--nodes", str(options.nodes), "--edges", str(options.edges)]
    command += ["--rounds", "100000" if forever else str(options.rounds)]
    command += ["--timeout", str(timeout), "--host", str(rank)]
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": ADDRESSES[0],
        "MASTER_PORT": "29977",
        "GLOO_SOCKET_IFNAME": f"card{rank}",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def work(options: argparse.Namespace) -> None:
    """What a host does: its part, and its times as one line."""
    torch.set_num_threads(1)
    graph = community_graph(options.nodes, options.edges)
    owners = partition(graph, 2)
    processes = init(timeout=options.timeout)
    mine = DistributedGraph.from_graph(graph, owners)
    step = Step(mine, torch.ones(mine.num_nodes, FEATURES))
    step()
    print("ready", flush=True)
    before = mine.bytes_received
    begin = time.monotonic()
    try:
        found = rounds(step, options.rounds, dist.barrier)
    except PeerError as error:
        print(json.dumps({"seconds": time.monotonic() - begin, "error": str(error)}), flush=True)
        return
    found["megabytes"] = (mine.bytes_received - before) / 1e6 / (options.rounds + 1)
    print(json.dumps(found), flush=True)
    processes.leave()


def ready(host: subprocess.Popen[str]) -> None:
    assert host.stdout is not None
    assert host.stdout.readline() == "ready\n"


def measure(rate: str, options: argparse.Namespace) -> None:
    """Times over a link of this rate."""
    connect(rate)
    hosts = [start(rank, options, 60, False) for rank in (0, 1)]
    for host in hosts:
        ready(host)
    found = [json.loads(host.communicate()[0]) for host in hosts]
    slowest = max(found, key=lambda times: times["wall"])
    print(
        f"{rate}: {slowest['wall'] * 1e3:.0f} ms a step, {slowest['thread'] * 1e3:.0f} computing: "
        f"communication {1 - slowest['thread'] / slowest['wall']:.0%}, "
        f"{slowest['megabytes']:.1f} MB received a step",
        flush=True,
    )


def cut(options: argparse.Namespace) -> None:
    """The link goes down in the middle of a run."""
    connect("10gbit")
    hosts = [start(rank, options, 5, True) for rank in (0, 1)]
    for host in hosts:
        ready(host)
    time.sleep(2)
    run("ip", "netns", "exec", HOSTS[0], "ip", "link", "set", "card0", "down")
    begin = time.monotonic()
    for host in hosts:
        said = json.loads(host.communicate()[0])
        print(
            f"link cut: after {time.monotonic() - begin:.1f} s: {said['error'][:200]}", flush=True
        )


def main() -> None:
    """Read the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--rates", nargs="*", default=["10gbit", "1gbit", "200mbit"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--host", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host is not None:
        return work(options)
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    try:
        for rate in options.rates:
            measure(rate, options)
        cut(options)
    finally:
        disconnect()


if __name__ == "__main__":
    main()
