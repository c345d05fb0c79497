"""Whether the Hugging Face hub answers, and how far its clock is from ours. Only asked with --online."""

import http.client
import urllib.error
import urllib.request
from email.message import Message
from email.utils import parsedate_to_datetime

from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.errors import reason_of
from vramscope.settings import ADDRESS_ADVICE, hub_address, is_offline, odd_endpoint
from vramscope.units import format_seconds

ENDPOINT = "https://huggingface.co"
ANSWER_SECONDS = 8.0
SKEW_SECONDS = 300


def _look(machine: Machine) -> Finding:
    endpoint = hub_address(machine.environment.get("HF_ENDPOINT") or ENDPOINT)
    offline = is_offline(machine.environment)
    if not machine.online:
        found = "not asked" + (", and HF_HUB_OFFLINE forbids downloads" if offline else "")
        return Finding(state=State.NOTE, found=found, advice="`vramscope doctor --online` asks it")
    if not endpoint:
        return Finding(state=State.WARNING, found=odd_endpoint(machine.environment), advice=ADDRESS_ADVICE)
    try:
        headers = _ask(f"{endpoint}/api/models?limit=1")
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        reason = reason_of(cause) if isinstance(cause, Exception) else cause
        advice = "look at the network, the proxy (HTTPS_PROXY) and HF_ENDPOINT; models that are here load without it"
        return Finding(state=State.WARNING, found=f"{endpoint} does not answer: {reason}", advice=advice)
    return _judge(machine, endpoint, headers, offline=offline)


def _ask(address: str) -> Message:
    """The headers of the hub's answer, whatever it is: an error's too prove that it answers. Raises OSError."""
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - http or https, which was checked
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - as above
            return answer.headers  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:
        return error.headers


def _judge(machine: Machine, endpoint: str, headers: Message, *, offline: bool) -> Finding:
    skew = _skew(headers.get("Date", ""), machine.clock())
    if skew is not None and abs(skew) > SKEW_SECONDS:
        side = "ahead of" if skew > 0 else "behind"
        found = f"{endpoint} answers, and our clock is {format_seconds(abs(skew))} {side} its"
        return Finding(state=State.WARNING, found=found, advice="set the clock: `sudo timedatectl set-ntp true`")
    if offline:
        found = f"{endpoint} answers, but HF_HUB_OFFLINE forbids downloads"
        return Finding(state=State.NOTE, found=found, advice="unset it for plans that download")
    return Finding(state=State.OK, found=f"{endpoint} answers")


def _skew(date: str, now: float) -> float | None:
    """Seconds that we are ahead of a Date header; None where it is none."""
    try:
        return now - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


CHECK = Check(title="hub", look=_look, seconds=ANSWER_SECONDS + 2)
