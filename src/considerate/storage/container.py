"""Container of models: named arrays and a JSON description in safetensors' format (docs/model-file.md).

    8 bytes      N, the length of the header, little-endian
    N bytes      the header: JSON, padded with spaces to a multiple of 64
    the rest     the arrays, end to end in the header's order, largest elements first

Opening maps the file and reads only the header. Every byte is covered by a checksum: sha256 of each array and of the
header itself, and in a large file crc32 of each 64 KB of its large arrays, so that a part is verified without the rest.
Checksums find accidents. Against malice, every claim of the file is checked, and nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from considerate._version import __version__
from considerate.errors import ModelFileError, UsageError
from considerate.storage.files import PathLike, atomic_write, map_written

Bytes = mmap.mmap | bytes
FORMAT = "considerate-model"
FORMAT_VERSION = 1
TRUTH = "truth"  # "kind" in the description of a simulation's truth, which is no model
INDEX, SHARD = "index", "users"  # "kind" in the descriptions of a model in shards
VERIFY_WHOLE = 64_000_000  # bytes; a file up to this size is verified when it is opened
BLOCKWISE = 1_000_000  # bytes; in a larger file, tensors above this size have checksums by blocks
BLOCK = 1 << 16  # bytes
BLOCKS = "__crc32__"  # name of the tensor of these checksums

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ALIGNMENT = 64
_HEADER_LIMIT = 8 << 20  # bytes; the JSON reader may allocate a small multiple of that for a hostile header
_DIMENSIONS_LIMIT = 32  # the limit of NumPy 1
_DIGITS_LIMIT = 100  # most digits of an integer in the JSON
_CHUNK = 16 << 20  # bytes per write, so that Ctrl-C works soon
_START = f'{{"__metadata__":{{"format":"{FORMAT}","format_version":"'.encode()  # start of our headers
_KEYS = {"format", "format_version", "library_version", "header_sha256", "tensor_sha256", "considerate"}
_SHA256 = re.compile("[0-9a-f]{64}")
_VERSION = re.compile("[1-9][0-9]{0,8}")


# --- Writing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InParts:
    """A tensor that is made in parts, from the first row on, as the whole might not fit in memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Callable[[], Iterable[NDArray[Any]]]  # called twice: for the checksum, and to write

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


Writable = NDArray[Any] | InParts


