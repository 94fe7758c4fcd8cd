"""Two clients in three or four dimensions: Fig. 1, and the perturbed covariances of Fig. 10 and 11."""

from __future__ import annotations

from typing import Final

import numpy as np

from sims.common import report
from sims.personal import methods, problems
from sims.personal.problems import Array
from sims.personal.runs import fit

THETA1: Final = 0.127  # of Fig. 1
EPSILON: Final = 1e-3  # how far the sample covariances are from the true ones
ALPHA: Final = np.pi / 6  # how far the leading direction of the signal is turned from the shared one
GAMMA: Final = np.pi / 5  # theta = sin^2 gamma, where it is not varied
RHO: Final = 0.5  # the third eigenvalue, where it is not varied; the eigengap is 1 - rho


def fig1(opts: report.Options) -> report.Found:
    """Standard PCA beside personalized PCA on two clients."""
    rows: list[list[object]] = [["method", "shared, off", "own, off", "rebuilt with an error of"]]
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in opts.each():
        split = problems.two_planes(THETA1, seed)
        S, sizes = methods.covariances(split.shards), [len(X) for X in split.shards]
        U, V = fit("per_pca(local_init='random', eta=0.1, max_rounds=2000)", split.shards, 1, seed=seed + 500)
        common = methods.cpca(S, sizes, 2)
        for name, shared, own in (("PerPCA", U, V), ("one PCA for all", common[0][:, :1], [B[:, 1:] for B in common])):
            errors = problems.error(split, shared, own)
            rebuilt = float(np.mean(methods.rebuilt(split.shards, methods.joined(shared, own))))
            found.setdefault(name, []).append((*errors, rebuilt))
    for name, values in found.items():
        rows.append([name, *(report.number(float(v)) for v in np.mean(values, axis=0))])
    title = f"Fig. 1: two clients in three dimensions, theta={THETA1}"
    return report.Found(title, rows, "||P - P_true||_F^2, and the mean squared distance to the two components.")


def perturbed(gamma: float, rho: float, epsilon: float) -> tuple[list[Array], Array]:
    """The two sample covariances of the paper's (40) to (42), and the true shared direction.

    Of the perturbations in (42) the clients' differ; read so, the third coefficient of (47) comes out.
    """
    u, w3 = np.eye(4)[2], np.eye(4)[3]
    covariances = []
    for sign in (1.0, -1.0):
        v = np.array([np.cos(gamma), sign * np.sin(gamma), 0.0, 0.0])
        beside = np.array([-sign * np.sin(gamma), np.cos(gamma), 0.0, 0.0])
        first, second = np.sin(ALPHA) * v + np.cos(ALPHA) * u, np.cos(ALPHA) * v - np.sin(ALPHA) * u
        true = 2.0 * np.outer(first, first) + np.outer(second, second) + rho * np.outer(w3, w3)
        pairs = ((v, w3), (v, u), (v, beside), (u, w3)) if sign > 0 else ((v, w3), (beside, u), (v, beside))
        noise = sum(np.outer(a, b) + np.outer(b, a) for a, b in pairs)
        covariances.append(true + epsilon * noise)
    return covariances, u


def shared_error(gamma: float, rho: float, epsilon: float = EPSILON) -> float:
    """||uu' - u_true u_true'||_F^2 / epsilon^2 of PerPCA on the perturbed covariances, run to its fixed point."""
    covariances, u = perturbed(gamma, rho, epsilon)
    shards = [four_rows(C) for C in covariances]
    U, _ = fit(
        "per_pca(local_components=1, local_init='random', step=1.0, tol=1e-12)", shards, 1, seed=0, max_rounds=20_000
    )
    return float(np.linalg.norm(U @ U.T - np.outer(u, u)) ** 2) / epsilon**2


def fig10(opts: report.Options) -> report.Found:
    """The error grows with 1 / delta^2, delta the eigengap."""
    inverse = np.linspace(4.0, 40.0, 10)
    return _straight("Fig. 10: the shared error by the eigengap", "1 / delta^2", inverse, [
        shared_error(GAMMA, 1.0 - x**-0.5) for x in inverse
    ])  # fmt: skip


def fig11(opts: report.Options) -> report.Found:
    """The error grows with 1 / theta."""
    inverse = np.linspace(12.0, 120.0, 10)
    return _straight("Fig. 11: the shared error by the misalignment", "1 / theta", inverse, [
        shared_error(float(np.arcsin(x**-0.5)), RHO) for x in inverse
    ])  # fmt: skip


def _straight(title: str, along: str, at: Array, errors: list[float]) -> report.Found:
    slope, offset = np.polyfit(at, errors, 1)
    line = slope * at + offset
    rest = 1.0 - np.sum((np.array(errors) - line) ** 2) / np.sum((np.array(errors) - np.mean(errors)) ** 2)
    rows: list[list[object]] = [[along, "error / epsilon^2", "straight line"]]
    rows += [[f"{x:.1f}", f"{e:.3f}", f"{y:.3f}"] for x, e, y in zip(at, errors, line, strict=True)]
    note = (
        f"epsilon={EPSILON:g}. The line: slope {slope:.4f}, R^2 {rest:.4f}. The paper: linear where {along} is large."
    )
    return report.Found(title, rows, note)


def four_rows(C: Array) -> Array:
    """X, 4 x 4, with X'X / 4 = C."""
    values, Q = np.linalg.eigh(C)
    return np.asarray(2.0 * (Q * np.sqrt(np.maximum(values, 0.0))).T)
