"""What a training shows, with a terminal and without."""

import io
import sys

from tensus_tn.tasks import Config, run
from tensus_tn.tasks.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, stream, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("acm seed 0", 20, **options) as progress:
        for epoch in range(1, 21):
            progress.update(epoch, {"loss": f"{1 / epoch:.2f}"})
    return stream.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch):
    lines = shown(monkeypatch, io.StringIO()).splitlines()
    assert lines[0] == "acm seed 0  epoch 1/20  loss 1.00"
    assert lines[-1] == "acm seed 0  epoch 20/20  loss 0.05"
    assert len(lines) == 11


def test_a_terminal_has_a_bar(monkeypatch):
    text = shown(monkeypatch, Terminal())
    assert "acm seed 0" in text
    assert "epoch" not in text


def test_nothing_is_shown_where_nothing_is_wanted(monkeypatch):
    for stream in (io.StringIO(), Terminal()):
        assert shown(monkeypatch, stream, shown=False) == ""


def test_every_epoch_is_reported_to_the_caller():
    records = []
    result = run(
        Config(topology="path", steps=2, epochs=3, progress=False), callback=records.append
    )
    assert records == result.history
