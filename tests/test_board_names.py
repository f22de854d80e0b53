"""Names of boards: whatever people type finds the board, and what is wrong is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tflm import ArgumentError
from tflm.boards import boards, by_name, chips
from tflm.boards.names import _key

ALIASES = [(alias, board.name) for board in boards().values() for alias in (*board.aliases, board.name)]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("arduino-nano-33-ble", "nano33ble"),
        ("Nano 33 BLE", "nano33ble"),
        ("raspberry-pi-pico", "pico"),
        ("teensy4.1", "teensy41"),
        ("xiao_esp32s3", "xiao-esp32s3"),
        ("esp32-cam", "esp32-cam"),
        ("microbit-v2", "microbit"),
        ("nrf52840dk/nrf52840", "nrf52840dk"),
        ("arduino:mbed_nano:nano33ble", "nano33ble"),
        ("esp32:esp32:esp32s3:PSRAM=opi", "esp32-s3-devkitc-1"),
        ("esp32:esp32:nowhere-but:xiao", None),
        ("rp2040:rp2040:rpipico:flash=2097152_0", "pico"),
        ("disco_f746ng", "stm32f746g-disco"),
        ("portenta-c", "portenta-c33"),
    ],
)
def test_boards_answer_to_the_names_of_vendors_and_tools(typed: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(ArgumentError):
            by_name(typed)
    else:
        assert by_name(typed).name == name


@pytest.mark.parametrize(
    ("typed", "chip"),
    [
        ("esp32s3", "ESP32-S3"),
        ("nRF52840", "nRF52840"),
        ("nRF52840-QIAA", "nRF52840"),
        ("rp2040", "RP2040"),
        ("STM32F746", "STM32F746"),
        ("stm32f746zgt6", "STM32F746"),
    ],
)
def test_chips_answer_to_their_names_and_part_numbers(typed: str, chip: str) -> None:
    assert by_name(typed) == chips()[chip]


def test_every_identifier_means_one_board() -> None:
    keys = [_key(alias) for alias, _ in ALIASES]
    assert len(set(keys)) == len({(_key(alias), name) for alias, name in ALIASES})
    assert not set(keys) & {_key(name) for name in chips()}


def test_the_chip_of_every_board_is_in_the_table_with_its_part_and_memory() -> None:
    for board in boards().values():
        if board.chip:
            assert chips()[board.chip].target == board.target
            on_chip = sum(bank.bytes for bank in board.ram if bank.name not in ("PSRAM", "SDRAM"))
            assert on_chip <= sum(bank.bytes for bank in chips()[board.chip].ram)


@given(st.sampled_from(ALIASES), st.randoms(use_true_random=False))
def test_case_and_separators_do_not_matter(entry: tuple[str, str], random: object) -> None:
    alias, name = entry
    if ":" in alias or "/" in alias:
        return
    letters = [random.choice([str.upper, str.lower])(letter) for letter in alias]  # type: ignore[attr-defined]
    assert by_name("".join(random.choice(["", "-", "_", " "]) + letter for letter in letters)).name == name  # type: ignore[attr-defined]


def test_an_ambiguous_name_lists_the_boards() -> None:
    with pytest.raises(ArgumentError, match="ambiguous board 'teensy': it may be teensy40, teensy41"):
        by_name("teensy")


def test_an_unknown_name_gets_the_three_nearest() -> None:
    with pytest.raises(ArgumentError, match="unknown board 'esp32-p3-eye'; did you mean ") as caught:
        by_name("esp32-p3-eye")
    suggested = str(caught.value).split("?")[0].split("mean ")[1].split(" or ")
    assert len(suggested) == 3
    assert "'esp32-s3-eye'" in suggested


def test_a_board_of_an_installed_platformio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORMIO_CORE_DIR", str(tmp_path))
    folder = tmp_path / "platforms" / "ststm32" / "boards"
    folder.mkdir(parents=True)
    described = {
        "build": {"mcu": "stm32f746zgt6"},
        "name": "A board",
        "upload": {"maximum_ram_size": 327680, "maximum_size": 1048576},
    }
    (folder / "myboard_f746.json").write_text(json.dumps(described))
    (folder / "broken_board.json").write_text("{")
    found = by_name("myboard_f746")
    assert (found.description, found.flash_bytes, found.chip) == ("A board", 1 << 20, "STM32F746")
    assert found.ram == chips()["STM32F746"].ram
    with pytest.raises(ArgumentError, match="unknown board"):
        by_name("broken_board")


def test_a_board_of_a_zephyr_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path))
    folder = tmp_path / "boards" / "maker" / "mine"
    folder.mkdir(parents=True)
    (folder / "mine_nrf52840.yaml").write_text(
        "identifier: mine/nrf52840\nname: Mine\nram: 192\nflash: 512\narch: arm\n"
    )
    found = by_name("mine")
    assert [(bank.name, bank.bytes) for bank in found.ram] == [("RAM", 192 << 10)]
    assert (found.flash_bytes, found.target.name) == (512 << 10, "cortex-m4")
