"""Ranks that do not belong together are found out, and named in the same words everywhere."""

from __future__ import annotations

import pytest
import torch

from ddas_gpu.distributed.agreement import digest


def said(answers, name: str) -> str:
    """What all ranks have said, which must be the same."""
    words = {answer["refusals"][name] for answer in answers}
    assert len(words) == 1
    return words.pop()


def test_the_rank_and_what_is_other_are_named(answers):
    last = len(answers) - 1
    assert said(answers, "flags") == (
        f"rank {last} has other values of --lr than rank 0 (0.1 instead of 0.2)"
    )
    images = said(answers, "images")
    assert images.startswith(f"rank {last} has other validation or test images than rank 0 (")
    assert (
        said(answers, "facts") == f"rank {last} has other hats than rank 0 today (1 instead of 0)"
    )


def test_ranks_that_belong_together_are_let_through(answers):
    assert not any("nothing" in answer["refusals"] for answer in answers)


def test_a_single_bit_of_alpha_is_enough(answers):
    last = len(answers) - 1
    words = said(answers, "alpha")
    assert words.startswith(f"rank {last} has other policy parameters (α) than rank 0 after epoch")


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
def test_a_digest_sees_every_bit(kind):
    tensors = [torch.zeros((), dtype=kind), torch.ones(3, 4, dtype=kind).T]
    other = [tensors[0], tensors[1].contiguous()]
    assert digest(*tensors) == digest(*other)
    other[1].view(torch.uint8)[2, 1] ^= 1
    assert digest(*tensors) != digest(*other)
    assert digest(torch.tensor(0.0)) != digest(torch.tensor(-0.0))
