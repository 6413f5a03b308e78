"""`af bench sandbox`: what was measured is told, held to its bounds, and says so by the exit code."""

import json

import pytest

from agentflow.cli import benchmarks, main
from agentflow.contracts.measured import Measured, Spread

QUICK, SLOW = Spread(5.0, 12.0, 40), Spread(101.0, 120.0, 40)


@pytest.fixture
def machine(monkeypatch):
    """What each sandbox of a machine would say; one that is not in here is not there either."""
    said: dict[str, Measured] = {}

    def answer(_module, _kind, name, *_arguments, within_s):
        return said.get(name, Measured(name, reason="There is no `runsc`.", hint="Install it."))

    monkeypatch.setattr(benchmarks, "answer_of", answer)
    return said


def here(name: str, warm: Spread | None) -> dict[str, Measured]:
    return {name: Measured(name, cold=Spread(180.0, 200.0, 8), warm=warm)}


@pytest.mark.parametrize(
    ("name", "warm", "holds"),
    [
        ("docker", QUICK, True),
        ("docker", Spread(100.0, 400.0, 40), True),
        ("docker", SLOW, False),
        ("gvisor", Spread(50.0, 401.0, 40), False),
        ("gvisor-docker", SLOW, False),
        ("wasm", QUICK, False),
        ("wasm", Spread(0.5, 9.9, 40), True),
        ("process", None, None),
    ],
)
def test_warm_calls_are_held_to_the_bounds_of_their_sandbox(name, warm, holds, machine, capsys):
    machine.update(here(name, warm))

    code = main.af(["bench", "sandbox", name, "--json", "--check"])

    assert json.loads(capsys.readouterr().out)[0]["holds"] is holds
    assert code == (0 if holds else 2)


def test_a_slow_machine_is_only_told_of_unless_it_is_to_be_checked(machine, capsys):
    machine.update(here("docker", SLOW))

    assert main.af(["bench", "sandbox"]) == 0

    assert "100 / 400 do not hold" in capsys.readouterr().out


def test_a_sandbox_that_is_not_here_is_told_with_how_to_get_it(machine, capsys):
    machine.update(here("docker", QUICK))

    assert main.af(["bench", "sandbox", "--check"]) == 0, "the others were not asked for by name"

    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == [
        "SANDBOX", "process", "docker", "gvisor", "gvisor-docker", "wasm",
    ]  # fmt: skip
    assert "gvisor: There is no `runsc`.\n  try: Install it." in told.err


def test_one_that_was_named_must_be_here(machine, capsys):
    machine.update(here("docker", QUICK))

    assert main.af(["bench", "sandbox", "docker", "gvisor", "--check"]) == 2
    assert "gvisor: it was named and is not here." in capsys.readouterr().err


def test_a_check_that_measured_nothing_does_not_pass(machine, capsys):
    assert main.af(["bench", "sandbox", "--check"]) == 2
    assert "None of the sandboxes that have a bound was measured." in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["dcker", "--calls=4", "--calls=1001", "--cold=1", "--cold=201"])
def test_what_cannot_be_measured_is_refused_before_anything_runs(wrong, machine, capsys):
    assert main.af(["bench", "sandbox", wrong]) == 2
    assert "measuring" not in capsys.readouterr().err
