"""What runs of krylov reveal with few columns and with many, as docs/privacy.md and docs/data-protection.md say it."""

import numpy as np
import pytest

from flower_pca import simulate
from flower_pca.audit import audit
from sims.common import problems

pytestmark = pytest.mark.slow


def test_with_sixty_columns_the_server_knows_all_numbers_of_c_after_nine_messages():
    """The rows are those of the table on the page: `python -m sims.leak --only table`."""
    X = problems.synthetic(1600, problems.geometric(60, 1.05), seed=0)
    shards = [S + 0.01 * np.random.default_rng([1, i]).standard_normal(60) for i, S in enumerate(problems.evenly(X, 4))]
    seen = audit("krylov", shards, n_components=4)
    assert {leak.message for leak in seen.leaks if leak.numbers == leak.unknowns} == {9}
    assert all(leak.numbers == leak.unknowns == 1830 for leak in seen.leaks if leak.message == 9)
    assert len(seen.result.history) == 9


def test_with_ten_columns_the_server_knows_all_numbers_of_c_after_two_messages():
    X = problems.synthetic(800, problems.geometric(10, 1.2), seed=0)
    seen = audit("krylov", problems.evenly(X, 3), n_components=3)
    assert all(leak.numbers == leak.unknowns for leak in seen.leaks if leak.message == 2)
    assert all(leak.exact < 1e-9 for leak in seen.leaks if leak.message == 2)


def test_with_many_columns_a_run_is_far_shorter_than_it_would_take():
    d, k = 600, 4
    X = problems.synthetic(800, problems.geometric(d, 1.05), seed=0)
    result = simulate("krylov", problems.evenly(X, 4), n_components=k)
    assert result.status.ok
    assert len(result.history) < 0.2 * d / (2 * k)
