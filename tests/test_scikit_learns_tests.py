"""Run scikit-learn's own tests of PCA with FederatedPCA over three clients in its place.

EXCEPT says which of them are left out, and why. It is strict: one that is listed and passes fails here.
"""

import importlib.util
from fnmatch import fnmatch

import numpy as np
import pytest
import sklearn
import sklearn.decomposition
from cases import every
from sklearn.utils import _array_api

from flower_pca import FederatedPCA

if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9):
    pytest.skip("the table is that of scikit-learn 1.9 and later", allow_module_level=True)

SOLVERS = "There is no svd_solver to choose: all runs are federated ones, and each finds every component."
MESSAGE = "The same is refused, in this package's words."
EXCEPT = {
    "test_sparse_pca_solver_error*": SOLVERS,
    "test_n_components_none*arpack*": SOLVERS,
    "test_n_components_mle_error*": SOLVERS,
    "test_pca_svd_solver_auto*": SOLVERS,
    "test_pca_validation*arpack-2*": SOLVERS,
    "test_pca_validation*-0-*": MESSAGE,
    "test_pca_validation*auto-3-*": MESSAGE,
    "test_fit_mle_too_few_samples": MESSAGE,
    "test_pca_score3": "At least one component has to be asked for.",
    "test_pca_score[[]*": (
        "It wants whitened rows to be less likely. Whitening changes what transform returns, not the density of the "
        "rows; scikit-learn's get_covariance of a whitened PCA is not the covariance of its rows."
    ),
    "test_pca_zero_noise_variance_edge_cases*": (
        "Where the rows have no variance in some direction there is no density, and score says so. scikit-learn "
        "inverts the singular matrix, and returns what rounding makes of it."
    ),
}


class PCA(FederatedPCA):
    """FederatedPCA with the parameters of scikit-learn's PCA, which deals the rows out to three clients."""

    def __init__(
        self,
        n_components=None,
        *,
        copy=True,
        whiten=False,
        svd_solver="auto",
        iterated_power="auto",
        n_oversamples=10,
        power_iteration_normalizer="auto",
        random_state=0,
    ):
        super().__init__(n_components, whiten=whiten, tol=1e-12, random_state=random_state)
        self.copy, self.svd_solver, self.iterated_power = copy, svd_solver, iterated_power
        self.n_oversamples, self.power_iteration_normalizer = n_oversamples, power_iteration_normalizer

    def fit(self, X, y=None):
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        return super().fit(X, sites=np.arange(n) % 3)


def theirs():
    """A copy of scikit-learn's module of tests that has found our PCA where it looked for its own."""
    spec = importlib.util.find_spec("sklearn.decomposition.tests.test_pca")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sklearn.decomposition, "PCA", PCA)
        combinations = list(_array_api.yield_namespace_device_dtype_combinations())  # pytest wants a list
        patch.setattr(_array_api, "yield_namespace_device_dtype_combinations", lambda: combinations)
        spec.loader.exec_module(module)
    module.SPARSE_M, module.SPARSE_N = 200, 60  # of 1000 x 300, which are "arbitrary" there
    for test in vars(module).values():
        if hasattr(test, "pytestmark"):
            test.pytestmark = [once(mark) for mark in test.pytestmark]
    return module


def once(mark):
    """Here all solvers are one, and of sparse rows one class is as good as the other of its kind."""
    if mark.name == "parametrize" and mark.args[0] in ("svd_solver", "other_svd_solver", "solver"):
        return pytest.mark.parametrize(mark.args[0], mark.args[1][-1:]).mark
    if mark.name == "parametrize" and mark.args[0] == "sparse_container":
        return pytest.mark.parametrize(mark.args[0], mark.args[1][::2]).mark
    return mark


# Those on arrays of other libraries are about what numpy and scipy.sparse do not make.
globals().update({k: test for k, test in vars(theirs()).items() if k.startswith("test_") and "array_api" not in k})
for name in ("test_pca_sparse", "test_pca_svd_solver_auto", "test_sparse_pca_solver_error"):
    pytest.mark.slow(globals()[name])


@pytest.fixture(autouse=True)
def but_for_the_exceptions(request):
    for pattern, reason in EXCEPT.items():
        if fnmatch(request.node.name, pattern):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture
def global_dtype():  # that of scikit-learn's tests where nobody chooses another
    return np.float64


@every("pattern", EXCEPT)
def test_every_exception_is_of_a_test_that_is_there(pattern):
    assert pattern.partition("*")[0].partition("[")[0] in globals()


def test_a_whitened_pca_of_scikit_learn_has_another_covariance_than_its_rows():
    X = np.random.default_rng(0).standard_normal((50, 3)) * [3.0, 2.0, 1.0]
    ours, theirs = (kind(3, whiten=True).fit(X).get_covariance() for kind in (PCA, sklearn.decomposition.PCA))
    np.testing.assert_allclose(ours, np.cov(X.T), rtol=1e-10)
    assert np.abs(theirs - np.cov(X.T)).max() > 1.0
