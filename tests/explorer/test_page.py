"""The page computes in a real browser what Python computes."""

import html.parser
import json
import re
import shutil
import subprocess

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.explorer.page import Entry, View, best_entries, page, write_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


def tensor(dag, choices=3, **options):
    options = {
        "rank": 2,
        "init_scale": 2.0,
        "generator": torch.Generator().manual_seed(1),
        **options,
    }
    return DagTensor(dag, choices, dtype=torch.float64, **options)


class Shown(html.parser.HTMLParser):
    """The probabilities that the page shows: {(link, choice): p}, and the texts of some elements."""

    def __init__(self, source):
        super().__init__()
        self.chances, self.errors, self.inside, self.texts = {}, [], None, {}
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "data-probability" in attributes:
            key = int(attributes["data-link"]), int(attributes["data-choice"])
            self.chances[key] = float(attributes["data-probability"])
        self.inside = attributes.get("id", self.inside)

    def handle_data(self, data):
        self.texts[self.inside] = self.texts.get(self.inside, "") + data


def browse(tmp_path, views, *actions):
    """What the page shows after some lines of JavaScript, such as clicks."""
    source = page(views, "a test")
    script = "".join(f"{action};\n" for action in actions)
    file = tmp_path / "page.html"
    file.write_text(source.replace("</body>", f"<script>{script}</script></body>"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", file.as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    return Shown(run.stdout)


def click(link, choice):
    return f'document.querySelector(\'[data-link="{link}"][data-choice="{choice}"]\').click()'


def expected(t, given):
    left = (
        t.condition({t.dag.edges[link]: choice for link, choice in given.items()}) if given else t
    )
    marginals = {t.dag.edges.index(edge): p.tolist() for edge, p in left.marginals().items()}
    for link, choice in given.items():
        marginals[link] = [float(c == choice) for c in range(t.structure.choices[link])]
    return {(link, c): p for link, chances in marginals.items() for c, p in enumerate(chances)}


@in_browser
@pytest.mark.parametrize(
    ("t", "given"),
    [
        (tensor(Dag.complete(3)), {}),
        (tensor(Dag.complete(3)), {1: 2}),
        (tensor(Dag.complete(4), rank=3), {0: 1, 9: 2, 4: 0}),
        (tensor(Dag.path(9), ties="global"), {0: 1, 5: 0}),
        (tensor(Dag.path(60), rank=3), {0: 0, 30: 1, 59: 2}),
        (tensor(Dag.path(1), rank=1), {}),
        (tensor(Dag.path(3), {(0, 1): 2, (1, 2): 4, (2, 3): 3}, rank={1: 2, 2: 3}), {1: 3}),
    ],
)
def test_clicks_give_the_marginals_that_python_computes(tmp_path, t, given):
    shown = browse(tmp_path, [View("a", t, [])], *(click(*pair) for pair in given.items()))
    assert shown.chances == pytest.approx(expected(t, given), rel=1e-9, abs=1e-12)


@in_browser
def test_a_second_click_and_clear_take_the_condition_back(tmp_path):
    t = tensor(Dag.complete(2))
    twice = browse(tmp_path, [View("a", t, [])], click(0, 1), click(0, 1))
    cleared = browse(
        tmp_path, [View("a", t, [])], click(0, 1), "document.getElementById('clear').click()"
    )
    assert twice.chances == cleared.chances == pytest.approx(expected(t, {}), rel=1e-9)


@in_browser
def test_the_list_shows_the_best_entries_that_agree(tmp_path):
    t = tensor(Dag.path(2), choices=["AP", "PC"])
    views = [View("a", t, best_entries(t, 4))]
    everything, some = browse(tmp_path, views), browse(tmp_path, views, click(0, 1))
    assert everything.texts["best"].count("0 -> 1: ") == 4
    assert some.texts["best"].count("0 -> 1: PC") == 2
    assert "0 -> 1: AP" not in some.texts["best"]
    probability = t.condition({(0, 1): 1})[int(t.condition({(0, 1): 1}).top_k(1).index)].item()
    assert f"{100 * probability:.1f} %" in some.texts["best"]
    assert "Together 100.0 %" in some.texts["share"]


@in_browser
def test_an_impossible_condition_is_said(tmp_path):
    t = tensor(Dag.path(2), choices=2)
    with torch.no_grad():
        t.core_0[0] = -torch.inf
    shown = browse(tmp_path, [View("a", t, [])], click(0, 0))
    assert set(shown.chances.values()) == {0.0}


@in_browser
def test_the_page_switches_between_views(tmp_path):
    first, second = tensor(Dag.path(2)), tensor(Dag.complete(2), choices=2)
    views = [View("rank 2", first, []), View("another", second, [])]
    switch = "choose.value = 1; choose.dispatchEvent(new Event('change'))"
    shown = browse(tmp_path, views, click(0, 1), switch)
    assert shown.chances == pytest.approx(expected(second, {}), rel=1e-9)


def test_names_can_not_break_out_of_the_page():
    hostile = "</script><script>alert(1)</script>"
    t = DagTensor(Dag.path(1), [hostile, "b"], rank=1)
    source = page([View(hostile, t, best_entries(t, 2))], hostile)
    assert source.count("<script") == source.count("</script>") == 2
    content = re.search(r'type="application/json">(.*?)</script>', source, re.DOTALL).group(1)
    assert json.loads(content)["views"][0]["choices"] == [[hostile, "b"]]


def test_the_page_needs_no_network(tmp_path):
    t = tensor(Dag.complete(2))
    write_page(tmp_path / "a.html", [View("a", t, [Entry([0, 0, 0], -1.0, "text", [0])])])
    source = (tmp_path / "a.html").read_text()
    assert not re.search(r"(src|href)=|url\(http|@import|fetch\(", source.replace("url(#tip)", ""))


def test_what_can_not_be_explored_is_refused():
    with pytest.raises(ValueError, match="softmax"):
        View("a", DagTensor(Dag.path(2), 3, 2, parametrization="free"), [])
    with pytest.raises(ValueError, match="at least one view"):
        page([], "none")
