from vramscope.collectors.host import Host
from vramscope.memory.host import HostMemory, HostSampled

from ..picture import STARTED_AT, until_on_device  # noqa: TID252 - tests are not packages


def test_what_is_not_known_any_more_is_absent(page):
    assert len(page.of(Host, until_on_device()).splitlines()) == 3
    limit_alone = HostSampled(at=STARTED_AT + 50, memory=HostMemory(limit_bytes=1 << 30))
    assert page.of(Host, [limit_alone]) == "vramscope_host_memory_limit_bytes 1.073741824e+09\n"
    assert page.of(Host, [HostSampled(at=STARTED_AT + 51, memory=HostMemory())]) == ""
