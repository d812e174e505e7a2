# SPDX-License-Identifier: BSD-3-Clause
"""One file with the compiled modules of a start, beside Python's own bytecode, and what imports them from there.

A start loads fifty modules of kedge. Python looks for each in its directory, and opens and reads two files for it; on a
thousand nodes that is a shared file system's work. The archive is opened once. It is a cache as `__pycache__` is: in
the same place, under the same switches, written by who may write there, and never needed. A module counts as long as
its source has the size and the time of change that it had when it was compiled; this is asked at each import, as Python
asks it. Nothing here raises: whatever is wrong with an archive, Python imports the module in its own way.
docs/adr/0072-one-file-of-modules.md. What all other verbs load, and what two of them load besides, is in files of their
own, so that a start reads none of it.

    bytes 0-15    MARK
    bytes 16-19   the magic number of Python's bytecode
    bytes 20-23   the size of the table
    bytes 24-27   the size of what every start needs, which comes first and is read at once
    bytes 28-35   the hash of the table, with the two sizes as its key
    table         marshal: {module: (offset behind the table, size, hash, source, its size, its time of change)},
                  (offset, size, hash, names) of the modules that are loaded together
    early modules marshal, one code object each: what is imported before it is known that a container is started
    together      marshal: a tuple of code objects, in an order in which each finds what it imports, and
                  {module: {function: code}} of functions that few starts call, packed once more
    modules       marshal, one code object each: the same again, for when one of them has changed, and all others; in
                  archives of verbs nothing, and the sizes in the table are 0
"""

import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from types import CodeType, FunctionType, ModuleType

    Entry = tuple[int, int, bytes, str, int, int]
    Together = tuple[int, int, bytes, tuple[str, ...]]
    Split = dict[str, tuple[CodeType, dict[str, bytes]]]
    Loaded = tuple[tuple[CodeType, ...], dict[str, dict[str, bytes]]]
    MAGIC_NUMBER: bytes
    fix_file_name: Callable[[CodeType, str], None]
    hash_bytes: Callable[[int, bytes | memoryview], bytes]
else:  # loaded with every interpreter; the public names of these import more
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
    from _imp import _fix_co_filename as fix_file_name
    from _imp import source_hash as hash_bytes

MARK = b"kedge modules 3\n"
_TABLE = 36  # where it begins
START = "start"
UNCHECKED = -1  # for a time of change: the module is in a bundle, without a source that could be another
_LARGEST = 64 << 20
_FEW = 4  # modules that are read one by one
_Module = type(sys)
_unpacked: "dict[LateFunction, FunctionType]" = {}
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_IS_BUNDLED = __file__.endswith(".pyc")  # compiled modules alone, below a directory that is named by their digest


def serve_modules(kind: str = START) -> None:
    """Let modules of a start, or of verbs, come from their archive, which is written if it is missing and may be."""
    place = find_archive(kind)
    if place is None or any(isinstance(each, ModuleArchive) and each.place == place for each in sys.meta_path):
        return
    archive = ModuleArchive(place, kind)
    if archive.read() or archive.renew():
        sys.meta_path.insert(0, archive)


def find_archive(kind: str = START) -> str | None:
    """Where an archive of this interpreter is or would be; None where Python keeps no bytecode of this package."""
    cached = __spec__.cached if __spec__ is not None else None
    if not cached or not cached.startswith("/") or not cached.endswith(".pyc"):
        return None
    folder, _, name = cached.rpartition("/")
    # start.cpython-311.modules, start.cpython-311.opt-1.modules; start.modules in a bundle, which has no __pycache__
    return f"{folder}/{kind}{name[name.index('.') : -4]}.modules"


