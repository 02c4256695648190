"""Results as tables (Markdown, which also reads well in a terminal) and as a figure."""

from pathlib import Path
from typing import Any

from benchmarks.propagate.heads import APART, ONE, TOGETHER
from benchmarks.propagate.peers import DIFFMG, OURS

MARK = "<!-- the rest of this page is written by `python -m benchmarks.propagate --page` -->"


def table(stored: dict[str, Any]) -> str:
    """The headline of all cases, then every case with all its peers, then the sweeps."""
    parts = ["## Headline", headline(stored["cases"])]
    for key, case in stored["cases"].items():
        parts += [f"## {key}", _size(case), peers_table(case["peers"])]
    for name, cases in stored["sweeps"].items():
        parts += [f"## By {name}", sweep_table(name, cases)]
    if heads := stored.get("heads"):
        parts += ["## Heads", heads_table(heads)]
    rows = [row for case in stored["cases"].values() for row in case["peers"].values()]
    measured = {row["library"] for row in rows}  # maybe by another run, in another environment
    if absent := [library for library in stored["absent"] if library not in measured]:
        parts.append(f"Not installed, so not measured: {', '.join(absent)}.")
    return "\n\n".join(parts)


def headline(cases: dict[str, Any]) -> str:
    columns = ["graph", "forward", "forward + backward"]
    columns += [
        f"{name}, {way}" for name in ("best PyTorch", "DiffMG's way") for way in ("f", "f+b")
    ]
    columns += ["gather roof, f", "stream roof, f", "gather roof, b", "stream roof, b"]
    rows = []
    for key, case in cases.items():
        ours = case["peers"].get(OURS, {})
        if "forward" not in ours:
            continue
        row = [key, _time(ours["forward"]), _time(ours["both"])]
        row += [f"{best_of_torch(case['peers'], way)[1]:.1f}x" for way in ("forward", "both")]
        diffmg = case["peers"].get(DIFFMG, {})
        row += [_ratio(diffmg, way) for way in ("forward", "both")]
        for roof in (case.get("roof"), case.get("roof_backward")):
            for name in ("gather", "stream"):
                row.append(f"{roof[name]['median'] / roof[OURS]['median']:.2f}" if roof else "")
        rows.append(row)
    return _markdown(columns, rows)


def best_of_torch(peers: dict[str, Any], way: str) -> tuple[str, float]:
    """The strongest composition of PyTorch operators: its title, and how much longer it takes."""
    ratios = {
        title: row[way]["ratio"]
        for title, row in peers.items()
        if row["library"] == "PyTorch" and way in row
    }
    title = min(ratios, key=ratios.__getitem__, default="none")
    return title, ratios.get(title, float("nan"))


def peers_table(peers: dict[str, Any]) -> str:
    columns = ["", "forward", "times ours", "forward + backward", "times ours"]
    columns += ["saved for backward, MB", "peak, MB"]
    rows = []
    for title, row in peers.items():
        name = title if row["library"] in (OURS, "scipy") else f"{row['library']}: {title}"
        if "forward" not in row:
            rows.append([name, row.get("absent", ""), *[""] * 5])
            continue
        cells = [name]
        for way in ("forward", "both"):
            cells += [_time(row[way]), _ratio(row, way)]
        rows.append([*cells, f"{row['saved_mb']:.0f}", _number(row["peak_mb"])])
    return _markdown(columns, rows)


def sweep_table(name: str, cases: dict[str, Any]) -> str:
    columns = [f"graph / {name}", "forward", "forward + backward", "best PyTorch, f", "f+b"]
    rows = []
    for key, case in cases.items():
        ours = case["peers"][OURS]
        best = [f"{best_of_torch(case['peers'], way)[1]:.1f}x" for way in ("forward", "both")]
        rows.append([key, _time(ours["forward"]), _time(ours["both"]), *best])
    return _markdown(columns, rows)


def heads_table(cases: dict[str, Any]) -> str:
    columns = ["graph / heads", "one head", "in one pass", "one pass a head"]
    columns += ["one head, f+b", "in one pass, f+b", "one pass a head, f+b"]
    rows = []
    for key, case in cases.items():
        row = [key]
        for way in ("forward", "both"):
            row.append(_time(case[way][ONE]))
            row += [f"{case[way][name]['ratio']:.2f}x" for name in (TOGETHER, APART)]
        rows.append(row)
    return _markdown(columns, rows)


