"""`lingpipe plan`: stages before a weight is built, for people and for programs."""

import json

import pytest

from lingpipe.__main__ import main
from tests.bin.refusals import refusal

MODEL = "--model=mt.multilingual.Tiny"
Capture = pytest.CaptureFixture[str]


def output(capfd: Capture, *flags: str) -> str:
    capfd.readouterr()
    assert main(["plan", MODEL, *flags]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def test_a_row_a_stage_and_a_line_of_totals(capfd: Capture) -> None:
    *rows, total = output(capfd, "--set=pipeline.num_stages=3").splitlines()
    assert [row.split()[0] for row in rows] == ["stage", "0", "1", "2"]
    assert total.startswith("total ")


def test_programs_read_json(capfd: Capture) -> None:
    plan = json.loads(output(capfd, "--json", "--set=pipeline.partition=[2, 5]"))
    assert [len(stage["cells"]) for stage in plan["stages"]] == [2, 5]
    assert plan["stages"][0]["cells"][0] == "source_embedding"
    assert plan["micro_batch"]["source_ids"]["dtype"] == "int32"


def test_replicas_shrink_micro_batches_and_share_out_slots(capfd: Capture) -> None:
    one = json.loads(output(capfd, "--json", "--set=pipeline.num_micro_batches=8"))
    two = json.loads(output(capfd, "--json", "--set=pipeline.num_replicas=2"))
    assert (one["num_replicas"], two["num_replicas"]) == (1, 2)
    assert two["micro_batch"] == one["micro_batch"]
    fields = "--set=pipeline.num_replicas=2", "--set=pipeline.shards_optimizer=false"
    unshared = json.loads(output(capfd, "--json", *fields))
    for sharing, alone in zip(two["stages"], unshared["stages"], strict=True):
        # Adam's two slots for each weight, of which the fuller replica has a half or a little more.
        saved = alone["memory"]["fixed_bytes"] - sharing["memory"]["fixed_bytes"]
        assert 0.4 * 8 * alone["weights"] < saved <= 0.5 * 8 * alone["weights"]


def test_more_devices_than_there_are_can_be_planned_for(capfd: Capture) -> None:
    text = output(capfd, "--set=num_layers=30", "--set=pipeline.num_stages=16")
    assert len(text.splitlines()) == 18


def test_stages_are_cut_to_fit_a_device_and_their_peaks_told(capfd: Capture) -> None:
    free = json.loads(output(capfd, "--json"))
    most = max(free["device_bytes"])
    assert [stage["memory"]["peak_bytes"] for stage in free["stages"]] == free["device_bytes"]
    tight = json.loads(output(capfd, "--json", f"--device_memory={most - 1}"))
    assert max(tight["device_bytes"]) < most
    field = output(capfd, "--json", f"--set=pipeline.device_memory={most - 1}")
    assert json.loads(field) == tight


def test_auto_tells_how_much_it_keeps(capfd: Capture) -> None:
    flags = "--set=pipeline.remat=auto", "--set=pipeline.partition=[5, 2]"
    header, first, last, _ = output(capfd, *flags, "--device_memory=20MiB").splitlines()
    assert header.split()[-2:] == ["memory", "remat"]
    assert " 20.0 MiB  keeps " in first
    assert last.split()[-1] == "none"


def test_cells_are_measured_if_asked_for_and_that_is_told(capfd: Capture) -> None:
    flags = [f"--set={knob}" for knob in ("num_layers=1", "model_dim=16", "vocabulary_size=330")]
    assert main(["plan", MODEL, *flags, "--set=pipeline.partition_costs=measured"]) == 0
    out, err = capfd.readouterr()
    assert "measured share" in out.splitlines()[0]
    assert "Measuring what 5 cells take on" in err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--set=pipeline.num_stages=8"], "num_stages (8)"),
        (["--set=pipeline.partition=[2, 6]"], "partition"),
        (
            ["--set=pipeline.partition=[3, 4]", "--set=pipeline.partition_costs=measured"],
            "partition_costs (measured) has no use beside partition ([3, 4])",
        ),
        (["--set=pipeline.partition_costs=guessed"], "partition_costs"),
        (
            ["--device_memory=1MB"],
            "device_memory is 976.6 KiB, and no cut into 2 stages takes less",
        ),
        (["--device_memory=1MB", "--set=pipeline.partition=[2, 5]"], "device_memory is 976.6 KiB."),
        (["--device_memory=16gib"], "device_memory: '16gib' is no number of bytes; write it such"),
        (["--set=pipeline.link_bandwidth=1e9"], "set partition_costs to measured"),
        (["--set=pipeline.link_bandwidth=0.0"], "must be a finite number of bytes a second"),
        (["--set=pipeline.num_stages=0"], "num_stages (0) must be at least 1"),
        (["--set=pipeline.num_stages=2.5"], "pipeline.num_stages must be an int"),
        (
            ["--set=num_layers=100_000_000"],
            "num_encoder_layers (100000000) must be at most 10_000.",
        ),
        (["--set=model_dim=100_000_000_000"], "(100000000000) must be at most 1_048_576."),
        (["--set=ffn_dim=1_048_577"], "ffn_dim (1048577) must be at most 1_048_576."),
        (["--set=num_heads=1_000_000_000_000"], "num_heads (1000000000000) must be at most"),
        (["--set=vocabulary_size=20_000_000"], "vocabulary_size (20000000) must be at most 16_777"),
        (["--set=task.typical_length=2_000_000"], "typical_length (2000000) must be at most"),
    ],
)
def test_a_cut_that_cannot_be_made_is_told(capfd: Capture, flags: list[str], words: str) -> None:
    assert words in refusal(capfd, "plan", MODEL, *flags)
