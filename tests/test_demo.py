import re

from tensus_tn import demo


def test_the_demo_finds_what_was_planted_at_rank_two_only(capsys):
    demo.main()
    text = capsys.readouterr().out
    _, rank_one, rank_two = text.split("\nrank ")
    planted = [demo.as_text(index) for index in demo.PLANTED.tolist()]
    first_two = rank_two.splitlines()[1:3]
    assert all(any(graph in line for line in first_two) for graph in planted)
    assert all(float(re.search(r"([\d.]+)%", line)[1]) > 35 for line in first_two)
    assert max(float(share) for share in re.findall(r"([\d.]+)%", rank_one)) < 30
    assert "backend" in text
