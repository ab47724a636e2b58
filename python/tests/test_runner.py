"""What else a runner does, and what it says when it is used wrongly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import scenes
from cluster import Cluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_evaluation_has_the_losses_and_no_gradients(cluster: Cluster) -> None:
    for _, before, losses, after, trained, mean in cluster.run(scenes.evaluation, 2, "std:v_half"):
        assert before == after == trained == losses
        assert mean == pytest.approx(scenes.expected_mean(), rel=1e-6)


def test_evaluation_of_stages_that_recompute(cluster: Cluster) -> None:
    for gradients, before, losses, after, trained, _ in cluster.run(scenes.evaluation, 2, "std:1f1b", "all"):
        assert gradients == 0 and before == after == trained == losses


def test_prediction_has_the_outputs_of_the_last_stage(cluster: Cluster) -> None:
    first, last = cluster.run(scenes.prediction, 2)
    assert first == [] and last == [[2, 11]] * 4


def test_inputs_of_all_kinds_are_the_same(cluster: Cluster) -> None:
    for losses in cluster.run(scenes.inputs_of_all_kinds, 2):
        assert all(one == losses[0] for one in losses)


def test_a_stage_in_the_middle_takes_inputs_of_its_own(cluster: Cluster) -> None:
    answers = cluster.run(scenes.inputs_in_the_middle, 2)
    assert answers[1] == pytest.approx([12.0, 24.0])


def test_the_last_module_may_compute_the_loss(cluster: Cluster) -> None:
    _, (with_function, in_module) = cluster.run(scenes.loss_in_the_module, 2)
    assert with_function == in_module


def test_frozen_stages_send_no_gradients(cluster: Cluster) -> None:
    (first, _), (last, all_of_last) = cluster.run(scenes.frozen, 2)
    assert first == 0 and last == all_of_last > 0


def test_a_changed_module_needs_a_reset(cluster: Cluster) -> None:
    for messages in cluster.run(scenes.other_shapes, 1):
        assert "returned float32[4, 8], but before float32[2, 8]" in messages[0]
        assert "call `reset` on all ranks" in messages[0]
        assert "instruction" in messages[1] and "`run @F.s0 m0" in messages[1]
        assert "an earlier step of this runner failed (StageError)" in messages[2]


def test_a_module_can_change_with_a_reset(cluster: Cluster) -> None:
    for _, found in cluster.run(scenes.reset, 2):
        assert found in ([], [4, 4])


def test_replicas_take_over_the_weights_of_the_first(cluster: Cluster) -> None:
    sums = cluster.run(scenes.synchronised, 4)
    assert sums == [sums[0]] * 4


def test_weights_are_updated_alike(cluster: Cluster) -> None:
    answers = cluster.run(scenes.tied_and_trained, 4, str(EXAMPLES / "tied.pipe"))
    assert answers[0] == answers[3] and len(answers[0]) == 3
    assert answers[1] == answers[2] == []


def test_a_mistake_of_one_rank_in_an_evaluation_is_told_to_all(cluster: Cluster) -> None:
    of_first, of_last = cluster.run(scenes.mistakes_of_one_rank, 2)
    expected = [
        (0, "inputs of shape [7] cannot be cut into 4 equal microbatches along their first axis"),
        (0, "rank 0 runs stage 0, which takes inputs, but has none of microbatch 0"),
        (1, "rank 1 runs stage 1, which computes the loss, but has no targets of microbatch 0"),
        (1, "targets of shape [7] cannot be cut into 4 equal microbatches along their first axis"),
        (0, "inputs for stages [9], but `1f1b` has 2"),
        (1, "targets have str where a tensor was expected"),
    ]
    assert len(of_first) == len(of_last) == len(expected)
    for said, (rank, text) in zip(zip(of_first, of_last), expected):
        assert said[rank] == text
        assert said[1 - rank] == f"rank {rank} cannot evaluate its batch: {text}"


def test_a_loss_may_need_no_targets(cluster: Cluster) -> None:
    assert cluster.run(scenes.losses_without_targets, 2) == [[0, 0, 0], [4, 4, 4]]


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ("too_many_stages", r"rank 0 runs d0 of `1f1b`, which has stages \[0\], but a module is given for \[1\]"),
        ("too_few_stages", r"which has stages \[0\], but no module is given for \[0\]"),
        ("wrong_world", r"`1f1b` is for 2 devices, but the group has 1 ranks"),
        ("no_inputs", "which takes inputs, but has none of microbatch 0"),
        ("no_targets", "which computes the loss, but has no targets of microbatch 0"),
        ("no_targets_at_all", "rank 0 runs stage 0, which computes the loss, but has no targets of microbatch 0"),
        ("no_targets_for_a_module", "which computes the loss, but has no targets of microbatch 0"),
        ("too_few_targets", "targets have 2 rows, but inputs have 4: each row needs a target"),
        ("uneven_batch", r"inputs of shape \[7\] cannot be cut into 2 equal microbatches"),
        ("wrong_list", "inputs are a list of 3, but the program has 2 microbatches"),
        ("not_a_tensor", "inputs have str where a tensor was expected"),
        ("unknown_stage", r"inputs for stages \[9\], but `gpipe` has 1"),
        ("loss_with_rows", r"the loss of microbatch 0 is \[2\], expected a tensor with one number"),
        (
            "output_of_words",
            "the module of stage 0 returned str, expected a tensor, or a tuple, dict or dataclass of tensors",
        ),
        ("too_few_values", "hands on 2 values, but its module returned Tensor"),
        ("cuda_on_gloo", "gloo carries tensors of the CPU, not of `cuda:0`"),
        ("tie_unsaid", "stage 3 shares weights with stage 0: say which"),
        ("tie_misspelt", "there is no weight `1.haed.weight`: its stage has `head.weight`, `head.bias`"),
        ("tie_malformed", "`head` is not the name of a weight"),
        ("tie_of_other_shape", r"of shape \[11\] cannot be tied to a weight of shape \[11, 8\]"),
    ],
)
def test_mistakes_are_named(cluster: Cluster, scene: str, message: str) -> None:
    said = [one for one in cluster.run(scenes.mistake, 2, scene) if one is not None]
    assert said
    for one in said:
        assert re.search(message, one), one


def test_replicas_that_differ_are_named(cluster: Cluster) -> None:
    said = [one for one in cluster.run(scenes.mistake, 4, "replicas_that_differ") if one is not None]
    assert said
    for one in said:
        assert "`0.0.table.weight` is float32[11, 8] on d0 and float32[11, 8] without gradients on d1" in one
