import threading

from vramscope.doctor._frame import Check, Finding, State, examine

GOOD = Check(title="good", look=lambda _machine: Finding(state=State.OK, found="fine"))


def test_a_check_that_fails_says_so_and_the_others_go_on(machine):
    def broken(_machine):
        raise RuntimeError("no such luck")

    first, second = examine({"broken": Check(title="broken", look=broken), "good": GOOD}, machine())
    assert first.finding.state is State.WARNING
    assert first.finding.found == "the check itself failed: RuntimeError: no such luck"
    assert second.finding == Finding(state=State.OK, found="fine")


def test_a_check_that_hangs_is_left_behind_at_its_deadline(machine):
    released = threading.Event()

    def hung(_machine):
        released.wait(60)
        return Finding(state=State.OK, found="late")

    first, second = examine({"hung": Check(title="hung", look=hung, seconds=0.2), "good": GOOD}, machine())
    released.set()
    assert (first.finding.state, first.finding.found) == (State.WARNING, "no answer within 0.2 s")
    assert second.finding.state is State.OK


def test_checks_run_side_by_side(machine):
    """Each waits for the other: one after the other they would both run into their deadline."""
    meeting = threading.Barrier(2)

    def meet(_machine):
        meeting.wait(30)
        return Finding(state=State.OK, found="met")

    check = Check(title="meet", look=meet, seconds=30)
    assert [each.finding.found for each in examine({"a": check, "b": check}, machine())] == ["met", "met"]
