# SPDX-License-Identifier: BSD-3-Clause
"""From an image config (environment, labels, history) and the table's row of the tag to what is in the image.

The config wins over the table, because it is of this very image; where they contradict each other a note says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.base.patterns import late_pattern
from kedge.base.versions import order
from kedge.compat.contents.distributions import find_glibc, read_history_system, read_label_system, read_tag_system
from kedge.compat.contents.table_facts import list_row_notes, read_row
from kedge.compat.traits import TITLES, UNKNOWN, Fact, ImageTraits
from kedge.image.clean_config import (
    clean_text,
    list_commands,
    read_history_variables,
    split_variables,
    strip_build,
)

if TYPE_CHECKING:
    from kedge.base.manifest import ImageConfig
    from kedge.compat.tables.load import Tables

_LONGEST_REQUIREMENT = 16_000  # characters; those of CUDA 12.8 have about 3,000
_MOST_REQUIREMENTS = 32
_MOST_WORDS = 64  # of an entrypoint
_ARCHITECTURE_LIST = late_pattern(r"\d{1,2}\.\d[af]?(?:\+PTX)?\Z")
_BRANCH = late_pattern(r"driver>=(\d+)(?:\.\d+)*,driver<(\d+)")
_TAG_CUDA = late_pattern(r"(?:\A|[-_])(?:cuda|cu)-?(\d{1,2}(?:\.\d(?:\.\d)?)?)(?=[-_]|\Z)")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # what NVIDIA's toolkit takes for true
_VERSIONS = {  # where each is found: variables first, labels then
    "cudnn": (("CUDNN_VERSION", "NV_CUDNN_VERSION"), "com.nvidia.cudnn.version"),
    "nccl": (("NCCL_VERSION", "NV_LIBNCCL_PACKAGE_VERSION"), "com.nvidia.nccl.version"),
    "tensorrt": (("TRT_VERSION", "TENSORRT_VERSION"), "com.nvidia.tensorrt.version"),
    "hpcx": (("HPCX_VERSION",), ""),
    "ucx": (("OPENUCX_VERSION", "UCX_VERSION"), ""),
    "horovod": (("HOROVOD_VERSION",), ""),
    "dali": (("DALI_VERSION",), ""),
    "driver": (("CUDA_DRIVER_VERSION",), ""),
}
_MPI = {
    "OPENMPI_VERSION": "Open MPI",
    "OMPI_VERSION": "Open MPI",
    "MPICH_VERSION": "MPICH",
    "I_MPI_VERSION": "Intel MPI",
    "MVAPICH2_VERSION": "MVAPICH2",
    "MV2_VERSION": "MVAPICH2",
    "MVAPICH_VERSION": "MVAPICH",
}


def read_traits(
    name: str,
    *,
    environment: Mapping[str, str],
    labels: Mapping[str, str],
    history: Iterable[object],
    tables: Tables,
    architecture: str = "",
    origin: str = "",
) -> ImageTraits:
    """Return what is in the image called `name`; `origin` is the reference that a file was made from.

    `history` holds lines, or the entries of a config's history.
    """
    image, tag = split_name(origin or name)
    reading = _Reading(environment, labels, list_commands(history), tag)
    facts = reading.collect(image)
    row = tables.find_release(image, tag) if tag else None
    notes = reading.list_notes()
    if row is not None:
        notes += _join(facts, read_row(row, tag, architecture))
        notes += list_row_notes(row, facts)
    _complete(facts, tag, tables)
    traits = ImageTraits(
        name=clean_text(name, 1000),
        requires=reading.list_requirements(),
        disables_requires=environment.get("NVIDIA_DISABLE_REQUIRE", "") in _TRUE,
        architecture=architecture,
        notes=tuple(notes),
    )
    return replace(traits, **facts)


def read_config_traits(name: str, config: ImageConfig, tables: Tables, *, origin: str = "") -> ImageTraits:
    """What a whole image config tells, with entrypoint, command and date."""
    known = config.platform.architecture
    traits = read_traits(
        name,
        environment=split_variables(config.environment),
        labels=config.labels,
        history=config.history,
        tables=tables,
        architecture="" if known == "unknown" else clean_text(known, 20),
        origin=origin,
    )
    return replace(
        traits,
        entrypoint=tuple(clean_text(word) for word in config.entrypoint[:_MOST_WORDS]),
        command=tuple(clean_text(word) for word in config.command[:_MOST_WORDS]),
        created=clean_text(config.created, 40),
    )


def split_name(name: str) -> tuple[str, str]:
    """Image and tag as the table has them: Docker Hub's `nvidia/cuda` is the one of nvcr.io."""
    plain = name.removeprefix("docker://").partition("@")[0]
    image, colon, tag = plain.rpartition(":")
    if not colon or "/" in tag:
        image, tag = plain, ""
    for hub in ("docker.io/", "index.docker.io/", "registry-1.docker.io/"):
        image = image.removeprefix(hub)
    return ("nvcr.io/nvidia/cuda" if image == "nvidia/cuda" else image), tag


