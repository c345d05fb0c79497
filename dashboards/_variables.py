"""The choices above each dashboard. All dashboards have the same, so that a link takes them along."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import VariableModel, VariableOption, VariableRefresh, VariableSort

from dashboards._queries import SOURCE, of

# Also matches an absent label: a step without a model, such as wait, belongs to every model.
EVERYTHING = ".*"
INSTANCES = "label_values(vramscope_build_info, instance)"
# A card that PyTorch does not use is known to the driver only, and one without a driver to PyTorch only.
DEVICES = of("", __name__='=~"vramscope_nvml_up|vramscope_torch_reserved_bytes"')


def one_instance() -> Sequence[Builder[VariableModel]]:
    """For the dashboards that look into one daemon."""
    return [_source(), _query("instance", "Instance", INSTANCES), *_parts()]


def all_instances() -> Sequence[Builder[VariableModel]]:
    """For the dashboard that compares daemons."""
    return [_source(), _all(_query("instance", "Instance", INSTANCES)), *_parts()]


def one_model() -> Sequence[Builder[VariableModel]]:
    """For the dashboard about a model."""
    return [*one_instance()[:-1], _model()]


def _source() -> builders.DatasourceVariable:
    chosen = VariableOption(text="Prometheus", value="prometheus")
    return builders.DatasourceVariable("datasource").label("Data source").type("prometheus").current(chosen)


def _parts() -> Sequence[builders.QueryVariable]:
    return [_all(_query("device", "Device", f"label_values({DEVICES}, device)")), _all(_model())]


def _model() -> builders.QueryVariable:
    return _query("model", "Model", f"label_values({of('vramscope_model_state')}, model)")


def _query(name: str, label: str, query: str) -> builders.QueryVariable:
    variable = builders.QueryVariable(name).label(label).datasource(SOURCE).query(query).definition(query)
    return variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.NATURAL_ASC)


def _all(variable: builders.QueryVariable) -> builders.QueryVariable:
    everything = VariableOption(text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(EVERYTHING).current(everything)