@dataclass(frozen=True)
class Encoded:
    """Content of a file: the header, and the tensors in its order."""

    header: bytes
    sha256: str  # of the header, which has the checksums of the tensors, so it identifies the whole content
    arrays: tuple[Writable, ...]

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The bytes of the file, in pieces of limited size."""
        yield len(self.header).to_bytes(8, "little")
        yield self.header
        for array in self.arrays:
            for data in _data_of(array):
                for start in range(0, len(data), _CHUNK):
                    yield data[start : start + _CHUNK]


def write_tensors(
    path: PathLike,
    tensors: Mapping[str, Writable],
    metadata: Mapping[str, Any],
    check: Callable[[Bytes], None] | None = None,
) -> None:
    """Write arrays and a description for JSON to one file, whole or not at all.

    The same arrays, description and library version give the same bytes, whatever the order of the mapping. `check`
    gets the written bytes before the file takes its name, and raises an error if it must not.
    """
    encoded = encode_tensors(tensors, metadata)
    with atomic_write(path) as file:
        file.writelines(encoded.pieces())
        if check is not None:
            check(map_written(file))


def write_scratch(path: PathLike, tensors: Mapping[str, Writable]) -> None:
    """Write arrays for this process alone, without checksums and not synced; open them with verify=False."""
    encoded = encode_tensors(tensors, {}, checksums=False)
    with atomic_write(path, durable=False) as file:
        file.writelines(encoded.pieces())


def encode_tensors(tensors: Mapping[str, Writable], metadata: Mapping[str, Any], *, checksums: bool = True) -> Encoded:
    """Make the content of the file that `write_tensors` writes, to write it elsewhere."""
    description = _described(metadata)
    arrays = _ordered({name: _storable(name, tensors[name]) for name in tensors})
    large = checksums and sum(array.nbytes for array in arrays.values()) > VERIFY_WHOLE
    sha256, blocks = dict.fromkeys(arrays, "0" * 64), list[int]()
    for name, array in arrays.items() if checksums else ():
        sha256[name] = _checksums(array, blocks if large and _blockwise(array.nbytes, array.dtype) else None)
    if blocks:
        arrays = _ordered(arrays | {BLOCKS: np.array(blocks, DTYPES["U32"])})
        sha256[BLOCKS] = _checksums(arrays[BLOCKS], None)
    header, header_sha256 = _header(arrays, {name: sha256[name] for name in arrays}, description)
    return Encoded(header, header_sha256, tuple(arrays.values()))


def _blockwise(size: int, dtype: np.dtype[Any]) -> bool:
    return size > BLOCKWISE and dtype != np.bool_


def _ordered(arrays: Mapping[str, Writable]) -> dict[str, Writable]:
    return dict(sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])))


def _storable(name: str, tensor: Writable) -> Writable:
    if not isinstance(name, str) or name in ("", "__metadata__", BLOCKS) or not _is_unicode(name):
        raise UsageError(f"{name!r} cannot name a tensor; use another text, that is not empty.")
    if isinstance(tensor, InParts):
        assert tensor.dtype in _NAMES
        return tensor
    array = np.asarray(tensor)
    little = array.dtype.newbyteorder("<")
    if little not in _NAMES:
        raise UsageError(f"tensor {name!r} has dtype {array.dtype}; convert it to one of {sorted(DTYPES)}.")
    if array.ndim > _DIMENSIONS_LIMIT:
        raise UsageError(f"tensor {name!r} has {array.ndim} dimensions; at most {_DIMENSIONS_LIMIT} are stored.")
    return np.asarray(array, little, order="C")


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _data_of(array: Writable) -> Iterator[memoryview]:
    """The bytes of a tensor, in parts."""
    if not isinstance(array, InParts):
        yield _bytes_of(array)
        return
    size = 0
    for part in array.parts():
        data = _bytes_of(np.asarray(part, array.dtype, order="C"))
        size += len(data)
        yield data
    assert size == array.nbytes, "the parts of a tensor are not its shape"


def _checksums(array: Writable, blocks: list[int] | None) -> str:
    """sha256 of a tensor; the same pass appends the crc32 of each of its blocks to `blocks`."""
    digest = hashlib.sha256()
    crc, room = 0, BLOCK
    for data in _data_of(array):
        digest.update(data)
        start = 0
        while blocks is not None and start < len(data):
            piece = data[start : start + room]
            crc, room, start = zlib.crc32(piece, crc), room - len(piece), start + len(piece)
            if not room:
                blocks.append(crc)
                crc, room = 0, BLOCK
    if blocks is not None and room < BLOCK:
        blocks.append(crc)
    return digest.hexdigest()


def _described(metadata: Mapping[str, Any]) -> str:
    """Write the description as JSON text that `open_tensors` accepts."""
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
        text.encode()
        parse_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the metadata cannot be stored as JSON ({error}); use plain, finite values.") from error
    return text


def _header(arrays: Mapping[str, Writable], checksums: Mapping[str, str], description: str) -> tuple[bytes, str]:
    """(header, its checksum)."""
    blank = "0" * 64
    header: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "format_version": str(FORMAT_VERSION),
            "library_version": __version__,
            "header_sha256": blank,
            "tensor_sha256": _dump(dict(checksums)),
            "considerate": description,
        }
    }
    start = 0
    for name, array in arrays.items():
        stop = start + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    raw = _dump(header).encode()
    raw += b" " * (-(8 + len(raw)) % _ALIGNMENT)
    if len(raw) > _HEADER_LIMIT:
        raise UsageError(
            f"the metadata and tensor names take {len(raw)} bytes and the limit is {_HEADER_LIMIT}; "
            "store long lists as tensors."
        )
    sha256 = hashlib.sha256(raw).hexdigest()
    return raw.replace(_checksum_field(blank), _checksum_field(sha256), 1), sha256


def _checksum_field(digits: str) -> bytes:
    return f'"header_sha256":"{digits}"'.encode()


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- Reading ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """Entry of a tensor in the header: type, shape, place in the file, and checksum."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    stop: int
    sha256: str


