"""Test a member that is lost in a masked run: sums with it and without it."""

import numpy as np
import pytest
from masked import Run

from flower_pca import Krylov
from flower_pca.stages.opening import block_of_message

D, N = 160, 6
SIZES = np.where(np.arange(D) < 8, 3.0 * 0.8 ** np.arange(D), 0.02)
RNG = np.random.default_rng(7)
PARTS = [RNG.standard_normal((60 + 5 * i, D)) * SIZES + 0.2 * RNG.standard_normal(D) for i in range(N)]
LOST = 5


def warmly(self, model):
    """As runs began anew before: from what was known."""
    noise = np.random.default_rng(1).standard_normal(model.columns.shape)
    return np.hstack([model.columns[:, : model.k], noise])


class Listening:
    """An honest masked run that loses a client after so many sums, and all that its server has been told."""

    def __init__(self, sums, spec="krylov", parts=PARTS):
        self.run, self.told, self.d = Run(parts, spec, n_components=4), [], parts[0].shape[1]
        deliver = self.run.session._pass_on_sum

        def listening(group, answers):
            carried, layout = self.run.session.message, self.run.session.layout
            self.told.append((carried, len(group.uploaded_clients), layout.decode_sums(group.unmasked_sum(answers))))
            return deliver(group, answers)

        self.run.session._pass_on_sum = listening
        while (message := self.run.message()) is not None:
            self.run.step(gone=[LOST] if len(self.told) >= sums and LOST in message.to else [])
        self.result = self.run.session.result()

    def of(self, clients):
        """n, mean, squares by column, and blocks with their products X'XB of raw rows, of all clients there."""
        openings = [sums for sent, count, sums in self.told if sent.stage == "summed_opening" and count == clients]
        n, mean = openings[0]["n"], openings[0]["sums"] / openings[0]["n"]
        blocks, products = [], []
        for sent, count, sums in self.told:
            if count != clients or not {"product", "S"} & set(sums):
                continue
            if "product" in sums:
                B, r, about = block_of_message(sent.arrays, self.d), sent.arrays["reference"], sums["product"]
            else:
                B, r, about = sent.arrays["B"], sent.frame.mean, sums["S"]
            blocks.append(B)
            products.append(about + n * (np.outer(r, mean) + np.outer(mean, r) - np.outer(r, r)) @ B)
        return n, mean, openings[0]["squares"], np.hstack(blocks), np.hstack(products)

    def common(self, most=None):
        """The directions that both sets were asked about, to rounding, and what the difference of the sums says there.

        Or, of the spans of what they were asked, the directions of one that are nearest to the other.
        """
        (*_, before, with_it), (*_, after, without) = self.of(N), self.of(N - 1)
        one, other = np.linalg.qr(before)[0], np.linalg.qr(after)[0]
        U, cosines, V = np.linalg.svd(one.T @ other)
        k = int((cosines > 1 - 1e-9).sum()) if most is None else most
        W, near = one @ U[:, :k], other @ V[:k].T
        told = (
            with_it @ np.linalg.lstsq(before, W, rcond=None)[0] - without @ np.linalg.lstsq(after, near, rcond=None)[0]
        )
        return W, told


@pytest.mark.slow
@pytest.mark.parametrize("sums", [3, 4, 5])
def test_a_run_begins_anew_with_a_block_of_which_the_lost_one_has_told_nothing(sums, monkeypatch):
    C = PARTS[LOST].T @ PARTS[LOST]
    with monkeypatch.context() as before:
        before.setattr(Krylov, "restart", warmly)
        W, told = Listening(sums).common()
        assert W.shape[1] >= 4
        assert np.linalg.norm(told - C @ W) < 1e-6 * np.linalg.norm(C @ W)
    heard = Listening(sums)
    assert heard.common()[0].shape[1] == 0
    assert heard.result.status.ok
    rest = np.vstack(PARTS[:LOST])
    truth = np.linalg.svd(rest - rest.mean(axis=0), full_matrices=False)[2][:4]
    assert heard.result.angle_to(truth) < 1e-6


@pytest.mark.slow
def test_what_a_loss_tells_in_any_case():
    """As the docs say: rows, mean and squares; and the leading directions, as nearly as both runs agree."""
    heard, lost = Listening(4), PARTS[LOST]
    (n, mean, squares, *_), (fewer, other, less, *_) = heard.of(N), heard.of(N - 1)
    assert n - fewer == len(lost)
    np.testing.assert_allclose((n * mean - fewer * other) / len(lost), lost.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(squares - less, np.sum(lost**2, axis=0), rtol=1e-9)
    W, told = heard.common(most=4)
    C = lost.T @ lost
    assert 1e-6 < np.linalg.norm(told - C @ W) / np.linalg.norm(C @ W) < 1e-3


@pytest.mark.slow
def test_in_few_columns_a_loss_tells_all_that_was_asked_before():
    """A run that asks for as many directions as there are columns has asked for those of the one before it, too."""
    parts = [X[:, :30] + 0.5 * RNG.standard_normal((len(X), 30)) for X in PARTS]
    heard, C = Listening(4, parts=parts), parts[LOST].T @ parts[LOST]
    W, told = heard.common()
    assert W.shape[1] >= 12
    assert np.linalg.norm(told - C @ W) < 1e-9 * np.linalg.norm(C @ W)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [4, 6, 9])
@pytest.mark.parametrize("sums", [2, 3, 5])
@pytest.mark.parametrize("name", ["ssi", "faps", "fed_oapm"])
def test_no_block_goes_to_other_clients_than_before(name, sums, rounds):
    """Whatever the run goes back to the opening with: of blocks that have been sent, no direction comes again."""
    run, heard = Run(PARTS, f"{name}(max_rounds={rounds}, tol=1e-15)", n_components=4), []
    deliver = run.session._pass_on_sum

    def listening(group, answers):
        heard.append((run.session.message, len(group.uploaded_clients)))
        return deliver(group, answers)

    run.session._pass_on_sum = listening
    while (message := run.message()) is not None:
        run.step(gone=[LOST] if len(heard) >= sums and LOST in message.to else [])
    blocks = {N: [], N - 1: []}
    for sent, count in heard:
        arrays = sent.arrays
        block = block_of_message(arrays, D) if {"seed", "block"} & set(arrays) else arrays.get("Z", arrays.get("U"))
        if block is not None:
            blocks[count].append(np.linalg.qr(block)[0])
    assert blocks[N]
    assert blocks[N - 1]
    assert run.session.result().n_samples_ == sum(map(len, PARTS[:LOST]))
    for before in blocks[N]:
        for after in blocks[N - 1]:
            assert np.linalg.svd(before.T @ after, compute_uv=False).max() < 1.0 - 1e-9
