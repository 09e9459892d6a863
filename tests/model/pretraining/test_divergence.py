"""A phase stops when the mean loss of the last 50 steps rises above the lowest such mean."""

from __future__ import annotations

from model.pretraining.setup import PhaseState


def _first_reason(losses: list[float], *, max_rise: float) -> tuple[int, str]:
    """Number of the first loss that stops the phase, from 1, and the reason; 0 for none."""
    state = PhaseState()
    for number, loss in enumerate(losses, 1):
        state = PhaseState.model_validate(state.model_dump())  # as a resumed training has it
        if reason := state.check_divergence(loss, max_rise=max_rise):
            return number, reason
    return 0, ""


def test_phase_stops_when_mean_of_fifty_losses_has_risen() -> None:
    losses = [4.0] * 10 + [2.0] * 50 + [3.0] * 50  # the lowest mean is that of steps 11 to 60
    number, reason = _first_reason(losses, max_rise=0.49)
    assert number == 60 + 25  # mean 2.5
    assert "from 2.000 to 2.500" in reason
    assert "divergence_threshold = 0.49" in reason
    assert _first_reason(losses, max_rise=0.5)[0] == 60 + 26
    assert _first_reason(losses, max_rise=1.0) == (0, "")


def test_no_phase_stops_without_a_limit_or_before_fifty_losses() -> None:
    assert _first_reason([1.0] * 60 + [9.0] * 60, max_rise=0.0) == (0, "")
    assert _first_reason([1.0] * 25 + [9.0] * 24, max_rise=0.1) == (0, "")