class _Reading:
    """One image's variables, labels and history, each of them text that anybody may have written."""

    def __init__(
        self, environment: Mapping[str, str], labels: Mapping[str, str], lines: tuple[str, ...], tag: str
    ) -> None:
        self.environment, self.labels, self.lines, self.tag = environment, labels, lines, tag
        self.built_with = read_history_variables(lines)

    def collect(self, image: str) -> dict[str, Fact]:
        """Return all facts that the config itself tells."""
        facts = dict.fromkeys((*TITLES, "compat", "compat_branches"), UNKNOWN)
        for name, (variables, label) in _VERSIONS.items():
            facts[name] = self._version(variables, label)
        facts["cuda"] = self._variable("CUDA_VERSION") or self._argument("CUDA_VERSION")
        facts["python"] = (
            self._argument("PYVER") or self._variable("PYTHON_VERSION") or self._argument("PYTHON_VERSION")
        )
        facts["mpi"] = self._mpi()
        facts["os"] = self._system()
        facts["compat"] = self._compat()
        facts["compat_branches"] = self._branches()
        facts["capabilities"] = self._capabilities()
        facts |= find_framework(image, self.tag, self.environment, self.built_with)
        return facts

    def list_requirements(self) -> tuple[tuple[str, str], ...]:
        """NVIDIA_REQUIRE_*; those of Jetson systems are passed over, as NVIDIA's toolkit does."""
        requirements = [
            (clean_text(name), clean_text(value, _LONGEST_REQUIREMENT))
            for name, value in sorted(self.environment.items())
            if name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK") and value.strip()
        ]
        return tuple(requirements[:_MOST_REQUIREMENTS])

    def list_notes(self) -> list[str]:
        """What a reader must know that is no fact of its own."""
        notes = []
        if self.environment.get("NVIDIA_CUDA_END_OF_LIFE"):
            notes.append("the image declares its CUDA as end of life: NVIDIA will delete the tag")
        rocm = clean_text(self.environment.get("ROCM_VERSION", ""))
        if rocm or any(name in self.environment for name in ("ROCM_PATH", "HIP_PATH", "PYTORCH_ROCM_ARCH")):
            notes.append(f"made for AMD GPUs (ROCm{' ' + rocm if rocm else ''}); statements about NVIDIA do not apply")
        return notes

    def _variable(self, name: str) -> Fact:
        text = self.environment.get(name)
        return _make_version(text, f"image config, {name}") if text else UNKNOWN

    def _argument(self, name: str) -> Fact:
        text = self.built_with.get(name)
        return _make_version(text, f"image history, {name}") if text else UNKNOWN

    def _version(self, variables: tuple[str, ...], label: str) -> Fact:
        for name in variables:
            version = self._variable(name)
            if version:
                return Fact(strip_build(version.value), version.source)
        text = self.labels.get(label)
        version = _make_version(text, f"image label, {label}") if text else UNKNOWN
        return Fact(strip_build(version.value), version.source) if version else UNKNOWN

    def _mpi(self) -> Fact:
        for name, family in _MPI.items():
            version = self._variable(name)
            if version:
                return Fact(f"{family} {version.value}", version.source)
        intel = next((name for name in self.environment if name.startswith("I_MPI_")), "")
        return Fact("Intel MPI", f"image config, {clean_text(intel, 60)}") if intel else UNKNOWN

    def _system(self) -> Fact:
        system = read_label_system(self.labels)
        if system:
            return Fact(clean_text(system), "image label, org.opencontainers.image.version")
        system = read_history_system(self.lines)
        return Fact(system, "image history") if system else UNKNOWN

    def _compat(self) -> Fact:
        for name in ("CUDA_DRIVER_VERSION", "NV_CUDA_COMPAT_PACKAGE", "_CUDA_COMPAT_PATH"):
            if self.environment.get(name):
                return Fact("yes", f"image config, {name}")
        return UNKNOWN

    def _branches(self) -> Fact:
        """The host branches that a requirement lists are those that the forward-compatibility package runs on."""
        value = self.environment.get("NVIDIA_REQUIRE_CUDA", "")[:_LONGEST_REQUIREMENT]
        terms = [term for term in value.split() if _BRANCH.search(term)]
        ours = [term for term in terms if "brand=tesla" in term] or terms
        branches = sorted({int(branch) for term in ours for branch, _ in _BRANCH.findall(term)})
        if not branches:
            return UNKNOWN
        return Fact(" ".join(str(branch) for branch in branches), "image config, NVIDIA_REQUIRE_CUDA")

    def _capabilities(self) -> Fact:
        for name in ("TORCH_CUDA_ARCH_LIST", "CUDA_ARCH_LIST"):
            words = self.environment.get(name, "").replace(";", " ").replace(",", " ").split()
            if words and len(words) < 50 and all(_ARCHITECTURE_LIST.match(word) for word in words):
                return Fact(" ".join(words), f"image config, {name}")
        return UNKNOWN