def load_together(kind: str = START) -> None:
    """Load all modules of a start at once, where the archive has them: half the cost of one import after the other.

    So with other kinds, in commands of kedge: a program that uses kedge imports in Python's own way, and so does one
    with threads, which could meet a module that is not ready.
    """
    if "importtime" in sys._xoptions:
        return  # Python is asked what each import costs
    if kind != START:
        threads = sys.modules.get("threading")
        is_command = any(isinstance(each, ModuleArchive) for each in sys.meta_path)
        if not is_command or (threads is not None and threads.active_count() > 1):
            return
        serve_modules(kind)
    for each in tuple(sys.meta_path):
        if isinstance(each, ModuleArchive) and each.kind == kind:
            each.load_together()


class ModuleArchive:
    """Finds the modules that the archive has; one of `sys.meta_path`."""

    def __init__(self, place: str, kind: str = START) -> None:
        self.place, self.kind = place, kind
        self._data = b""
        self._start = 0
        self._table: dict[str, Entry] = {}
        self._together: Together = (0, 0, b"", ())
        # of those that are being loaded together: some import one before its turn
        self._codes: dict[str, CodeType] = {}
        self._late: dict[str, dict[str, bytes]] = {}
        self._pieces = 0
        self._is_renewed = False

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,  # noqa: ARG002 - of every finder
        target: "ModuleType | None" = None,  # noqa: ARG002 - likewise
    ) -> "ModuleSpec | None":
        """How the module is loaded; None if Python has to look for it."""
        if name not in self._table:
            return None
        code = self._codes.get(name)
        if code is None and not self._table[name][1]:
            return None  # loaded together, or by Python
        code = code or self._load(name)
        if code is None and self.renew():
            code = self._load(name)
        if code is None:
            self._table.pop(name, None)
            return None
        return self._describe(name, _root_of(name) + self._table[name][3], code)

    def _describe(self, name: str, source: str, code: "CodeType") -> "ModuleSpec":
        spec = ModuleSpec(name, ArchivedModule(name, source, code, self._late.get(name)), origin=source)
        spec.has_location = True
        folder, _, file = source.rpartition("/")
        if file in ("__init__.py", "__init__.pyc"):
            spec.submodule_search_locations = [folder]
        return spec

    def load_together(self) -> None:
        """Load the modules of every start; what is not as it was is left to Python's imports, one by one."""
        loaded = self._load_together()
        if loaded is None and self.renew():
            loaded = self._load_together()
        codes, self._late = loaded or ((), {})
        self._codes = dict(zip(self._together[3], codes, strict=False))
        try:
            for name, code in self._codes.items():
                parent = name.rpartition(".")[0]
                # a package that is not there, because its archive is not as it was, must be imported before its modules
                if name not in sys.modules and (not parent or parent in sys.modules):
                    self._run(name, code)
        finally:
            self._codes, self._late = {}, {}

    def _run(self, name: str, code: "CodeType") -> None:
        """What Python does for an import, without its search: nobody else imports meanwhile."""
        parent, _, last = name.rpartition(".")
        source = _root_of(name) + self._table[name][3]
        spec = self._describe(name, source, code)
        module = _Module(name)
        names = module.__dict__
        names["__spec__"], names["__loader__"], names["__file__"] = spec, spec.loader, source
        names["__package__"] = parent
        if spec.submodule_search_locations is not None:
            names["__package__"], names["__path__"] = name, spec.submodule_search_locations
        _add_late(names, self._late.get(name))
        sys.modules[name] = module
        try:
            exec(code, names)
        except BaseException:
            sys.modules.pop(name, None)
            raise
        if parent in sys.modules:
            setattr(sys.modules[parent], last, module)

    def _load_together(self) -> "Loaded | None":
        """The code of the modules of every start, if all sources are as they were and the archive undamaged."""
        offset, size, digest, members = self._together
        try:
            sources = [self._find_unchanged(name) for name in members]
            start = self._start + offset
            data = memoryview(self._data)[start : start + size]  # half a megabyte: no copy of it
            if None in sources or hash_bytes(offset, data) != digest:
                return None
            loaded: Loaded = marshal.loads(data)
            for code, source in zip(loaded[0], sources, strict=True):
                if source:
                    fix_file_name(code, source)  # the package may have been moved
            return loaded
        except (OSError, ValueError, EOFError, TypeError, KeyError):
            return None

    def _find_unchanged(self, name: str) -> str | None:
        """The path of a module's source, empty in a bundle; None if it is not as it was."""
        _, _, _, tail, size, changed = self._table[name]
        if changed == UNCHECKED and _IS_BUNDLED:
            return ""
        source = (_PACKAGE if name[:6] == "kedge." else _root_of(name)) + tail
        found = os.stat(source)
        return source if (found.st_size, found.st_mtime_ns) == (size, changed) else None

    def _load(self, name: str) -> "CodeType | None":
        """The code of a module, if its source is as it was and the archive undamaged."""
        try:
            source = self._find_unchanged(name)
            if source is None:
                return None
            offset, size, digest = self._table[name][:3]
            data = self._read_piece(self._start + offset, size)
            if hash_bytes(offset, data) != digest:
                return None
            code: CodeType = marshal.loads(data)
            if source:
                fix_file_name(code, source)  # the package may have been moved
            return code
        except (OSError, ValueError, EOFError, TypeError, KeyError):
            return None

    def read(self) -> bool:
        """Take what the file has, if it can be trusted; whether it could."""
        try:
            data = _read_trusted(self.place)
            start = _TABLE + int.from_bytes(data[20:24], "little")
            if hash_bytes(int.from_bytes(data[20:28], "little"), data[_TABLE:start]) != data[28:_TABLE]:
                return False
            self._table, self._together = marshal.loads(data[_TABLE:start])
        except (OSError, ValueError, EOFError, TypeError):
            return False
        self._data, self._start = data, start
        return True

    def _read_piece(self, start: int, size: int) -> bytes:
        """A module that few starts need: read now, and the whole file where many are asked for."""
        if start + size > len(self._data):
            self._pieces += 1
            if self._pieces <= _FEW:
                return _read_trusted(self.place, start, size)  # by its hash it is this archive's, or nobody's
            data = _read_trusted(self.place, size=-1)
            if data[: self._start] != self._data[: self._start]:
                raise ValueError("another archive")
            self._data = data
        return self._data[start : start + size]

    def renew(self) -> bool:
        """Compile the modules of a start again and write the archive, at most once; whether there is one now.

        One that cannot be written, as on a full disk, serves this process.
        """
        if self._is_renewed:
            return False
        self._is_renewed = True
        if _IS_BUNDLED or sys.dont_write_bytecode or not _may_write(self.place):
            return False
        data = make_archive(self.kind)
        if data is None:
            return False
        _write_whole(self.place, data)
        if self.kind == START:
            _write_others()
        self._start = _TABLE + int.from_bytes(data[20:24], "little")
        self._data = data
        self._table, self._together = marshal.loads(data[_TABLE : self._start])
        return True


