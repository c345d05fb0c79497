from vramscope.memory.ledger import ledger
from vramscope.memory.owners import OWNERS, shares
from vramscope.memory.snapshot import AllocatorMemory, DeviceSnapshot, DriverMemory

DEVICE = DeviceSnapshot(device="cuda:0", backend="cuda", allocator=AllocatorMemory())


def test_every_owner_of_the_ledger_has_a_name_and_a_meaning():
    names = {each.owner: each for each in OWNERS}
    for own in (0, None):
        driver = DriverMemory(total_bytes=9, used_bytes=5, process_used_bytes=own)
        for owner in ledger(DEVICE, driver, ()):
            assert names[owner].name
            assert names[owner].meaning


def test_a_ledger_comes_in_the_order_of_a_bar_whatever_its_own():
    found = shares({"free": 3, "something_else": 4, "buffers": 2, "parameters": 1})
    assert [(each.owner.name, each.nbytes) for each in found] == [
        ("parameters", 1),
        ("buffers", 2),
        ("free", 3),
        ("something else", 4),
    ]
