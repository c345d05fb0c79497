"""How hypothesis draws: the same examples in every run, so that a run judges the change and not its luck.

`make fuzz` draws others each time, and more of them.
"""

from hypothesis import HealthCheck, settings

# A busy machine is no finding, and the examples of a test may share its directory.
_common = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.register_profile("steady", _common, max_examples=200, derandomize=True, database=None)
settings.register_profile("fuzz", _common, max_examples=5000, print_blob=True)
settings.load_profile("steady")
