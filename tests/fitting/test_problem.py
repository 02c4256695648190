"""What the problems of least squares share."""

import torch

from tensus_tn.fitting.problem import others, pseudo_inverse


def test_what_the_data_do_not_determine_is_zero():
    gram = torch.diag(torch.tensor([4.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(pseudo_inverse(gram), torch.diag(torch.tensor([0.25, 0.0])).double())


def test_others_of_one_are_the_neutral_element():
    assert others("abc", 1, None) == ["a", "c"]
    assert others("a", 0, "one") == ["one"]