class LateFunction(tuple):  # type: ignore[type-arg]  # made by the hundred, and a tuple is made in no time
    """A function of a module that few starts call: the module's names, its own, and its packed definition.

    It is unpacked from memory when it is first called, which may be where the host's files are out of reach. It stays
    in its place then: a function may be a key, or be compared.
    """

    __slots__ = ()
    __hash__, __eq__ = object.__hash__, object.__eq__

    def __call__(self, *words: object, **named: object) -> object:
        """Call the function itself."""
        return self._unpack()(*words, **named)

    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self._unpack().__get__(instance, owner)

    def __getattr__(self, name: str) -> object:
        return getattr(self._unpack(), name)

    def _unpack(self) -> "FunctionType":
        if self not in _unpacked:
            names, name, packed = self
            code = marshal.loads(packed)
            if not _IS_BUNDLED:
                fix_file_name(code, names["__file__"])
            made: dict[str, FunctionType] = {}
            exec(code, names, made)
            _unpacked[self] = made[name]
        return _unpacked[self]


def _add_late(names: dict[str, object], late: "dict[str, bytes] | None") -> None:
    """Give a module the functions that its code does not define."""
    if late is not None:
        for name, packed in late.items():
            names[name] = LateFunction((names, name, packed))


class ArchivedModule(SourceFileLoader):
    """A module that is found at a file, as any other; only its code is there already."""

    def __init__(self, name: str, path: str, code: "CodeType", late: "dict[str, bytes] | None") -> None:
        super().__init__(name, path)
        self._code, self._late = code, late

    def exec_module(self, module: "ModuleType") -> None:
        """Run the module, as Python asks for it where it is imported before its turn."""
        _add_late(module.__dict__, self._late)
        super().exec_module(module)

    def get_code(self, fullname: str) -> "CodeType":  # noqa: ARG002 - of every loader
        """The code of the module."""
        return self._code

    def get_source(self, fullname: str) -> str | None:
        """The text of the module, for tracebacks; a module of a bundle has none."""
        return None if self.path.endswith(".pyc") else super().get_source(fullname)


