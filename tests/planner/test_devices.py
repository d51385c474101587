"""The planner's devices: one table of peaks for the whole package, and what the planner adds to it."""

from __future__ import annotations

import pytest

from diagnose.formulas.gpus import part, peak
from diagnose.planner.devices import MAMF_SHARE, device_names, find_device


@pytest.mark.parametrize("name", device_names())
def test_every_device_has_a_row_and_no_figure_is_zero(name: str) -> None:
    device = find_device(name)
    assert device is not None and device.name == name
    figures = (device.peak_flop_per_s, device.mamf_flop_per_s, device.memory_bytes, device.hbm_bytes_per_s)
    assert min(*figures, device.link_bytes_per_s, device.nic_bytes_per_s, device.vector_flop_per_s) > 0
    assert device.mamf_flop_per_s < device.peak_flop_per_s


@pytest.mark.parametrize("driver", ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA B200", "NVIDIA H200"])
def test_planner_and_analyses_divide_by_the_same_peak(driver: str) -> None:
    device = find_device(driver)
    assert device is not None
    assert device.peak_flop_per_s == peak(driver, "bfloat16").flop_per_s
    assert device.vector_flop_per_s == peak(driver, "float32").flop_per_s


def test_figures_of_one_part() -> None:
    device = find_device("B200")
    assert device is not None
    assert (device.vector_flop_per_s, device.hbm_bytes_per_s) == (75e12, 7.7e12)
    assert part("V100-SXM2-32GB").peak_flop_per_s["float16"] == 125e12


def test_a_rate_that_nobody_measured_is_a_share_of_the_peak_and_a_power_cap_lowers_it() -> None:
    unmeasured, capped, usual = find_device("H20-96GB"), find_device("H100-96GB"), find_device("H100-80GB")
    assert unmeasured and capped and usual
    assert unmeasured.mamf_flop_per_s == MAMF_SHARE * 148e12
    assert capped.mamf_flop_per_s == pytest.approx(0.894 * usual.mamf_flop_per_s)


def test_no_such_row() -> None:
    with pytest.raises(KeyError):
        part("H100")
