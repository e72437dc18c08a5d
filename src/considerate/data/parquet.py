"""Parquet: a file or a folder of them, on a local disk or on any filesystem that pyarrow knows.

A Parquet input is a list of fragments, files or some of their row groups. One with fewer fragments is an input too,
which is how the reading is divided; it holds nothing that is open, so it can be sent to another process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from considerate.data.inputs import BATCH_ROWS, PARQUET_ENDINGS, StreamInput, held_by, reading, without_views
from considerate.errors import DataError, UsageError

REMOTE = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")  # schemes of pyarrow's filesystems


@dataclass(frozen=True)
class Fragment:
    """A Parquet file, or some of its row groups."""

    path: str
    size: int  # bytes
    keys: dict[str, Any] = field(default_factory=dict)  # what the names of its folders say: year=2024
    groups: tuple[int, ...] | None = None  # None: all


@dataclass
class ParquetInput:
    """Fragments of Parquet; of each only the needed columns are read, batch by batch.

    The rule is applied to the batches and not handed to Arrow's dataset scanner: with a filter, that one hung or
    aborted the process on damaged footers (pyarrow 26.0.1, bit-flipped files), where this way raises.
    """

    name: str
    schema: Any  # of the first file, and what the names of folders say
    fragments: list[Fragment]
    address: str | None = None  # of the filesystem; None: local disks
    from_text: bool = False
    quotes: bool = True
    notes: list[str] = field(default_factory=list)
    rows: int = 0

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def types(self, ids: Sequence[str]) -> dict[str, Any]:
        schema = without_views(self.schema)
        return dict(zip(schema.names, schema.types))

    def scan(self, needed: Sequence[str], ids: Sequence[str], columns: Mapping[str, Any], keep: Any) -> Iterator[Any]:
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in needed])
        stream = StreamInput(self.name, schema, self._batches(needed))
        yield from stream.scan(needed, ids, columns, keep)
        self.rows = stream.rows

    def _batches(self, needed: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        types = {name: self.schema.field(name).type for name in needed}
        for fragment in self.fragments:
            file = self._open(fragment)
            held = [name for name in needed if name in file.schema_arrow.names and name not in fragment.keys]
            for batch in file.iter_batches(BATCH_ROWS, columns=held, row_groups=fragment.groups):
                columns = [
                    batch.column(held.index(name))
                    if name in held
                    else pa.array([fragment.keys.get(name)], kind).take(pa.array(np.zeros(batch.num_rows, np.int64)))
                    for name, kind in types.items()
                ]
                yield pa.RecordBatch.from_arrays(columns, names=list(needed))

    def _open(self, fragment: Fragment) -> Any:
        import pyarrow.parquet as pq

        if self.address is None:
            return pq.ParquetFile(fragment.path)
        return pq.ParquetFile(fragment.path, filesystem=_filesystem(self.address)[0], pre_buffer=True)

    def part(self, fragments: list[Fragment]) -> ParquetInput:
        """The same input with some of its fragments."""
        return replace(self, fragments=fragments, notes=[], rows=0)

    def absolute(self) -> ParquetInput:
        """The same input for processes that may be in another folder."""
        if self.address is not None:
            return self
        return self.part([replace(one, path=os.path.abspath(one.path)) for one in self.fragments])

    def cut(self) -> list[Fragment]:
        """The row groups of all fragments, each with its share of the file's bytes."""
        found: list[Fragment] = []
        with reading(self.name):
            for fragment in self.fragments:
                metadata = self._open(fragment).metadata
                rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
                for group, count in enumerate(rows):
                    size = fragment.size * count // max(1, sum(rows))
                    found.append(replace(fragment, size=size, groups=(group,)))
        return found