def _root_of(name: str) -> str:
    """The directory that sources of kedge, of urllib3 beside it, or of Python's own modules, are named from."""
    if name.startswith("kedge."):
        return _PACKAGE
    return os.path.dirname(_PACKAGE if name.partition(".")[0] == "urllib3" else os.__file__)


def locate_source(name: str) -> str:
    """The source file of a module, from the directory of the package or of Python's own modules."""
    tail = "/" + name.removeprefix("kedge.").replace(".", "/")
    return f"{tail}/__init__.py" if os.path.isdir(_root_of(name) + tail) else f"{tail}.py"


def _write_others() -> None:
    """Write the archives of verbs, too: the owner of an installation may run `kedge --version` and never another."""
    from kedge.start_modules import ARCHIVES

    for kind in ARCHIVES:
        place = find_archive(kind) if kind != START else None
        data = make_archive(kind) if place is not None else None
        if place is not None and data is not None:
            _write_whole(place, data)


def make_archive(kind: str = START) -> bytes | None:
    """The bytes of an archive of the modules of starts; None if one of their sources has changed just now.

    Modules of verbs are as Python compiled them for itself: taking them from there is twenty times faster.
    """
    import time  # late: only for writing

    from kedge.late_functions import LATE
    from kedge.lean_code import compile_lean, compile_split
    from kedge.start_modules import ARCHIVES

    early, together, more = ARCHIVES[kind]
    modules: list[tuple[str, str, bytes, int, int]] = []
    split: Split = {}
    for name in (*early, *together, *more):
        tail = locate_source(name)
        source = _root_of(name) + tail
        try:
            found = os.stat(source)  # before it is read: a change meanwhile makes the entry old, not wrong
            if time.time_ns() - found.st_mtime_ns < _settle_time(found.st_mtime_ns):
                return None
            loader = SourceFileLoader(name, source)
            if kind == START:
                # the others have classes of the Python interface, whose docstrings are shown
                compiled = compile_lean if name in (*early, *together) else loader.source_to_code
                # not Python's bytecode of it, which counts by whole seconds
                text = loader.get_data(source)
                body = marshal.dumps(compiled(text, source))
                if name in together and name in LATE:
                    code, late = compile_split(text, source, LATE[name])
                    split[name] = code, {each: marshal.dumps(piece) for each, piece in late.items()}
            else:
                body = marshal.dumps(loader.get_code(name))
        except (OSError, SyntaxError, ValueError, ImportError):
            continue  # importing it says what is wrong
        modules.append((name, tail, body, found.st_size, found.st_mtime_ns))
    return pack_archive(modules, early, together, split, is_twice=kind == START) if modules else None


