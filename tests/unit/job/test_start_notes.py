"""What a job says at its start."""

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import blackhole, values
from clonos.core.model.options import Options
from clonos.job.launch import log_notes


@pytest.mark.parametrize(("effects", "keepers", "is_told"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_a_job_whose_effects_may_be_repeated_says_so_once(
    effects: bool, keepers: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    graph = JobGraph("job")
    graph.source(values([1])).map(abs, name="pay", effects=effects).sink(blackhole(), name="out")
    log_notes(graph.compile(Options(), parallelism=1), keepers)
    told = [record.getMessage() for record in caplog.records if "keepers=0" in record.getMessage()]
    assert (len(told) == 1 and "may be repeated (at least once)" in told[0]) if is_told else not told
