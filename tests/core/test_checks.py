"""Test the wording of checks: <what> must be <rule>, not <value>. <what to do>."""

import numpy as np
import pytest
from cases import every

from flower_pca.base import checks, errors
from flower_pca.base.errors import ConfigError, DataError


def refused(error, check, *arguments, **options):
    with pytest.raises(error) as caught:
        check(*arguments, **options)
    return str(caught.value)


def test_a_check_names_what_is_wrong_and_what_to_do():
    assert str(checks.invalid_setting("x", "even", "3", "Add one.")) == "x must be even, not 3. Add one."


WHOLE = [(-1, "-1"), (1.0, "1.0"), (True, "True"), ("3", "'3'"), (None, "None")]


@every(("value", "shown"), [*WHOLE, (np.float64(2), "2.0"), (np.bool_(True), "True")])
def test_integer_refuses(value, shown):
    assert refused(ConfigError, checks.integer, "size", value) == (
        f"size must be a whole number of at least 0, not {shown}."
    )


@every("value", [3, 10**30, np.int64(3), np.uint8(3)])
def test_integer_accepts(value):
    assert checks.integer("size", value, least=3) is None
    message = refused(ConfigError, checks.integer, "size", 2, least=3, remedy="Use 3.")
    assert message == "size must be a whole number of at least 3, not 2. Use 3."


RATES = [(value, repr(value)) for value in (-0.5, float("nan"), True, "1", None, 1j, 1.5, float("inf"))]


@every(("value", "shown"), [*RATES, ([1.0], "a list of length 1"), (np.ones((3, 2)), "an array of shape (3, 2)")])
def test_number_refuses(value, shown):
    assert refused(ConfigError, checks.number, "rate", value, least=0.0, most=1.0) == (
        f"rate must be a number from 0 to 1, not {shown}."
    )


@every("value", [0, 0.0, 1, 0.5, np.float32(0.5), np.int8(1)])
def test_number_accepts(value):
    assert checks.number("rate", value, least=0.0, most=1.0) is None


def test_number_without_an_upper_bound_names_the_lower_only():
    message = refused(ConfigError, checks.number, "tol", -1, least=0.0, remedy="Try 1e-6.")
    assert message == "tol must be a finite number of at least 0, not -1. Try 1e-6."


def test_choice_lists_what_there_is_and_suggests_the_nearest():
    assert checks.choice("scale", None, (None, "std")) is None
    assert refused(ConfigError, checks.choice, "scale", "sdt", (None, "std", "max_abs")) == (
        "scale must be None, 'std' or 'max_abs', not 'sdt'. Did you mean 'std'?"
    )
    assert refused(ConfigError, checks.choice, "scale", 7, (None, "std", "max_abs")) == (
        "scale must be None, 'std' or 'max_abs', not 7."
    )
    assert refused(ConfigError, checks.choice, "center", "yes", (True, False)) == (
        "center must be True or False, not 'yes'. Write it without quotation marks."
    )


COUNTS = [(value, repr(value)) for value in (0, -1, 0.0, 1.0, 1.5, -0.5, float("nan"), True, "2", None)]


@every(("value", "shown"), [*COUNTS, (np.float64(1.0), "1.0")])
def test_components_refuses(value, shown):
    assert refused(ConfigError, checks.components, value) == (
        f"n_components must be a whole number of at least 1 or a share of the variance such as 0.9, not {shown}."
    )


@every(("text", "share"), [("95%", 0.95), (" 99.5 % ", 0.995), ("1%", 0.01)])
def test_components_takes_a_percentage_as_text(text, share):
    assert checks.components(text) == pytest.approx(share, rel=1e-15)


@every("text", ["0%", "100%", "%", ".%", "1.2.3%", "95", "95 percent"])
def test_components_refuses_other_texts(text):
    assert f", not {text!r}." in refused(ConfigError, checks.components, text)