class StoredTensors(Mapping[str, NDArray[Any]]):
    """The arrays of an open file: read-only views of the mapped bytes, verified before they are returned.

    `thorough` is True if a reader should check every value: in a small file always, in a large one with verify=True.
    The views stay valid if the file is replaced or removed, but not if it is written to in place, which `atomic_write`
    never does.
    """

    def __init__(
        self, path: str, mapped: Bytes, entries: dict[str, _Entry], meta: Mapping[str, Any], verify: bool | None
    ) -> None:
        self.path = path
        self.metadata: dict[str, Any] = meta["considerate"]
        self.library_version = meta["library_version"]  # version of the library that wrote the file
        self.header_sha256 = meta["header_sha256"]  # identifies the whole content
        self.size = len(mapped)
        self.thorough = verify is True or self.size <= VERIFY_WHOLE
        self._mapped = mapped
        self._entries = entries
        self._verify = verify is not False
        self._verified: set[str] = set()
        self._blocks: dict[str, tuple[NDArray[np.uint32], NDArray[np.bool_]]] = {}
        self._blocks = self._read_blocks()
        if self.thorough and self._verify:
            for name in self:
                self._check(name)

    def __getitem__(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        if name not in self._verified:
            if name in self._blocks:
                self.verify_rows(name)
            else:
                self._check(name)
        return self._view(entry)

    def _view(self, entry: _Entry) -> NDArray[Any]:
        count = (entry.stop - entry.start) // entry.dtype.itemsize
        return np.frombuffer(self._mapped, entry.dtype, count, entry.start).reshape(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # without verification, unlike Mapping's own

    def __eq__(self, other: object) -> bool:
        return self is other  # Mapping's own would compare arrays

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"StoredTensors({self.path!r}, {len(self)} tensors)"

    def expect(self, name: str, dtype: DTypeLike, shape: Sequence[int | None], *, lazy: bool = False) -> NDArray[Any]:
        """A tensor with this dtype and shape (None: any length); ModelFileError if the file has no such tensor.

        With `lazy`, a tensor of a large file is not verified yet; call `verify_rows` before rows are used.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise self.refusal(f"has no tensor {shown(name)}")
        fits = len(shape) == len(entry.shape) and all(
            want in (None, have) for want, have in zip(shape, entry.shape, strict=True)
        )
        if not fits or entry.dtype != np.dtype(dtype):
            wanted = f"{np.dtype(dtype)} [{', '.join('any' if n is None else str(n) for n in shape)}]"
            raise self.refusal(f"tensor {shown(name)} is {entry.dtype} {list(entry.shape)} where {wanted} is expected")
        return self._view(entry) if lazy else self[name]

    def verify_rows(self, name: str, first: int = 0, last: int | None = None) -> None:
        """Verify rows first .. last - 1 of a tensor: their blocks, once each.

        The whole tensor is verified if it has no checksums of blocks: in a small file, or in one of release 0.1.
        """
        entry, blocks = self._entries[name], self._blocks.get(name)
        last = entry.shape[0] if last is None else last
        if name in self._verified or not self._verify or first >= last:
            return
        if blocks is None:
            self._check(name)
            return
        crc32, verified = blocks
        row = (entry.stop - entry.start) // entry.shape[0]
        start, stop = first * row // BLOCK, -(-last * row // BLOCK)
        with memoryview(self._mapped) as whole, whole[entry.start : entry.stop] as data:
            for block in (start + np.flatnonzero(~verified[start:stop])).tolist():
                if zlib.crc32(data[block * BLOCK : (block + 1) * BLOCK]) != crc32[block]:
                    raise self._mismatch(name)
                verified[block] = True

    def _read_blocks(self) -> dict[str, tuple[NDArray[np.uint32], NDArray[np.bool_]]]:
        """Large tensor -> (checksums of its blocks, which blocks are verified), in the order of the file."""
        if BLOCKS not in self._entries:
            return {}
        crc32 = self.expect(BLOCKS, np.uint32, [None], lazy=not self._verify)
        del self._entries[BLOCKS]
        found, start = {}, 0
        for name, place in sorted(self._entries.items(), key=lambda item: item[1].start):
            if _blockwise(size := place.stop - place.start, place.dtype):
                stop = start + -(-size // BLOCK)
                found[name] = crc32[start:stop], np.zeros(stop - start, np.bool_)
                start = stop
        if start != len(crc32):
            raise _damaged(self.path, f"it has {len(crc32)} checksums of blocks where {start} are expected")
        return found

    def _check(self, name: str) -> None:
        """Verify a whole tensor."""
        entry = self._entries[name]
        with memoryview(self._mapped) as whole, whole[entry.start : entry.stop] as data:
            if self._verify and hashlib.sha256(data).hexdigest() != entry.sha256:
                raise self._mismatch(name)
            if entry.dtype == np.bool_ and len(data) and int(np.frombuffer(data, np.uint8).max()) > 1:
                raise _damaged(self.path, f"tensor {shown(name)} holds a truth value that is not 0 or 1")
        self._verified.add(name)

    def _mismatch(self, name: str) -> ModelFileError:
        return _damaged(self.path, f"tensor {shown(name)} does not match its checksum")

    def refusal(self, reason: str) -> ModelFileError:
        """Make the error for a file that is undamaged but lacks something that a model needs."""
        return ModelFileError(f"{self.path}: {reason}; save the model again.")


def open_tensors(path: PathLike, *, verify: bool | None = None) -> StoredTensors:
    """Map a file that `write_tensors` wrote; ModelFileError says why another file is refused.

    verify: None checks all of a file of up to 64 MB, and in a larger one each tensor at its first use, or the blocks
    that are used (`expect`, lazy); True checks everything now; False skips the checksums of tensors (that of the header
    is always checked).
    """
    shown = os.fspath(path)
    return read_tensors(_map(shown), shown, verify=verify)


def read_tensors(mapped: Bytes, shown: str, *, verify: bool | None = None) -> StoredTensors:
    """Open tensors from the bytes of a file; `shown` is its name in messages."""
    raw = _raw_header(shown, mapped)
    header, meta = _read_header(shown, raw)
    try:
        entries = _entries(header, meta, first=8 + len(raw))
        metadata = parse_json(meta["considerate"])
        if not isinstance(metadata, dict):
            raise ValueError("the metadata is not a JSON object")
    except (ValueError, RecursionError, MemoryError) as error:
        raise _damaged(shown, _reason(error)) from error
    promised = max((entry.stop for entry in entries.values()), default=8 + len(raw))
    if promised != len(mapped):
        problem = "was cut short" if len(mapped) < promised else "has bytes added at its end"
        raise _damaged(shown, f"it {problem}: {len(mapped)} bytes where its header promises {promised}")
    return StoredTensors(shown, mapped, entries, meta | {"considerate": metadata}, verify)


def _map(path: str) -> mmap.mmap:
    try:
        if not stat.S_ISREG(mode := os.stat(path).st_mode):  # before opening, which would wait on a pipe
            kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
            raise ModelFileError(f"{path}: is {kind}; give the file that a model was saved to.")
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelFileError(f"{path}: is empty; copy or save the model again.")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        reasons: dict[type, str] = {
            FileNotFoundError: "no such file; check the path",
            PermissionError: "no permission to read it; change its permissions",
        }
        reason = reasons.get(type(error), f"cannot be read ({error.strerror or error}); check the path")
        raise ModelFileError(f"{path}: {reason}.") from error
    except ModelFileError:
        raise
    except ValueError as error:  # a null character or a lone surrogate in the path
        raise ModelFileError(f"{path!r}: is not a path ({error}); check the path.") from error


def _raw_header(path: str, mapped: Bytes) -> bytes:
    size = len(mapped)
    length = int.from_bytes(mapped[:8], "little")
    ours = mapped[8 : 8 + len(_START)] == _START[: max(size - 8, 0)] and size > 8
    if size < 8 or not 2 <= length <= min(size - 8, _HEADER_LIMIT):
        if ours and _HEADER_LIMIT < length <= size - 8:
            raise _damaged(path, f"its header of {length} bytes is longer than the limit of {_HEADER_LIMIT}")
        if ours:
            raise _damaged(path, f"it was cut short or its length was changed (header of {length} bytes in {size})")
        raise _foreign(path)
    return bytes(mapped[8 : 8 + length])


def _read_header(path: str, raw: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Parse a header: (entries of the tensors, `__metadata__`); it must be ours and undamaged."""
    try:
        header = parse_json(raw.decode())
    except (ValueError, RecursionError, MemoryError) as error:
        if raw.startswith(_START):
            raise _damaged(path, f"its header is not readable JSON: {_reason(error)}") from error
        raise _foreign(path) from error
    meta = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        if isinstance(header, dict) and raw.startswith(b"{"):
            raise ModelFileError(
                f"{path}: is a safetensors file of another program, not a considerate model; "
                "give the file that a model was saved to."
            )
        raise _foreign(path)
    version = meta.get("format_version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise _damaged(path, f"its format version is {shown(version)}")
    if int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{path}: has model format {version}, of considerate {shown(meta.get('library_version'))}, "
            f"and this library reads up to format {FORMAT_VERSION}; update considerate."
        )
    if set(meta) != _KEYS or not all(isinstance(value, str) for value in meta.values()):
        raise _damaged(path, "a key of the format is missing in its header, or there is one too many")
    field = _checksum_field(meta["header_sha256"])
    blanked = raw.replace(field, _checksum_field("0" * 64), 1)
    if raw.count(field) != 1 or hashlib.sha256(blanked).hexdigest() != meta["header_sha256"]:
        raise _damaged(path, "its header does not match its checksum")
    return header, meta


def _entries(header: Mapping[str, Any], meta: Mapping[str, str], first: int) -> dict[str, _Entry]:
    """Parse the entries of a header and check each field; ValueError says what is wrong."""
    checksums = parse_json(meta["tensor_sha256"])
    if not isinstance(checksums, dict) or set(checksums) != set(header):
        raise ValueError("its checksums are not those of its tensors")
    if first % _ALIGNMENT:
        raise ValueError(f"its data does not begin at a multiple of {_ALIGNMENT} bytes")
    entries = {name: _entry(name, entry, checksums[name], first) for name, entry in header.items()}
    end = first
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != end:
            raise ValueError(f"tensor {shown(name)} overlaps another or leaves a hole before it")
        end = entry.stop
    return entries


def _entry(name: str, entry: Any, sha256: Any, first: int) -> _Entry:
    if not name or not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {shown(name)} is not described by dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ValueError(f"tensor {shown(name)} has dtype {shown(kind)}, not one of {sorted(DTYPES)}")
    if not _is_counts(shape) or len(shape) > _DIMENSIONS_LIMIT:
        raise ValueError(f"tensor {shown(name)} has shape {shown(shape)}")
    if not _is_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {shown(name)} has data_offsets {shown(offsets)}")
    dtype, (start, stop) = DTYPES[kind], offsets
    if math.prod(n or 1 for n in shape) * dtype.itemsize >= 2**63:  # NumPy's bound, for empty arrays too
        raise ValueError(f"tensor {shown(name)} has shape {shown(shape)}")
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor {shown(name)} has shape {shown(shape)} of {kind} in {stop - start} bytes")
    if start % dtype.itemsize:
        raise ValueError(f"tensor {shown(name)} begins at byte {start}, not a multiple of its element's size")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"tensor {shown(name)} has no readable checksum")
    return _Entry(dtype, tuple(shape), first + start, first + stop, sha256)


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def parse_json(text: str) -> Any:
    """Parse JSON strictly: no repeated keys, no NaN, no very long integers, no broken Unicode."""

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(value := dict(pairs)) != len(pairs):
            raise ValueError("a key appears twice")
        return value

    def to_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a JSON number")

    def to_integer(digits: str) -> int:
        if len(digits) > _DIGITS_LIMIT:
            raise ValueError(f"an integer of {len(digits)} digits")
        return int(digits)

    def to_float(digits: str) -> float:
        if not math.isfinite(value := float(digits)):
            raise ValueError("a number is too large")
        return value

    value = json.loads(
        text, object_pairs_hook=to_object, parse_constant=to_constant, parse_int=to_integer, parse_float=to_float
    )
    if "\\u" in text and not _is_unicode(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a text is not Unicode")
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """Make a value from an untrusted file short and printable."""
    text = ascii(value) if not isinstance(value, str) or not value.isprintable() else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "its JSON is nested too deep or too large"
    return str(error)


def _foreign(path: str) -> ModelFileError:
    return ModelFileError(f"{path}: is not a considerate model; give the file that a model was saved to.")


def _damaged(path: str, what: str) -> ModelFileError:
    return ModelFileError(f"{path}: the model file is damaged, {what}; copy or save it again.")
