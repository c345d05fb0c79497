import pytest

from vramscope.memory.leftovers import leftovers
from vramscope.memory.residue import PlaceResidue, Residue, SizeClass

MIB = 1 << 20


def told(causes, after="unload", where="cuda:0", live=()):
    place = PlaceResidue(where=where, causes=causes, level_bytes=0, live=live)
    (found,) = leftovers(Residue(model="qwen", after=after, places=(place,)))
    return found


def test_nothing_left_is_said_without_a_cause():
    found = told({"live_tensors": 0, "allocator_cache": 0, "context_growth": 0})
    assert (found.text, found.nbytes, found.causes) == ("gave everything back", 0, ())


def test_each_cause_has_a_sentence_with_its_bytes():
    live = (SizeClass(label="under 1 MiB", count=1200, nbytes=MIB), SizeClass(label="1 to 10 MiB", count=1, nbytes=MIB))
    found = told({"live_tensors": 2 * MIB, "allocator_cache": MIB, "context_growth": 512}, live=live)
    assert found.text == "3.0 MiB (3,146,240 bytes) left"
    tensors, cache, context = (each.text for each in found.causes)
    assert tensors == (
        "2.0 MiB (2,097,152 bytes): 1,201 tensors (1,200 x under 1 MiB, 1 x 1 to 10 MiB) that no loaded model owns and "
        "that something still refers to."
    )
    assert "the step release gives them back" in cache
    assert context.startswith("512 bytes: ")


def test_a_cache_that_a_release_left_is_not_promised_to_the_next_release():
    (cause,) = told({"allocator_cache": MIB}, after="release").causes
    assert "step release" not in cause.text
    assert "share segments" in cause.text


@pytest.mark.parametrize("cause", ["other_processes", "outside_allocator"])
def test_what_others_took_is_told_and_is_no_residue(cause):
    found = told({"live_tensors": 0, cause: MIB})
    assert (found.text, found.nbytes) == ("gave everything back", 0)
    assert [(each.cause, each.is_own) for each in found.causes] == [(cause, False)]


def test_the_host_comes_last_and_speaks_of_ram():
    places = tuple(
        PlaceResidue(where=where, causes={"process": 1} if where == "host" else {}, level_bytes=0)
        for where in ("host", "cuda:0", "cuda:1")
    )
    *devices, host = leftovers(Residue(model="qwen", after="unload", places=places))
    assert [each.where for each in devices] == ["cuda:0", "cuda:1"]
    assert host.causes[0].text.startswith("1 byte: what Python")


def test_json_has_every_part():
    assert told({"allocator_cache": 7}).as_json() == {
        "where": "cuda:0",
        "bytes": 7,
        "text": "7 bytes left",
        "causes": [
            {
                "cause": "allocator_cache",
                "bytes": 7,
                "own": True,
                "text": "7 bytes: free blocks that PyTorch keeps as a cache; the step release gives them back.",
            }
        ],
    }
