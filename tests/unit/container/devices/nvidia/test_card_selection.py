# SPDX-License-Identifier: BSD-3-Clause
"""Which cards a container gets, under schedulers and with the variables of NVIDIA's tools."""

from __future__ import annotations

from kedge.container.devices import plan_devices
from kedge.container.options import RunOptions
from tests.builders.gpu_hosts import make_driver_tree, make_host, make_image
from tests.builders.rows import each_row, with_rows

H200S = ("NVIDIA H200",) * 4
UUID = "GPU-{}1111111-2222-3333-4444-555555555555"


def plan(tree: dict[str, bytes | str | None] | None = None, refused: tuple[str, ...] = (), **given: object):
    environ = {name: str(value) for name, value in given.items() if name.isupper()}
    options = {name: value for name, value in given.items() if not name.isupper()}
    host = make_host(tree or make_driver_tree(models=H200S), refused=refused, **environ)
    return plan_devices(RunOptions(nv=True, **options), host, make_image())


def cards_of(additions) -> list[str]:
    return [path for path in additions.devices if path[len("/dev/nvidia") :].isdigit()]


# The builder's minors run against the numbers: card 1 is /dev/nvidia2.
@with_rows(
    ({}, "3210", None),
    ({"CUDA_VISIBLE_DEVICES": "1"}, "2", "0"),
    ({"CUDA_VISIBLE_DEVICES": "3,1"}, "20", "1,0"),  # they count anew inside
    ({"CUDA_VISIBLE_DEVICES": "2", "containall": True}, "1", "0"),
    ({"CUDA_VISIBLE_DEVICES": UUID.format(2)[:12]}, "1", UUID.format(2)[:12]),
    # the control group of a job leaves it cards 2 and 3: its number 0 is the host's 2
    ({"CUDA_VISIBLE_DEVICES": "0,1", "refused": ("/dev/nvidia3", "/dev/nvidia2")}, "10", "0,1"),
    ({"CUDA_VISIBLE_DEVICES": "2", "NVIDIA_VISIBLE_DEVICES": "2"}, "1", "0"),  # not hidden twice
    ({"NVIDIA_VISIBLE_DEVICES": "none"}, "", "-1"),
    *(({"NVIDIA_VISIBLE_DEVICES": value}, "3210", None) for value in ("all", "void", "")),
)
def test_selection_chooses_cards_and_numbers_them_inside(given, cards, variable) -> None:
    additions = plan(**{"contain": True, **given})
    assert cards_of(additions) == [f"/dev/nvidia{minor}" for minor in cards]
    assert additions.variables == ({} if variable is None else {"CUDA_VISIBLE_DEVICES": variable})
    assert additions.libraries
    assert additions.warnings == []


def test_selection_what_others_number_stays() -> None:
    additions = plan(CUDA_VISIBLE_DEVICES="3,1")
    assert additions.variables["CUDA_VISIBLE_DEVICES"] == "3,1"
    assert any("--cleanenv" in note for note in additions.notes)
    for given in ({"env": ["A=1,CUDA_VISIBLE_DEVICES=3"]}, {"APPTAINERENV_CUDA_VISIBLE_DEVICES": "3"}):
        additions = plan(contain=True, CUDA_VISIBLE_DEVICES="3", **given)
        assert len(cards_of(additions)) == 4
        assert "CUDA_VISIBLE_DEVICES" not in additions.variables
    tree = {path: x for path, x in make_driver_tree().items() if "/gpus/" not in path}
    additions = plan(tree, contain=True, NVIDIA_VISIBLE_DEVICES="GPU-9999")
    assert (cards_of(additions), additions.warnings) == (["/dev/nvidia0"], [])


@each_row("value", ["", "-1", "NoDevFiles"])
def test_selection_hidden_cards_are_said(value: str) -> None:
    additions = plan(CUDA_VISIBLE_DEVICES=value)
    assert any("will see no GPU" in text for text in additions.warnings)
    assert additions.variables["CUDA_VISIBLE_DEVICES"] == value


def test_selection_of_cards_that_are_not_there_is_said() -> None:
    assert any("GPU 7" in text and "4" in text for text in plan(CUDA_VISIBLE_DEVICES="0,7").warnings)
    additions = plan(contain=True, NVIDIA_VISIBLE_DEVICES="GPU-9999")
    assert len(cards_of(additions)) == 4
    assert any("GPU-9999" in text for text in additions.warnings)


@each_row("value", ["1", "nvidia.com/gpu=1", "nvidia.com/gpu=gpu1", UUID.format(1)])
def test_selection_injectors_variable_limits_too(value: str) -> None:
    outside = plan(NVIDIA_VISIBLE_DEVICES=value)
    assert outside.variables["CUDA_VISIBLE_DEVICES"] == "1"
    inside = plan(contain=True, NVIDIA_VISIBLE_DEVICES=value)
    assert cards_of(inside) == ["/dev/nvidia2"]


def test_selection_unlike_cards_are_not_counted() -> None:
    tree = make_driver_tree(models=("Tesla T4", "NVIDIA A100-SXM4-80GB"))
    additions = plan(tree, contain=True, CUDA_VISIBLE_DEVICES="0")
    assert (len(cards_of(additions)), additions.variables["CUDA_VISIBLE_DEVICES"]) == (2, "0")
    by_bus = plan(tree, contain=True, CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert (cards_of(by_bus), by_bus.variables["CUDA_DEVICE_ORDER"]) == (["/dev/nvidia1"], "PCI_BUS_ID")


def mig_tree() -> dict[str, bytes | str | None]:
    tree = make_driver_tree(models=H200S)
    capabilities = "/proc/driver/nvidia/capabilities/gpu3/mig"
    for path, minor in (("gi1/access", 12), ("gi1/ci0/access", 13), ("gi2/access", 21), ("gi2/ci0/access", 22)):
        tree[f"{capabilities}/{path}"] = f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        tree[f"/dev/nvidia-caps/nvidia-cap{minor}"] = ""
    return tree


def test_selection_mig_parts_get_their_nodes() -> None:
    wanted = f"MIG-{UUID.format(0)}/2/0"
    additions = plan(mig_tree(), contain=True, CUDA_VISIBLE_DEVICES=wanted)
    assert cards_of(additions) == ["/dev/nvidia3"]
    assert [path for path in additions.devices if "caps" in path] == [
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
    ]
    assert additions.variables["CUDA_VISIBLE_DEVICES"] == wanted
    wanted = "MIG-5c1ba6c1-2f44-5b0e-b3a4-1f0d8b9d1c11"
    additions = plan(mig_tree(), contain=True, CUDA_VISIBLE_DEVICES=wanted)
    assert len(cards_of(additions)) == 4
    assert "/dev/nvidia-caps" in additions.devices
    assert (additions.variables["CUDA_VISIBLE_DEVICES"], additions.warnings) == (wanted, [])
    additions = plan(mig_tree(), contain=True, NVIDIA_VISIBLE_DEVICES="0:1")
    assert cards_of(additions) == ["/dev/nvidia3"]
    assert len([path for path in additions.devices if "caps/" in path]) == 4


@each_row("value", [",,", "0,,1", "²", "MIG-GPU-", "MIG-GPU-x/1", ":", "a:b", "gpu=", "0:", "99999999999"])
def test_selection_nonsense_never_fails(value: str) -> None:
    plan(contain=True, CUDA_VISIBLE_DEVICES=value)
    plan(contain=True, NVIDIA_VISIBLE_DEVICES=value)
    plan(NVIDIA_VISIBLE_DEVICES=value)
