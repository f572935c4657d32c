"""What a job says at its start."""

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import blackhole, values
from clonos.core.model.options import Options
from clonos.job.launch import log_notes


@pytest.mark.parametrize(("effects", "keepers", "is_warned"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_a_job_whose_effects_may_be_repeated_warns_of_it_once(
    effects: bool, keepers: int, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    graph = JobGraph("job")
    graph.source(values([1])).map(abs, name="pay", effects=effects).sink(blackhole(), name="out")
    log_notes(graph.compile(Options(), parallelism=1), keepers)
    warnings = [record.getMessage() for record in caplog.records if "keepers=0" in record.getMessage()]
    assert (len(warnings) == 1 and "may be repeated (at least once)" in warnings[0]) if is_warned else not warnings
