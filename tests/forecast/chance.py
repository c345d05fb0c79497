"""Plans by chance: every step can work, as far as there is memory for it."""

from typing import NamedTuple

from tests.forecast.sketch import CARD

IN_PARTS = "parts"
PARTS = (
    "layers: 0",
    "layers: [0, 1]",
    "layers: 1, components: embedding",
    "components: [attention, norm]",
    "components: [mlp, embedding]",
)


class Scope(NamedTuple):
    """The cards that there are, and the parts of models that some steps are about."""

    cards: tuple[str, ...] = (CARD,)
    parts: tuple[str, ...] = ()


def block(times, steps):
    inside = "".join(f"    {line}\n" for line in steps.splitlines())
    return f"- repeat:\n    times: {times}\n    steps:\n{inside}"


def random_steps(chance, places, depth=2, most=5, scope=Scope()):
    """Steps that leave every model where it was, so that they can be repeated; `places` maps it to its device.

    A model whose parts may be on several devices is IN_PARTS.
    """
    before, text = dict(places), ""
    for _ in range(chance.randint(most // 2, most)):
        name, kind = chance.choice(list(places)), chance.random()
        if kind < 0.15:
            text += "- release\n"
        elif kind < 0.35 and depth:
            text += block(chance.randint(2, 6), random_steps(chance, places, depth - 1, most, scope))
        elif scope.parts and chance.random() < 0.6:
            text += random_part(chance, name, places, scope)
        else:
            text += random_move(chance, name, places, scope)
    for name, place in before.items():
        is_left = place == IN_PARTS != places[name]  # which of its parts were where is forgotten
        text += random_part(chance, name, places, scope) if is_left else put(name, place, places)
    return text


def random_move(chance, name, places, scope):
    others = [place for place in ("", "cpu", "cpu", *scope.cards) if place != places[name]]
    return put(name, chance.choice(others), places)


def random_part(chance, name, places, scope):
    """A load or a move of a part: never to the place where all of the model is."""
    was = places[name]
    to = chance.choice([place for place in (*scope.cards, *(["cpu"] if was else [])) if place != was])
    places[name] = IN_PARTS
    return f"- {'move' if was else 'load'}: {{model: {name}, to: '{to}', {chance.choice(scope.parts)}}}\n"


def put(name, place, places):
    """The step that brings a model to a place, if it is not there."""
    was, places[name] = places[name], place
    if was == place:
        return ""
    if not place:
        return f"- unload: {name}\n"
    return f"- {'move' if was else 'load'}: {{model: {name}, to: '{place}'}}\n"
