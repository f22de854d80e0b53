"""Names of boards: typical spellings find the board, and wrong ones are reported."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tflm import ArgumentError
from tflm.boards import boards, by_name, chips, completions, is_guess
from tflm.boards.names import MAX_LISTED, _key, with_words

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
    of_chips = [_key(name) for chip in chips().values() for name in (*chip.aliases, chip.name)]
    assert not set(keys) & set(of_chips)
    assert len(of_chips) == len(set(of_chips))


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


@pytest.mark.parametrize("typed", ["teensy", "STM32-F", "ard"])
def test_an_ambiguous_name_lists_the_boards_in_order(typed: str) -> None:
    with pytest.raises(ArgumentError, match=f"; tflm boards {typed} lists them") as caught:
        by_name(typed)
    listed, more = re.findall(r"it may be (.+?)(?: and ([1-9]+) more)?;", str(caught.value))[0]
    every = {**boards(), **chips()}.values()
    begin_so = (board for board in every for name in (board.name, *board.aliases) if _key(name).startswith(_key(typed)))
    expected = sorted({board.name for board in begin_so})
    assert listed.split(", ") == expected[:MAX_LISTED]
    assert int(more or 0) == len(expected[MAX_LISTED:])


def test_a_name_that_several_begin_with_is_not_guessed() -> None:
    with pytest.raises(ArgumentError, match=r"ambiguous board 'STM32F4': it may be STM32F401, .*stm32f4-discovery"):
        by_name("STM32F4")
    assert is_guess("portenta-c")
    assert not is_guess("portenta-c33")
    assert not is_guess("no such file.toml")


def test_completions_are_all_names_of_boards_and_chips() -> None:
    found = completions()
    every = [*boards().values(), *chips().values()]
    assert sorted(found) == sorted(name for board in every for name in (board.name, *board.aliases))


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("arduino uno", r"32 bits, not for 8-bit AVR \(.*\); 'uno-r4' has one\. tflm boards"),
        ("atmega328p", "not for 8-bit AVR"),
        ("arduino uno clone", "did you mean"),
        ("", "^unknown board ''. For a bare part use"),
        ("xiao sense", "did you mean 'xiao-nrf52840' or 'xiao-esp32s3'?"),
        (
            "MAX32655",
            "^unknown board 'MAX32655'. For another part of the family MAX32 use --target cortex-m4 with --ram",
        ),
        ("discovery-kit", "^unknown board 'discovery-kit'. For a bare part use"),
        ("zzzz", r"^unknown board 'zzzz'. For a bare part use --target.*my_board.toml"),
    ],
)
def test_a_name_without_a_similar_one_is_told_its_family_or_how_to_do_without(typed: str, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        by_name(typed)


@pytest.mark.parametrize(
    ("typed", "name", "target"),
    [
        ("stm32f103c8", "STM32F103C8", "cortex-m3"),
        ("STM32F103C8T6", "STM32F103C8", "cortex-m3"),
        ("blue pill", "bluepill", "cortex-m3"),
        ("ESP32-WROOM-32", "esp32-devkitc", "esp32"),
        ("RP2350A", "RP2350", "cortex-m33"),
        ("xiao-ble-sense", "xiao-nrf52840", "cortex-m4"),
        ("K210", "K210", "k210"),
        ("MAX78000", "MAX78000", "cortex-m4"),
        ("coral dev board micro", "coral-micro", "cortex-m7"),
        ("Himax WE2", "HX6538", "cortex-m55"),
        ("alif-e8-hp", "alif-e8-hp", "cortex-m55"),
        ("STM32N6", "STM32N657", "cortex-m55"),
        ("esp32-c5", "ESP32-C5", "esp32c5"),
        ("esp32h2", "ESP32-H2", "esp32h2"),
        ("nrf52840dk/nrf52840", "nrf52840dk", "cortex-m4"),
        ("arduino_nano_33_ble/nrf52840/sense", "nano33blesense", "cortex-m4"),
        ("rpi_pico2/rp2350a/m33", "pico2", "cortex-m33"),
        ("stm32f746g_disco@1", "stm32f746g-disco", "cortex-m7"),
    ],
)
def test_chips_and_boards_of_other_makers_are_known(typed: str, name: str, target: str) -> None:
    assert (by_name(typed).name, by_name(typed).target.name) == (name, target)


def test_every_word_has_to_be_in_a_board_that_is_listed() -> None:
    assert with_words([]) == [*boards().values(), *chips().values()]
    assert {board.name for board in with_words(["xiao", "S3"])} == {"xiao-esp32s3"}
    assert not with_words(["xiao", "teensy"])
    assert [board.name for board in with_words(["alif-e7-h"])] == ["alif-e7-hp", "alif-e7-he"]
    for board in [*boards().values(), *chips().values()][::12]:
        for text in (board.name, board.description, board.chip, board.target.name, *board.aliases):
            assert board in with_words([text.upper()]), text


OWN = """
name = "my-board"
chip = "RP2040"
flash = "4M"
[ram]
SRAM = "264K"
PSRAM = 8388608
"""


def test_a_board_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    found = by_name(str(path))
    assert (found.name, found.target.name, found.kernels, found.sdk) == (
        "my-board",
        "cortex-m0plus",
        "cmsis-nn",
        "pico-sdk",
    )
    assert [(bank.name, bank.bytes) for bank in found.ram] == [("SRAM", 264 << 10), ("PSRAM", 8 << 20)]
    assert [bank.bytes for bank in found.memories] == [256 << 10, 8 << 20]
    assert (found.flash_bytes, found.source, by_name(str(path), "arduino").sdk) == (4 << 20, str(path), "arduino")
    path.write_text('target = "cortex-m33"\nkernels = "cmsis-nn"\n[ram]\nSRAM = "64K"\n')
    bare = by_name(str(path))
    assert (bare.name, bare.sdk, bare.flash_bytes, bare.memories) == ("mine", "", None, bare.ram)
    path.write_text('chip = "nano33ble"\n')
    derived = by_name(str(path))
    assert (derived.name, derived.description, derived.chip, derived.aliases) == ("mine", "mine", "nRF52840", ())
    assert (derived.ram, derived.kernels) == (by_name("nano33ble").ram, "arduino")
    path.write_text('chip = "RP2040"\n')
    assert by_name(str(path)).chip == "RP2040"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chip = ", "is not TOML"),
        ('chips = "RP2040"', "unknown key 'chips'; use name"),
        ('flash = "1M"', "either a chip of the table"),
        ('chip = "RP2040"\ntarget = "cortex-m4"', "either a chip of the table"),
        ('chip = "RP1"', "unknown chip 'RP1'"),
        ('target = "cortex-m4"', "no memories"),
        ('target = "z80"', "unknown target"),
        ('chip = "RP2040"\nflash = "1G"', "flash is '1G'"),
        ('chip = "RP2040"\nflash = 0', "flash is 0; it must be bytes"),
        ('chip = "RP2040"\n[ram]\nSRAM = "0K"', "mine.toml: SRAM is '0K'"),
        ('chip = "RP2040"\nname = 3', "name is 3; it must be a text"),
        ('chip = "RP2040"\nsdk = "esp-idf"', "no figures for the SDK 'esp-idf'.* use one of .*pico-sdk"),
        ('chip = "RP2040"\nram = "264K"', "ram must be a table"),
    ],
)
def test_what_is_wrong_in_such_a_file_is_told(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=says):
        by_name(str(path))


def test_an_unknown_name_gets_the_three_nearest() -> None:
    with pytest.raises(ArgumentError, match="unknown board 'esp32-p3-eye'; did you mean ") as caught:
        by_name("esp32-p3-eye")
    suggested = str(caught.value).split("?")[0].split("mean ")[1].split(" or ")
    assert len(suggested) == 3
    assert "'esp32-s3-eye'" in suggested


def test_of_many_boards_with_these_words_only_some_are_listed() -> None:
    assert len(with_words(["bare", "chip"])) > MAX_LISTED
    with pytest.raises(ArgumentError, match="did you mean ") as caught:
        by_name("bare chip")
    assert str(caught.value).split("?")[0].count(" or ") == MAX_LISTED - 1


@pytest.mark.parametrize(
    ("name", "sdk", "kernels"),
    [
        ("nano33ble", "arduino", "arduino"),
        ("nano33ble", "mbed", "cmsis-nn"),
        ("esp32-devkitc", "zephyr", "reference"),
        ("esp32-devkitc", "arduino", "esp-nn"),
    ],
)
def test_kernels_are_those_of_the_sdk(name: str, sdk: str, kernels: str) -> None:
    assert (by_name(name, sdk).sdk, by_name(name, sdk).kernels) == (sdk, kernels)


def test_a_board_is_found_by_its_chip() -> None:
    assert [board.name for board in with_words(["nucleo", "stm32f103"])] == ["nucleo-f103rb"]


WORDS = st.sampled_from([":", "::", "/", "@", " ", "nano33ble", "arduino", "mbed_nano", "pico", "nrf52840", "x"])


@given(st.lists(WORDS, max_size=7).map("".join))
def test_any_name_is_that_of_a_board_or_refused(name: str) -> None:
    with contextlib.suppress(ArgumentError):
        assert by_name(name).ram


def test_a_board_of_an_installed_platformio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORMIO_CORE_DIR", str(tmp_path))
    folder = tmp_path / "platforms" / "ststm32" / "boards"
    folder.mkdir(parents=True)
    described = {
        "build": {"mcu": "stm32f746zgt6"},
        "name": "A board",
        "upload": {"maximum_ram_size": "327680", "maximum_size": "1048576"},
    }
    (folder / "myboard_f746.json").write_text(json.dumps(described))
    for platform, broken in (("another", "{"), ("zzz", json.dumps({**described, "name": "A later one"}))):
        other = tmp_path / "platforms" / platform / "boards"
        other.mkdir(parents=True)
        (other / "myboard_f746.json").write_text(broken)
    (folder / "broken_board.json").write_text("{")
    found = by_name("myboard_f746")
    assert not is_guess("myboard_f746")
    assert (found.description, found.flash_bytes, found.chip) == ("A board", 1 << 20, "STM32F746")
    assert found.ram == chips()["STM32F746"].ram
    for unknown in ("broken_board", "myboard_f74?", "myboard*"):
        with pytest.raises(ArgumentError, match="unknown board"):
            by_name(unknown)


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
