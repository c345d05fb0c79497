from vramscope.web.refusals import QUIET_SECONDS, REASONS_KEPT, Refusals


def test_a_reason_is_logged_once_a_minute_with_how_many_there_were_in_between(caplog):
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    for _ in range(5):
        refusals.tell("tls_refused", "wrong version number")
    refusals.tell("tls_refused", "certificate has expired")
    now[0] = QUIET_SECONDS
    refusals.tell("tls_refused", "wrong version number")
    assert [record.reason for record in caplog.records] == [
        "wrong version number",
        "certificate has expired",
        "wrong version number",
    ]
    assert caplog.records[-1].more_since_last_line == 4


def test_memory_is_bounded():
    refusals = Refusals()
    for number in range(3 * REASONS_KEPT):
        refusals.tell("authentication_refused", "unknown user", f"192.0.2.{number}")
    assert len(refusals._told) <= REASONS_KEPT
