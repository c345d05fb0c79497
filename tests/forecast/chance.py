"""Plans by chance: every step can work, as far as there is memory for it."""

from tests.forecast.sketch import CARD


def block(times, steps):
    inside = "".join(f"    {line}\n" for line in steps.splitlines())
    return f"- repeat:\n    times: {times}\n    steps:\n{inside}"


def random_steps(chance, places, depth=2, most=5, cards=(CARD,)):
    """Steps that leave every model where it was, so that they can be repeated; `places` maps it to its device."""
    before, text = dict(places), ""
    for _ in range(chance.randint(most // 2, most)):
        name, kind = chance.choice(list(places)), chance.random()
        if kind < 0.15:
            text += "- release\n"
        elif kind < 0.35 and depth:
            text += block(chance.randint(2, 6), random_steps(chance, places, depth - 1, most, cards))
        else:
            text += random_move(chance, name, places, cards)
    return text + "".join(put(name, before[name], places) for name in places)


def random_move(chance, name, places, cards):
    others = [place for place in ("", "cpu", "cpu", *cards) if place != places[name]]
    return put(name, chance.choice(others), places)


def put(name, place, places):
    """The step that brings a model to a place, if it is not there."""
    was, places[name] = places[name], place
    if was == place:
        return ""
    if not place:
        return f"- unload: {name}\n"
    return f"- {'move' if was else 'load'}: {{model: {name}, to: '{place}'}}\n"
