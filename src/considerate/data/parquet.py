"""Parquet files and folders, on a local disk or on any filesystem of pyarrow.

A Parquet input is a list of fragments: files, or some of their row groups. To divide the reading, fragments become
inputs of their own. An input has no open files, so it can be sent to another process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data.inputs import BATCH_ROWS, Input, hide_secrets, translate_errors, value_type
from considerate.errors import DataError

PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
BATCH_BYTES = 1 << 26  # most bytes of the texts of a batch, approximately
_MAGIC = {
    b"PAR1": "Parquet",
    b"ARROW1": "an Arrow file",
    b"SQLite format 3": "an SQLite database",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "zstandard-compressed data",
    b"BZh": "bzip2-compressed data",
    b"\xfd7zXZ": "xz-compressed data",
    b"\x1f\x8b": "gzip-compressed data",
}


@dataclass(frozen=True)
class Fragment:
    """A Parquet file, or some of its row groups."""

    path: str
    size: int  # bytes
    keys: dict[str, Any] = field(default_factory=dict)  # columns from the names of its folders: year=2024
    groups: tuple[int, ...] | None = None  # row groups; None: all


@dataclass
class ParquetInput(Input):
    """Fragments of Parquet with the schema of the first file; only the needed columns are read, batch by batch.

    The rule filters the batches, not Arrow's dataset scanner: with a filter, the scanner hung or aborted the process on
    damaged footers (pyarrow 26.0.1, bit-flipped files); this way raises an error.
    """

    fragments: list[Fragment]
    address: str | None = None  # address of the filesystem; None: local disks

    def batches(self, needed: Sequence[str], ids: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        for fragment in self.fragments:
            file = self._open(fragment)
            held = [name for name in needed if name in file.schema_arrow.names and name not in fragment.keys]
            for rows, groups in self._runs(fragment, file, held):
                for batch in file.iter_batches(rows, columns=held, row_groups=groups):
                    zeros = pa.array(np.zeros(batch.num_rows, np.int64))
                    for name in needed:
                        if name not in held:
                            value = pa.array([fragment.keys.get(name)], self.schema.field(name).type)
                            batch = batch.append_column(name, value.take(zeros))
                    yield batch

    def _runs(self, fragment: Fragment, file: Any, held: list[str]) -> Iterator[tuple[int, list[int]]]:
        """Runs of (rows of a batch, row groups) for which the texts of a batch have at most about BATCH_BYTES.

        A dictionary has each text once, and any number of rows may repeat it: a small file could fill the memory.
        """
        import pyarrow.compute as pc

        kinds = {name: str(value_type(file.schema_arrow.field(name).type)) for name in held}
        texts = [name for name in held if re.search("string|^(large_)?binary$|^binary_view$", kinds[name])]
        leaves = {file.schema.column(leaf).path: leaf for leaf in range(len(file.schema))} if texts else {}
        peek: Any = None

        def rows_of(group: int) -> int:
            nonlocal peek
            metadata = file.metadata.row_group(group)
            size = sum(metadata.column(leaves[name]).total_uncompressed_size for name in texts if name in leaves)
            if size * BATCH_ROWS <= BATCH_BYTES or not metadata.num_rows:
                return BATCH_ROWS
            peek = peek or self._open(fragment, read_dictionary=texts, buffer_size=1 << 16, metadata=file.metadata)
            first = next(peek.iter_batches(1, columns=texts, row_groups=[group]))
            longest = sum(pc.max(pc.binary_length(column.dictionary)).as_py() or 0 for column in first.columns)
            return max(1, min(BATCH_ROWS, int(BATCH_BYTES // max(1, longest, size // metadata.num_rows))))

        groups = range(file.num_row_groups) if fragment.groups is None else fragment.groups
        yield from ((rows, list(run)) for rows, run in groupby(groups, rows_of))

    def _open(self, fragment: Fragment, **options: Any) -> Any:
        import pyarrow.parquet as pq

        if self.address is not None:
            options = {"filesystem": filesystem_at(self.address)[0], "pre_buffer": not options, **options}
        return pq.ParquetFile(fragment.path, page_checksum_verification=True, **options)

    def part(self, fragments: list[Fragment]) -> ParquetInput:
        """An input of some of the fragments."""
        return replace(self, fragments=fragments, notes=[], rows=0)

    def absolute(self) -> ParquetInput:
        """The input with absolute paths, for processes that work in another folder."""
        if self.address is not None:
            return self
        return self.part([replace(fragment, path=os.path.abspath(fragment.path)) for fragment in self.fragments])

    def cut(self) -> list[Fragment]:
        """Cut all fragments into single row groups, each with its share of the file's bytes."""
        cut: list[Fragment] = []
        with translate_errors(self.name):
            for fragment in self.fragments:
                metadata = self._open(fragment).metadata
                rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
                for group, count in enumerate(rows):
                    size = fragment.size * count // max(1, sum(rows))
                    cut.append(replace(fragment, size=size, groups=(group,)))
        return cut