def _make_version(text: str, source: str) -> Fact:
    value = clean_text(text, 60)
    return Fact(value, source) if order(value) else UNKNOWN


def _join(facts: dict[str, Fact], told: Mapping[str, Fact]) -> list[str]:
    """Fill what is unknown from the table's row; the sentences about what it contradicts."""
    notes = []
    if told["framework_version"] and not facts["framework_version"]:  # `Triton + vLLM` and its version are one
        facts["framework"], facts["framework_version"] = told["framework"], told["framework_version"]
    for name, fact in told.items():
        ours = facts[name]
        if not ours:
            facts[name] = fact
        elif fact and name not in ("compat", "framework") and not _agree(ours.value, fact.value):
            title = TITLES.get(name, "driver branches of forward compatibility")
            notes.append(
                f"{title}: the image says {ours.value}, NVIDIA's notes say {fact.value}; kedge uses the image's"
            )
    return notes


def _agree(one: str, other: str) -> bool:
    """Whether two versions say the same, one of them perhaps in more detail."""
    left, right = one.rstrip("+"), other.rstrip("+")
    if left.startswith(right) or right.startswith(left):
        return True
    fields = order(left.rpartition(" ")[2]), order(right.rpartition(" ")[2])
    length = min(len(fields[0]), len(fields[1]))
    is_plain = all(text.replace(".", "").rpartition(" ")[2].isdigit() for text in (left, right))
    return is_plain and fields[0][:length] == fields[1][:length]


def _complete(facts: dict[str, Fact], tag: str, tables: Tables) -> None:
    """What follows from other facts: the tag's own words, the C library of a distribution, the toolkit's branches."""
    if not facts["cuda"]:
        match = _TAG_CUDA.search(tag)
        facts["cuda"] = Fact(match[1], "the tag") if match else UNKNOWN
    if not facts["os"]:
        named = read_tag_system(tag)
        facts["os"] = Fact(named, "the tag") if named else UNKNOWN
    glibc = find_glibc(facts["os"].value)
    if glibc and not facts["glibc"]:
        facts["glibc"] = Fact(glibc, f"every {facts['os'].value} has it")
    toolkit = tables.find_cuda(facts["cuda"].value) if facts["cuda"] else None
    if toolkit is not None and not facts["compat_branches"] and toolkit.compat_branches:
        branches = " ".join(str(branch) for branch in sorted(toolkit.compat_branches))
        facts["compat_branches"] = Fact(branches, f"table, CUDA {toolkit.version}")


# Which framework an image is of, in which version and which monthly release: the names that publishers give them.

