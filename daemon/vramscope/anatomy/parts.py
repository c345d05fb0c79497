"""A part of a model: the tensors of some layers, of some components, or of both together, chosen by name alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vramscope.anatomy.census import layer_of
from vramscope.anatomy.components import Component, component_of
from vramscope.errors import PartError

LAST_LAYER = 999_999
Run = tuple[int, int]  # the first and the last of consecutive layers, both included


@dataclass(frozen=True, kw_only=True)
class Part:
    """Every tensor that `layers` or `components` names, as in a device map; make it with `part_of`.

    `layers` are runs in ascending order that do not touch. A layer is named by its number in whichever stack it is:
    where a model has an encoder and a decoder, layer 0 is the first of each.
    """

    layers: tuple[Run, ...] = ()
    components: tuple[Component, ...] = ()

    def __str__(self) -> str:
        layers = [f"layers {runs_text(self.layers)}"] if self.layers else []
        return ", ".join([*layers, *self.components])

    def indices(self, names: Sequence[str]) -> tuple[int, ...]:
        """Positions of the part's tensors among all of a model's, in their order.

        A tied tensor is one tensor with one name, its first. Raises PartError where the part names something that the
        model does not have.
        """
        layers, components = [_number(name) for name in names], [component_of(name) for name in names]
        self._check_layers({number for number in layers if number is not None})
        self._check_components(set(components))
        return tuple(
            index
            for index, (layer, component) in enumerate(zip(layers, components, strict=True))
            if component in self.components or (layer is not None and self._has(layer))
        )

    def _has(self, layer: int) -> bool:
        return any(first <= layer <= last for first, last in self.layers)

    def _check_layers(self, there: set[int]) -> None:
        missing = next((n for first, last in self.layers for n in range(first, last + 1) if n not in there), None)
        if missing is None:
            return
        has = f"layers {runs_text(_joined((n, n) for n in there))}" if there else "no numbered layers"
        raise PartError(f"the model has no layer {missing}: it has {has}")

    def _check_components(self, there: set[Component]) -> None:
        for component in self.components:
            if component not in there:
                has = ", ".join(each for each in Component if each in there) or "no tensors"
                hint = "a head that is tied to the embedding is the embedding" if component is Component.LM_HEAD else ""
                raise PartError(f"the model has no {component}: it has {has}", hint=hint)


def part_of(layers: Iterable[Run], components: Iterable[Component]) -> Part | None:
    """The part that these name; None, which is the whole model, where they name nothing."""
    named = set(components)
    part = Part(layers=_joined(layers), components=tuple(each for each in Component if each in named))
    return part if part.layers or part.components else None


def chosen(part: Part | None, names: Sequence[str]) -> tuple[int, ...]:
    """Positions of the part's tensors, or of all where there is no part. Raises PartError as Part.indices does."""
    return tuple(range(len(names))) if part is None else part.indices(names)


def runs_text(runs: Iterable[Run]) -> str:
    """Layers as a plan writes them: 0-11,20."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Runs in order, those that overlap or follow each other as one."""
    joined: list[Run] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def _number(name: str) -> int | None:
    place = layer_of(name)
    return None if place is None else place[1]
