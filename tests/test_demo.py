import re

import pytest

from tensus_tn import demo


@pytest.mark.slow
def test_the_demo_finds_what_was_planted_at_rank_two_only(capsys, tmp_path):
    results = demo.main(str(tmp_path), epochs=80, seeds=1)
    text = capsys.readouterr().out
    _, rank_one, rank_two = re.split(r"\nd = \d: ", text)
    first_two = rank_two.splitlines()[1:3]
    for planted in ("s -A-> m -B-> t", "s -C-> m -D-> t"):
        assert any(planted in line for line in first_two)
    assert all(float(re.search(r"([\d.]+)%", line)[1]) > 35 for line in first_two)
    assert results["d = 1"][0].test["micro_f1"] < 0.8 < 0.95 < results["d = 2"][0].test["micro_f1"]
    assert "s -A-> m -B-> t" in rank_one
    assert (tmp_path / "planted.png").read_bytes().startswith(b"\x89PNG")
    assert "backend" in text