# Framework, the variables with its version, the variables with NVIDIA's monthly release; the first that fits wins.
_FRAMEWORKS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("Triton", ("TRITON_SERVER_VERSION",), ("NVIDIA_TRITON_SERVER_VERSION",)),
    ("PyTorch", ("PYTORCH_VERSION", "PYTORCH_BUILD_VERSION"), ("NVIDIA_PYTORCH_VERSION",)),
    ("TensorFlow", ("TENSORFLOW_VERSION", "TF_PACKAGE_VERSION"), ("NVIDIA_TENSORFLOW_VERSION",)),
    ("MXNet", ("MXNET_VERSION", "MX_VERSION"), ("NVIDIA_MXNET_VERSION",)),
    ("JAX", ("JAX_VERSION",), ("NVIDIA_JAX_VERSION",)),
    ("DGL", ("DGL_VERSION",), ("NVIDIA_DGL_VERSION",)),
    ("RAPIDS", ("RAPIDS_VER", "RAPIDS_VERSION"), ()),
    ("NVIDIA HPC SDK", ("NVHPC_VERSION",), ()),
)
_PRODUCTS = {"Triton Server": "Triton", "Triton": "Triton", "Optimized MXNet": "MXNet", "CUDA": ""}
# Images whose tag starts with the version of what they are named after.
_BY_TAG = {"pytorch/pytorch": "PyTorch", "tensorflow/tensorflow": "TensorFlow"}
_TAG_VERSION = late_pattern(r"\d+\.\d+\.\d+(?:[a-z]+\d+)?(?=-|\Z)")
_MONTH = late_pattern(r"\d\d\.\d\d(?:\.\d+)?(?=-|\Z)")
_RELEASED_MONTHLY = frozenset(
    f"nvcr.io/nvidia/{name}"
    for name in ("pytorch", "tensorflow", "mxnet", "jax", "tritonserver", "cuda-dl-base", "tensorrt", "dgl", "nvhpc")
)


def find_framework(
    image: str, tag: str, environment: Mapping[str, str], built_with: Mapping[str, str]
) -> dict[str, Fact]:
    """Framework, its version and the release; `built_with` holds the variables of the history."""
    name, version, release = _read_variables(environment, built_with)
    if not name and image in _BY_TAG:
        name = Fact(_BY_TAG[image], "the image's name")
    if not version and image in _BY_TAG:
        match = _TAG_VERSION.match(tag)
        version = Fact(match[0], "the tag") if match else UNKNOWN
    if not release and image in _RELEASED_MONTHLY:
        month = _MONTH.match(tag)
        release = Fact(month[0], "the tag") if month else UNKNOWN
    if not name and environment.get("CUDA_VERSION"):
        name = Fact("CUDA", "image config, CUDA_VERSION")
    if name.value == "CUDA" and not version and order(environment.get("CUDA_VERSION", "")):
        version = Fact(clean_text(environment["CUDA_VERSION"], 60), "image config, CUDA_VERSION")
    return {"framework": name, "framework_version": version, "release": release}


def _read_variables(environment: Mapping[str, str], built_with: Mapping[str, str]) -> tuple[Fact, Fact, Fact]:
    if not environment and not built_with:  # a row of a table, of which a recommendation reads hundreds
        return UNKNOWN, UNKNOWN, UNKNOWN
    product = clean_text(environment.get("NVIDIA_PRODUCT_NAME", ""))
    wanted = _PRODUCTS.get(product, product)
    for name, versions, releases in _ordered(wanted):
        version = _find(environment, versions, "image config") or _find(built_with, versions, "image history")
        release = _find(environment, releases, "image config")
        if version or release:
            return Fact(name, (version or release).source), version, _shorten(release)
    if wanted:
        return Fact(wanted, "image config, NVIDIA_PRODUCT_NAME"), UNKNOWN, UNKNOWN
    return UNKNOWN, UNKNOWN, UNKNOWN


def _ordered(wanted: str) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """The product that the image says it is stands first: images of Triton hold PyTorch, too."""
    return tuple(sorted(_FRAMEWORKS, key=lambda framework: framework[0] != wanted))


def _find(variables: Mapping[str, str], names: tuple[str, ...], where: str) -> Fact:
    for name in names:
        value = clean_text(variables.get(name, ""), 60)
        if order(value):
            return Fact(value, f"{where}, {name}")
    return UNKNOWN


def _shorten(release: Fact) -> Fact:
    """`21.06` of `21.06-tf1`: the month is the release."""
    month = _MONTH.match(release.value)
    return Fact(month[0], release.source) if month else release
