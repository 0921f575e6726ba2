"""Quantities are read and written as the API server does."""

from fractions import Fraction

import pytest

from k8s.quantities import amount, any_amount, canonical, scaled
from tests.cases import cases


@pytest.mark.parametrize(
    ("quantity", "value"), [("4Gi", 2**32), ("500m", Fraction(1, 2)), ("1.5", Fraction(3, 2)), ("2k", 2000)]
)
def test_amount_reads_all_units(quantity, value):
    assert amount(quantity) == value


@pytest.mark.parametrize("text", ["", "ki", "1ki", "-1", "1e3", "1 Gi"])
def test_amount_of_something_else_raises(text):
    with pytest.raises(ValueError, match="not a quantity"):
        amount(text)


@cases(
    ("quantity", "value"),
    [
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        ("+1", 1),
        ("-2Ki", -2048),
        ("100n", Fraction(1, 10**7)),
        ("1e999999999", 2**63 - 1),
        ("-1e999999999", 1 - 2**63),
        ("1e-999999999", Fraction(1, 10**9)),
        ("0e-40", 0),
        ("9223372036.123456789", Fraction(9223372036123456789, 10**9)),
        ("3Ei", 3 * 1024**6),
        ("20u", Fraction(2, 10**5)),
        ("1e9000000000000000000", 2**63 - 1),
        (f"{'9' * 5000}E", 2**63 - 1),
        (f"0.{'0' * 5000}1", Fraction(1, 10**9)),
    ],
)
def test_any_amount_reads_what_kubernetes_does_and_limits_it_alike(quantity, value):
    assert any_amount(quantity) == value


@pytest.mark.parametrize("text", ["", "gpu", "inf", "NaN", "1ki", "1_0", " 1", "1e", "1e1.5", "1e3Ei", "."])
def test_any_amount_of_something_else_raises(text):
    with pytest.raises(ValueError, match="not a quantity"):
        any_amount(text)


@pytest.mark.parametrize(
    ("quantity", "written"),
    [
        ("0.5Gi", "512Mi"),
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("1000", "1k"),
        ("0", "0"),
        ("0.5Ki", "512"),
    ],
)
def test_canonical_is_what_the_api_server_writes(quantity, written):
    assert canonical(quantity) == written


def test_scaled_rounds_down_but_not_to_zero():
    assert scaled("1Ti", Fraction(3, 8)) == "384Gi"
    assert scaled("96", Fraction(1, 5), least=Fraction(1)) == "19"
    assert scaled("1", Fraction(1, 8), least=Fraction(1)) == "1"
    assert (scaled("6m", Fraction(1, 2)), scaled("1m", Fraction(1, 2))) == ("3m", "1m")