def write_page(stored: dict[str, Any], page: Path) -> None:
    """Put the tables and the figure below the mark of a page; what stands above stays."""
    text = page.read_text().split(MARK)[0] if page.exists() else "# Performance of propagate\n\n"
    machine = stored["machine"]
    facts = (
        f"Measured on {machine['date']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['threads']} threads, Python {machine['python']}, torch {machine['torch']}."
    )
    figure = page.with_name("performance-propagate.svg")
    drawn = draw(stored, figure)
    image = f"![Sweeps and roofline]({figure.name})\n\n" if drawn else ""
    page.write_text(f"{text}{MARK}\n\n{facts}\n\n{image}{table(stored)}\n")


def draw(stored: dict[str, Any], path: Path) -> bool:
    """Scaling over every sweep, and the roofline of the cases; False where nothing was measured."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "tensus"  # the same ids in every drawing
    sweeps = stored["sweeps"]
    whole = {key: case for key, case in stored["cases"].items() if key.endswith("K=4")}
    roofs = {key: case for key, case in whole.items() if case.get("roof")}
    if not sweeps and not roofs:
        return False
    panels = len(sweeps) + bool(roofs)
    columns = min(panels, 2)  # more in a row could not be read on a page
    rows = -(-panels // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.4 * columns, 3.6 * rows), squeeze=False)
    axes = list(grid.flat)
    for axis, (name, cases) in zip(axes, sweeps.items(), strict=False):
        _draw_sweep(axis, name, cases)
    if roofs:
        _draw_roofline(axes[panels - 1], roofs)
    for axis in axes[panels:]:
        axis.remove()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def _draw_sweep(axis: Any, name: str, cases: dict[str, Any]) -> None:
    for graph in dict.fromkeys(key.split("/")[0] for key in cases):
        mine = {k.split("/")[1]: c["peers"] for k, c in cases.items() if k.split("/")[0] == graph}
        values = [float(value) for value in mine]
        ours = [peers[OURS]["both"]["median"] * 1e3 for peers in mine.values()]
        times = zip(ours, mine.values(), strict=True)
        best = [time * best_of_torch(peers, "both")[1] for time, peers in times]
        (line,) = axis.plot(values, ours, "o-", label=f"{graph}, tensus_tn")
        axis.plot(values, best, "s--", color=line.get_color(), label=f"{graph}, best PyTorch")
    axis.set(xscale="log", yscale="log", xlabel=name, ylabel="forward + backward, ms")
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.set_xticks([], minor=True)
    _number_y(axis)
    axis.legend(fontsize=7)


def _draw_roofline(axis: Any, cases: dict[str, Any]) -> None:
    """Flops against flops per byte of the gathered rows, under the bandwidth of the bare gather."""
    graphs = list(dict.fromkeys(key.split("/")[0] for key in cases))
    for key, case in cases.items():
        graph, normalisation, _ = key.split("/")
        traffic, roof = case["traffic"], case["roof"]
        intensity = traffic["flops"] / traffic["gather"]
        ours, bare = (traffic["flops"] / roof[name]["median"] / 1e9 for name in (OURS, "gather"))
        color = f"C{graphs.index(graph)}"
        marker = "o" if normalisation == "diffmg" else "s"
        axis.plot(intensity, ours, marker, color=color, label=f"{graph}, {normalisation}")
        axis.plot(intensity, bare, "_", color=color, markersize=14)
    axis.set(yscale="log", xlabel="flops per gathered byte", ylabel="Gflop/s (bar: bare gather)")
    _number_y(axis)
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1))


def _number_y(axis: Any) -> None:
    """Plain numbers on a logarithmic axis, also where it spans less than a decade."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def _size(case: dict[str, Any]) -> str:
    return (
        f"{case['nodes']:,} nodes, {case['edges']:,} edges, {case['segments']:,} segments, "
        f"{case['relations']} relations; DAG {case['dag']}, d = {case['rank']}, "
        f"F = {case['features']}, float32."
    )


def _time(timing: dict[str, float]) -> str:
    spread = (timing["high"] - timing["low"]) / 2
    return f"{timing['median'] * 1e3:.3g} ± {spread * 1e3:.2g} ms"


def _ratio(row: dict[str, Any], way: str) -> str:
    return f"{row[way]['ratio']:.1f}x" if way in row else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _markdown(columns: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    lines = [columns, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