def _settle_time(changed: int) -> int:
    """The ns after a change a source could change again and keep its time: a tick of its file system's clock."""
    is_coarse = changed % 1_000_000_000 == 0  # a clock of whole seconds; others tick 100 times a second or more
    return 2_000_000_000 if is_coarse else 100_000_000


def pack_archive(
    modules: "Sequence[tuple[str, str, bytes, int, int]]",
    early: "Sequence[str]",
    together: "Sequence[str]",
    split: "Split",
    *,
    is_twice: bool = True,
) -> bytes:
    """The bytes of an archive: of each module its name, file, code, and the file's size and time or UNCHECKED.

    Of those that are loaded `together` the order is the one in which they are run, and some are `split` into the module
    and its late functions; twice, each is there by itself and whole, too.
    """
    known = {module[0]: module for module in modules}
    table: dict[str, Entry] = {}
    pieces: list[bytes] = []
    offset = 0

    def add(names: "Sequence[str]") -> None:
        nonlocal offset
        for name in names:
            _, tail, body, size, changed = known[name]
            table[name] = (offset, len(body), hash_bytes(offset, body), tail, size, changed)
            pieces.append(body)
            offset += len(body)

    add([name for name in early if name in known])
    members = tuple(name for name in together if name in known)
    codes = tuple(split[name][0] if name in split else marshal.loads(known[name][2]) for name in members)
    joined = marshal.dumps((codes, {name: split[name][1] for name in members if name in split}))
    group: Together = (offset, len(joined), hash_bytes(offset, joined), members)
    pieces.append(joined)
    offset += len(joined)
    first_size = offset
    table.update((name, (0, 0, b"", known[name][1], *known[name][3:])) for name in (() if is_twice else members))
    add([name for name in known if name not in table])
    packed = marshal.dumps((table, group))
    sizes = len(packed).to_bytes(4, "little") + first_size.to_bytes(4, "little")
    digest = hash_bytes(int.from_bytes(sizes, "little"), packed)
    return b"".join((MARK, MAGIC_NUMBER, sizes, digest, packed, *pieces))


def unpack_lean(data: bytes) -> "tuple[bytes, tuple[CodeType, dict[str, bytes]]]":
    """What a bundle has of a module of every start: its code packed, and the same without its late functions."""
    whole, code, late = marshal.loads(data)
    return whole, (code, late)


def _read_trusted(place: str, start: int = 0, size: int = 0) -> bytes:
    """The bytes of an archive that nobody but root, this user or the owner of the package can have written.

    Without a size those that every start needs; -1: all.
    """
    file = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if found.st_mode & 0o170022 != 0o100000:
            raise ValueError("not a regular file, or one that others can write to")
        if found.st_uid not in (0, os.geteuid()) and found.st_uid != os.stat(_PACKAGE).st_uid:
            raise ValueError("somebody else's")
        head = os.read(file, _TABLE)
        if head[:20] != MARK + MAGIC_NUMBER or found.st_size > _LARGEST:
            raise ValueError("no archive for this Python")
        if size < 0:
            size = found.st_size
        elif not size:
            size = _TABLE + int.from_bytes(head[20:24], "little") + int.from_bytes(head[24:28], "little")
        data = os.pread(file, min(size, found.st_size), start)
        if len(data) != size:
            raise ValueError("cut short")
        return data
    finally:
        os.close(file)


def _may_write(place: str) -> bool:
    """Whether an archive that this user writes is one that all users of the package would trust."""
    try:
        is_owner = bool(sys.pycache_prefix) or os.geteuid() in (0, os.stat(_PACKAGE).st_uid)
        return is_owner and os.access(os.path.dirname(place), os.W_OK)
    except OSError:
        return False


def _write_whole(place: str, data: bytes) -> None:
    """Put a file in its place, whole or not at all."""
    beside = f"{place}.{os.getpid()}-{os.urandom(6).hex()}"
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)
        os.replace(beside, place)
    except OSError:
        try:
            os.unlink(beside)
        except OSError:
            return