@every(("value", "kind"), [(1, int), (np.int32(4), int), (0.9, float), (np.float32(0.5), float)])
def test_components_gives_a_plain_number(value, kind):
    result = checks.components(value)
    assert type(result) is kind
    assert result == value


def test_at_most_names_both_sides():
    assert checks.components_available(3, 3, 5) is None
    assert checks.components_available(0.9, 3, 5) is None
    assert refused(ConfigError, checks.components_available, 4, 3, 5) == (
        "At most 3 components are possible (3 rows, 5 columns), not 4."
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_finite_counts_what_is_not(dtype):
    values = np.array([[np.nan, 1.0], [np.inf, np.nan], [0.0, np.inf]], dtype=dtype)
    assert refused(DataError, checks.finite, "client 0", values) == (
        "The data of client 0 has 2 missing values (NaN) and 2 infinite values. "
        'Impute or drop them before the run, or use missing="mean".'
    )
    assert checks.finite("client 0", np.ones(3, dtype=dtype)) == 0
    assert refused(DataError, checks.finite, "this node", values).endswith('or use missing="local_mean".')
    assert checks.finite("client 0", np.ones(3, dtype=np.int8)) == 0


def test_finite_tells_an_overflowing_sum_from_an_infinity():
    assert checks.finite("client 0", np.full(4, 1e308)) == 0
    assert refused(DataError, checks.finite, "client 0", np.array([np.inf, -np.inf])).count("2 infinite") == 1


def test_parameters_names_the_unknown_one():
    assert checks.parameters("ssi", {"tol": 1}, ["tol", "patience"]) is None
    assert refused(ConfigError, checks.parameters, "ssi", {"tolerance": 1}, ["tol", "patience"]) == (
        "ssi has no parameter 'tolerance'. Its parameters are tol and patience."
    )
    assert refused(ConfigError, checks.parameters, "ssi", {"Patiense": 1}, ["tol", "patience"]) == (
        "ssi has no parameter 'Patiense'. Did you mean 'patience'?"
    )
    assert refused(ConfigError, checks.parameters, "opening", {"tol": 1}, []) == (
        "opening has no parameters, but 'tol' is given. Leave it out."
    )


@every(
    ("word", "remedy"),
    [("KRYLOV", "Did you mean 'krylov'?"), ("krilov", "Did you mean 'krylov'?"), ("xyz", "Choose one of these.")],
)
def test_a_misspelt_name_gets_a_suggestion(word, remedy):
    assert checks.did_you_mean(word, iter(["krylov", "ssi"])) == remedy


def test_errors_can_be_caught_at_the_level_that_suits():
    base = errors.FlowerPCAError
    kinds = {ConfigError: ValueError, DataError: ValueError, errors.ProtocolError: RuntimeError}
    kinds[errors.NotEnoughNodes] = RuntimeError
    for kind, builtin in kinds.items():
        assert issubclass(kind, base)
        assert issubclass(kind, builtin)
    assert {kind for kind in base.__subclasses__() if kind.__module__ == errors.__name__} == set(kinds)


@every(
    ("given", "value"),
    [
        ("95%", 0.95),
        (" 95 % ", 0.95),
        ("0.95", 0.95),
        (".5", 0.5),
        ("2.5%", 0.025),
        (0.3, 0.3),
        ("x%", "x%"),
        (None, None),
    ],
)
def test_a_share_may_be_text(given, value):
    assert checks.parse_share(given) == value


def test_shares_are_understood_wherever_they_are_asked_for():
    from flower_pca import DP, MaskedSums, PCAConfig, registry

    assert PCAConfig(registry.make("ssi"), n_components="90%", fraction="50%").fraction == 0.5
    assert PCAConfig(registry.make("ssi"), n_components="0.9").n_components == 0.9
    assert DP.of("dp(epsilon=1.0, delta=1e-6, clip=1.0, frame_share='20%')").frame_share == 0.2
    assert MaskedSums.of("masks(threshold='60%')").threshold == 0.6
