"""The circuit breaker, with the clock in our hands."""

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.policies.circuit import Circuit, CircuitRules, CircuitState

RULES = CircuitRules(failures=3, window_s=10, open_s=5, probes=1)


def failing(circuit: Circuit, at_s: float) -> None:
    era = circuit.admit(at_s)
    assert era is not None
    circuit.failed(era, at_s)


def opened(at_s: float = 0.0) -> Circuit:
    circuit = Circuit(RULES)
    for _ in range(3):
        failing(circuit, at_s)
    return circuit


def test_it_opens_after_enough_failures_within_the_window_and_refuses_until_its_rest_is_over():
    circuit = opened()

    assert circuit.state(0) is CircuitState.OPEN
    assert circuit.admit(4.9) is None
    assert circuit.closed_in_s(4.0) == 1.0
    assert circuit.admit(5.0) is not None


def test_failures_that_are_far_apart_do_not_open_it():
    circuit = Circuit(RULES)
    for number in range(20):
        failing(circuit, number * 6.0)

    assert circuit.state(200) is CircuitState.CLOSED


def test_one_probe_is_let_through_and_its_success_closes_it():
    circuit = opened()
    probe = circuit.admit(5)

    assert circuit.admit(5) is None, "no second one beside it"
    circuit.succeeded(probe)

    assert circuit.state(5) is CircuitState.CLOSED


def test_a_failed_probe_opens_it_for_another_rest():
    circuit = opened()
    circuit.failed(circuit.admit(5), 6)

    assert circuit.state(10.9) is CircuitState.OPEN
    assert circuit.state(11) is CircuitState.HALF_OPEN


def test_a_probe_whose_caller_went_away_makes_room_for_another():
    circuit = opened()
    circuit.abandoned(circuit.admit(5))

    assert circuit.admit(5) is not None


def test_a_call_from_before_it_opened_says_nothing_about_the_probe():
    circuit = Circuit(RULES)
    early = circuit.admit(0)
    for _ in range(3):
        failing(circuit, 0)
    circuit.succeeded(early)
    circuit.failed(early, 1)

    assert circuit.state(1) is CircuitState.OPEN
    assert circuit.state(5) is CircuitState.HALF_OPEN, "the rest was not begun anew"


steps = st.lists(
    st.tuples(st.floats(0, 4, allow_nan=False), st.sampled_from(["call", "succeed", "fail", "leave"])), max_size=60
)


@settings(deadline=None)
@given(steps)
def test_whatever_happens_it_never_lets_more_probes_through_than_allowed_and_always_recovers(story):
    rules = CircuitRules(failures=2, window_s=10, open_s=3, probes=2)
    circuit, now_s = Circuit(rules), 0.0
    under_way: list[tuple[int, bool]] = []
    for pause_s, what in story:
        now_s += pause_s
        if what == "call":
            half_open = circuit.state(now_s) is CircuitState.HALF_OPEN
            era = circuit.admit(now_s)
            if era is not None:
                under_way.append((era, half_open))
        elif under_way:
            era, _ = under_way.pop(0)
            match what:
                case "succeed":
                    circuit.succeeded(era)
                case "fail":
                    circuit.failed(era, now_s)
                case "leave":
                    circuit.abandoned(era)
        newest = max((era for era, _ in under_way), default=-1)
        assert sum(probe and era == newest for era, probe in under_way) <= rules.probes

    for era, _ in under_way:
        circuit.abandoned(era)
    now_s += rules.open_s
    for _ in range(rules.probes):
        era = circuit.admit(now_s)
        if era is not None:
            circuit.succeeded(era)
    assert circuit.state(now_s) is CircuitState.CLOSED
