"""Transparent huge pages: with them a load touches its memory in 2 MiB steps, which costs a seventh of 4 KiB steps."""

import re

from vramscope.doctor._frame import Check, Finding, Machine, State

FILE = "sys/kernel/mm/transparent_hugepage/enabled"


def _look(machine: Machine) -> Finding:
    text = machine.read(FILE)
    match = re.search(r"\[(\w+)\]", text or "")
    if match is None:
        return Finding(state=State.NOTE, found="the kernel does not say whether it has transparent huge pages")
    if match[1] == "never":
        advice = f"`echo madvise | sudo tee /{FILE}`: loads ask for huge pages themselves"
        return Finding(state=State.NOTE, found="switched off: loads take longer", advice=advice)
    return Finding(state=State.OK, found=match[1])


CHECK = Check(title="transparent huge pages", look=_look)
