"""The parts of the local cloud that decide: chaos, order, lineage, and whether code was changed."""

import threading
from collections import Counter

import pytest

from anarchon_ddb.local import sources
from anarchon_ddb.local.chaos import LATEST_S, Chaos, ChaosError
from anarchon_ddb.local.clock import OffsetClock, SharedClock, SimulatedClock
from anarchon_ddb.local.engine import LiveEngine, SimulatedEngine
from anarchon_ddb.local.lineage import Trace

# --- chaos ---------------------------------------------------------------------------------------


def test_chaos_is_read_as_a_person_writes_it():
    chaos = Chaos.parse("kill=0.2, duplicate=0.1,lost-reply=1", seed=7)

    assert chaos == Chaos(kill=0.2, duplicate=0.1, lost_reply=1.0, seed=7)
    assert chaos.as_dict() == {"kill": 0.2, "duplicate": 0.1, "lost-reply": 1.0}
    assert not Chaos.parse("", seed=7)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("explode=1", "no chaos named 'explode': there are kill, duplicate, late, throttle, lost-"),
        ("kill=2", "kill=2: expected a number from 0 to 1, such as kill=0.2"),
        ("kill", "kill=: expected a number"),
        ("kill=nan", "kill=nan: expected a number"),
        ("seed=3", "no chaos named 'seed'"),
    ],
)
def test_what_is_no_chaos_is_refused(text, told):
    with pytest.raises(ChaosError, match=told):
        Chaos.parse(text, seed=1)


def test_a_decision_depends_on_the_seed_and_the_question_and_on_nothing_else():
    first, same, other = Chaos(kill=0.5, seed=1), Chaos(kill=0.5, seed=1), Chaos(kill=0.5, seed=2)
    questions = [("export", number) for number in range(200)]

    answers = [first.happens("kill", *one) for one in questions]

    assert answers == [same.happens("kill", *one) for one in reversed(questions)][::-1]
    assert answers != [other.happens("kill", *one) for one in questions]


def test_faults_are_as_frequent_as_was_asked_for():
    chaos = Chaos(kill=0.2, late=0.1, seed=5)
    fates = [chaos.fate(4, number) for number in range(5_000)]
    late_s = [chaos.lateness_s(number) for number in range(5_000)]

    assert 0.18 < sum(fate is not None for fate in fates) / 5_000 < 0.22
    calls = Counter(fate.at_call for fate in fates if fate is not None)
    assert set(calls) == {0, 1, 2, 3, 4, 5}, "before the first, at each, behind the last"
    assert max(calls.values()) < 1.5 * min(calls.values())
    assert 0.08 < sum(late > 0 for late in late_s) / 5_000 < 0.12
    assert all(60 <= late <= LATEST_S for late in late_s if late)


# --- the order of things -------------------------------------------------------------------------


@pytest.fixture
def simulated(tmp_path):
    clock = SimulatedClock(tmp_path / "clock", 1_000)
    engine = SimulatedEngine(clock)
    engine.start()
    yield engine
    engine.stop()
    clock.close()


def test_simulated_time_jumps_to_what_is_next_and_equal_times_keep_their_order(simulated):
    done = []

    def note(name):
        done.append((name, simulated.clock.now_ms()))

    def plan():
        simulated.after(3600, lambda: note("later"))
        simulated.after(60, lambda: note("first"))
        simulated.after(60, lambda: note("second"))
        simulated.after(60, lambda: simulated.after(1, lambda: note("third")))
        simulated.after(60, lambda: note("never")).cancel()

    simulated.ask(plan)
    simulated.play_until(121_000, lambda: False)

    assert done == [("first", 61_000), ("second", 61_000), ("third", 62_000)]
    assert simulated.clock.now_ms() == 121_000
    simulated.play_until(10_000_000, lambda: False)
    assert done[-1] == ("later", 3_601_000)


def test_children_share_the_simulated_clock(simulated, tmp_path):
    shared = SharedClock(tmp_path / "clock")
    assert shared.now_ms() == 1_000

    simulated.clock.move_to(5_000)
    assert shared.now_ms() == 5_000

    simulated.clock.move_to(4_000)  # never back
    assert shared.now_ms() == 5_000


def test_while_a_sandbox_runs_the_simulated_time_stands_still(simulated):
    class Runner:
        patience_s = 20
        was_overdue = False

        def overdue(self):
            self.was_overdue = True
            simulated.parked(self)

    runner, done = Runner(), []

    def plan():
        simulated.after(1, lambda: done.append(simulated.clock.now_ms()))
        simulated.let_run(runner)

    simulated.ask(plan)
    simulated.post(lambda: done.append("it called"))
    simulated.post(lambda: simulated.parked(runner))
    simulated.play_until(10_000, lambda: False)

    assert done == ["it called", 2_000]
    assert not runner.was_overdue


def test_a_sandbox_that_neither_calls_nor_answers_is_overdue(simulated):
    ended = threading.Event()

    class Runner:
        patience_s = 0.01

        def overdue(self):
            ended.set()
            simulated.parked(self)

    runner = Runner()
    simulated.ask(lambda: simulated.let_run(runner))

    assert ended.wait(20)


def test_an_action_that_fails_is_logged_and_the_rest_goes_on(caplog):
    engine, done = LiveEngine(OffsetClock()), threading.Event()
    engine.start()
    engine.post(lambda: 1 / 0)
    engine.post(lambda: engine.after(0.001, done.set))

    assert done.wait(20)
    with pytest.raises(ZeroDivisionError):
        engine.ask(lambda: 1 / 0)
    engine.stop()
    assert "ZeroDivisionError" in caplog.text


# --- lineage and sources -------------------------------------------------------------------------


def test_a_chain_of_invocations_is_counted_by_function():
    trace = Trace.fresh("4ab86dd9-6bc1-4400-ab81-8126af988c00")
    for function in ("a", "b", "a"):
        trace = Trace.parse(trace.through(function).header())

    assert (trace.times("a"), trace.times("b"), trace.times("c")) == (2, 1, 0)
    assert Trace.parse("") is None
    assert Trace.parse("Root=1-2-3").times("a") == 0


def test_code_is_changed_when_a_python_file_is(tmp_path):
    (tmp_path / "job.py").write_text("a = 1\n")
    (tmp_path / ".venv").mkdir()
    before = sources.fingerprint(tmp_path)

    (tmp_path / ".venv" / "other.py").write_text("")
    (tmp_path / "data.csv").write_text("1")
    assert sources.fingerprint(tmp_path) == before

    (tmp_path / "job.py").write_text("a = 10\n")
    changed = sources.fingerprint(tmp_path)
    assert changed != before
    (tmp_path / "new.py").write_text("")
    assert sources.fingerprint(tmp_path) != changed
