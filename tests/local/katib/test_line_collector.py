"""What the collector of lines reads, by Katib's default filter and by Sweepbot's."""

import re

import pytest

from bot.sweep.spaces.metrics import line_filter
from local.katib.line_collector import ParseError, read_lines

NOTHING = [("unavailable", 0, "loss")]


def values(tmp_path, text, *filters, form="TEXT", names=("loss",)):
    file = tmp_path / "metrics.log"
    file.write_text(text)
    return [tuple(one) for one in read_lines(file, list(names), list(filters), form, lambda _: None)]


@pytest.mark.parametrize(
    ("line", "default", "ours"),
    [
        ("loss=0.1", "0.1", "0.1"),
        ("loss: 0.1", None, "0.1"),
        ('{"step": 3, "loss": 1e-3}', None, "1e-3"),
        ('{"loss": "0.5"}', None, "0.5"),
        ("{'loss': 0.5, 'epoch': 1.0}", None, "0.5"),
        ("{'eval_loss': '0.9', 'loss': '0.5'}", None, "0.5"),
        ("epoch 3 loss = -.5, acc=1", "-.5", "-.5"),
        ("loss=1.", "1", "1."),
        ("val/loss=0.1", "0.1", None),
        ("val_loss=0.1", None, None),
        ("loss=nan", "", None),
        ("loss=tensor(0.5)", "", "0.5"),
        ("{'loss': np.float64(0.5), 'acc': tensor(0.9)}", None, "0.5"),
        ("loss=FocalLoss(2.0)", "", None),
        ("100%|#####| 9/9 [00:01<00:00, loss=0.25]", "0.25", "0.25"),
        ("aux.loss=0.1", "0.1", None),
        ("loss 0.1", None, None),
    ],
)
def test_filters_parse_lines_as_the_real_collector(tmp_path, line, default, ours):
    found = [(default, 0, "loss")] if default is not None else NOTHING
    assert values(tmp_path, line) == found
    assert values(tmp_path, line, line_filter(["loss"])) == ([(ours, 0, "loss")] if ours else NOTHING)


def test_lines_have_names_times_and_numbers_or_report_nothing(tmp_path):
    rule = line_filter(["val/acc.top1", "loss"])
    text = "val/acc.top1=0.9 loss=0.2\nval/accXtop1=0.1\n"
    assert values(tmp_path, text, rule, names=("val/acc.top1", "loss")) == [
        ("0.9", 0, "val/acc.top1"),
        ("0.2", 0, "loss"),
    ]
    assert re.match(r".*\(.*\).*\(.*\).*", rule)
    assert re.compile(rule).groups == 2
    text = "2026-11-22T10:00:01Z loss=0.1\nloss=0.2\n"
    assert [second for _, second, _ in values(tmp_path, text)] == [1795341601, 0]
    assert values(tmp_path, '{"loss": 0.1}\n', form="JSON") == NOTHING
    assert values(tmp_path, '{"loss": "0.1"}\n', form="JSON") == [("0.1", 0, "loss")]
    with pytest.raises(ParseError, match="failed to parse the json object"):
        values(tmp_path, '{"loss": "0.1"}\noops\n', form="JSON")
    text = "loss=" * 50_000 + " loss=1"
    assert values(tmp_path, text, line_filter(["loss"])) == [("1", 0, "loss")]
