"""The scikit-learn estimator FederatedPCA, which fits by a federated run, and to_sklearn, which converts a result.

No other part of the package imports scikit-learn at module level.
"""

from flower_pca.estimator.federated import FederatedPCA as FederatedPCA
from flower_pca.estimator.federated import to_sklearn as to_sklearn
