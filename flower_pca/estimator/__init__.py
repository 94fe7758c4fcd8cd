"""For scikit-learn: FederatedPCA, a run behind its interface; to_sklearn, a result as its PCA.

This room alone imports scikit-learn at its top.
"""

from flower_pca.estimator.federated import FederatedPCA as FederatedPCA
from flower_pca.estimator.federated import to_sklearn as to_sklearn