def is_remote(source: str) -> bool:
    """Whether a source is the address of something on a filesystem, rather than of a database."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    return found is not None and found[1].lower() in REMOTE


def local_path(source: str) -> str:
    """A path as it is, and the path of an address file:///folder."""
    if not re.match(r"file://", source, re.IGNORECASE):
        return source
    parts = urlsplit(source)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{source}: the address of a file has three slashes, as in file:///data/likes; add one.")
    return unquote(parts.path)


def _filesystem(address: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    filesystem, path = FileSystem.from_uri(address)
    return filesystem, path.rstrip("/") or path


def open_remote(address: str) -> ParquetInput:
    """The Parquet file or folder at an address such as s3://bucket/likes."""
    from pyarrow.fs import FileSelector, FileType

    try:
        password = urlsplit(address).password
    except ValueError as error:
        raise UsageError(f"{address!r} is not an address ({error}); write s3://bucket/folder.") from error
    name = address.replace(f":{password}@", ":...@") if password else address
    with reading(name):
        filesystem, base = _filesystem(address)
        info = filesystem.get_file_info(base)
        if info.type == FileType.NotFound:
            raise DataError(f"{name}: there is no such file or folder; check the address.")
        if info.type != FileType.Directory:
            with filesystem.open_input_stream(base) as stream:
                held = held_by(stream.read(16))
            if held != "Parquet":
                raise DataError(f"{name}: holds {held}; only Parquet is read from there: copy it to a local disk.")
            return open_parquet(name, {base: info.size}, None, address)
        found = filesystem.get_file_info(FileSelector(base, recursive=True))
        inside = {one.path: one.path.removeprefix(base).strip("/") for one in found}
        sizes = {one.path: one.size for one in found if one.type == FileType.File and _is_read(inside[one.path])}
        names = {path.split("/")[0] for path in inside.values()}
        return open_folder(name, sizes, names, base, address)


def open_local_folder(path: Path) -> ParquetInput:
    """The Parquet files in a folder of a local disk."""
    sizes = {str(file): file.stat().st_size for file in parquet_files(path)}
    return open_folder(str(path), sizes, {file.name for file in path.iterdir()}, str(path), None)


def parquet_files(folder: Path) -> list[Path]:
    """The files in a local folder that reading it takes."""
    return sorted(
        file for file in folder.rglob("*") if _is_read(file.relative_to(folder).as_posix()) and not file.is_dir()
    )


def _is_read(path: str) -> bool:
    """Whether a file with this path inside a folder is read with it."""
    return path.lower().endswith(PARQUET_ENDINGS) and not any(part.startswith((".", "_")) for part in path.split("/"))


def open_folder(name: str, sizes: Mapping[str, int], there: set[str], base: str, address: str | None) -> ParquetInput:
    """The input of the files in a folder, by the names of folders and files."""
    for path, size in sizes.items():
        if size == 0:
            raise DataError(f"{path}: the file is empty; delete it or write the folder again.")
    if not sizes:
        raise DataError(
            f"{name}: a folder without Parquet files (it has {', '.join(sorted(there)[:5]) or 'nothing'}); "
            "expected files that end in .parquet: name a single file if the data is CSV."
        )
    return open_parquet(name, {path: sizes[path] for path in sorted(sizes, key=_place)}, base, address)


def _place(path: str) -> list[str]:
    return path.split("/")


def open_parquet(name: str, sizes: Mapping[str, int], base: str | None, address: str | None) -> ParquetInput:
    """The input of Parquet files; `base` is the folder below which names of folders are columns."""
    import pyarrow.dataset as ds

    options = {
        "format": "parquet",
        "partitioning": ds.partitioning(flavor="hive") if base else None,
        "partition_base_dir": base,
    }
    with reading(name):
        if address is not None:
            options["filesystem"] = _filesystem(address)[0]
        dataset = ds.dataset(list(sizes), **options)
        fragments = [
            Fragment(one.path, sizes[one.path], ds.get_partition_keys(one.partition_expression))
            for one in dataset.get_fragments()
        ]
        return ParquetInput(name, dataset.schema, fragments, address)