def file_format(start: bytes) -> str:
    """Recognise the format of a file by its first bytes."""
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "text")


def filesystem_at(address: str) -> tuple[Any, str]:
    """(filesystem of pyarrow, path there) for an address."""
    from pyarrow.fs import FileSystem

    filesystem, path = FileSystem.from_uri(address)
    return filesystem, path.rstrip("/") or path


def open_remote(address: str) -> ParquetInput:
    """Open the Parquet file or folder at an address such as s3://bucket/likes."""
    from pyarrow.fs import FileSelector, FileType

    name = hide_secrets(address)
    with translate_errors(name):
        filesystem, base = filesystem_at(address)
        info = filesystem.get_file_info(base)
        if info.type == FileType.NotFound:
            raise DataError(f"{name}: there is no such file or folder; check the address.")
        if info.type != FileType.Directory:
            with filesystem.open_input_stream(base) as stream:
                held = file_format(stream.read(16))
            if held != "Parquet":
                raise DataError(f"{name}: holds {held}; only Parquet is read from there: copy it to a local disk.")
            return open_parquet(name, {base: info.size}, None, address)
        files = filesystem.get_file_info(FileSelector(base, recursive=True))
        inside = {file.path: file.path.removeprefix(base).strip("/") for file in files}
        sizes = {file.path: file.size for file in files if file.type == FileType.File and _is_read(inside[file.path])}
        return open_folder(name, sizes, {path.split("/")[0] for path in inside.values()}, base, address)


def parquet_files(folder: Path) -> list[Path]:
    """List the Parquet files of a local folder."""
    return sorted(
        file for file in folder.rglob("*") if _is_read(file.relative_to(folder).as_posix()) and not file.is_dir()
    )


def _is_read(path: str) -> bool:
    """True if a file with this path inside a folder is read with the folder."""
    return path.lower().endswith(PARQUET_ENDINGS) and not any(part.startswith((".", "_")) for part in path.split("/"))


def open_folder(name: str, sizes: Mapping[str, int], entries: set[str], base: str, address: str | None) -> ParquetInput:
    """Open the files of a folder, in the order of their paths, folder by folder."""
    for path, size in sizes.items():
        if size == 0:
            raise DataError(f"{path}: the file is empty; delete it or write the folder again.")
    if not sizes:
        raise DataError(
            f"{name}: a folder without Parquet files (it has {', '.join(sorted(entries)[:5]) or 'nothing'}); "
            "expected files that end in .parquet: name a single file if the data is CSV."
        )
    ordered = sorted(sizes, key=lambda path: path.split("/"))
    return open_parquet(name, {path: sizes[path] for path in ordered}, base, address)


def open_parquet(name: str, sizes: Mapping[str, int], base: str | None, address: str | None) -> ParquetInput:
    """Open Parquet files; `base` is the folder below which the names of folders are columns."""
    import pyarrow.dataset as ds

    with translate_errors(name):
        dataset = ds.dataset(
            list(sizes),
            format="parquet",
            filesystem=None if address is None else filesystem_at(address)[0],
            partitioning=ds.partitioning(flavor="hive") if base else None,
            partition_base_dir=base,
        )
        fragments = [
            Fragment(file.path, sizes[file.path], ds.get_partition_keys(file.partition_expression))
            for file in dataset.get_fragments()
        ]
        return ParquetInput(name, dataset.schema, fragments, address)
