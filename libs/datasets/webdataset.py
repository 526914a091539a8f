"""WebDataset: tar shards in which files of one name, but for what follows its first dot, are a sample.

A column is what follows the dot (`jpg`, `cls`, `json`, `npy`). Files of bytes and of columns without a type are not
read; numbers and text are read as text, objects and arrays as JSON, and of an `.npy` file the header.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy

from libs.datasets.findings import Findings
from libs.datasets.records import type_of
from libs.datasets.schema import Column, DataSchema, Kind

HEADER_BYTES = 4096
"""More than the header of an `.npy` file."""
BROKEN = (tarfile.TarError, OSError, EOFError, zlib.error)


def check_webdataset(findings: Findings, schema: DataSchema, path: str) -> None:
    """Check one shard. Rows are samples."""
    sample = 0
    try:
        with tarfile.open(path) as shard:
            for key, files in _samples(shard):
                sample += 1
                findings.rows += 1
                _check_sample(findings, schema, path, sample, key, shard, files)
                if findings.is_full:
                    return
            if not _has_an_end(shard, path):
                findings.add(path, sample, "", "no end of the archive", "a whole shard: it ends behind this sample")
    except BROKEN as error:
        findings.add(path, sample + 1, "", str(error), "a whole shard: it cannot be read from this sample on")


Files = dict[str, tarfile.TarInfo]
"""{column: file} of a sample."""


def _samples(shard: tarfile.TarFile) -> Iterator[tuple[str, Files]]:
    """Key and files of each sample, in order. The sample that is cut off is not among them."""
    key, files = "", Files()
    for member in shard:
        if not member.isfile():
            continue
        folder, _, name = member.name.rpartition("/")
        base, _, column = name.partition(".")
        found = f"{folder}/{base}" if folder else base
        if found != key and files:
            yield key, files
            files = Files()
        key, files[column] = found, member
    if files:
        yield key, files


def _has_an_end(shard: tarfile.TarFile, path: str) -> bool:
    """Whether the blocks of zeros are there that end an archive; not looked for in one that is compressed."""
    if path.endswith((".gz", ".tgz", ".bz2", ".xz")):
        return True
    with open(path, "rb") as file:
        file.seek(shard.offset)
        block = file.read(tarfile.BLOCKSIZE)
    return block == bytes(tarfile.BLOCKSIZE)


def _check_sample(
    findings: Findings, schema: DataSchema, path: str, sample: int, key: str, shard: tarfile.TarFile, files: Files
) -> None:
    for column in schema.columns:
        member = files.get(column.name)
        if member is not None:
            wrong = _wrong(column, member, shard)
            if wrong is not None:
                findings.add(path, sample, column.name, *wrong)
        elif column.required:
            findings.add(path, sample, column.name, f"{key} has {', '.join(files)}", f"a file {key}.{column.name}")
    for name in files if schema.closed else ():
        if name not in schema.names:
            findings.add(path, sample, name, f"{key}.{name}", f"no files but {', '.join(schema.names)}")


def _wrong(column: Column, member: tarfile.TarInfo, shard: tarfile.TarFile) -> tuple[str, str] | None:
    """What is seen and what was expected, where a file is not as its column says."""
    if column.kind in (None, Kind.BYTES):
        return _wrong_size(column, member.size)
    file = shard.extractfile(member)
    assert file is not None
    if column.name.rpartition(".")[2] == "npy":
        return _wrong_array(column, file.read(HEADER_BYTES))
    data = file.read()
    try:
        if column.kind in (Kind.ARRAY, Kind.OBJECT):
            msgspec.json.decode(data, type=type_of(column))
        else:
            text = data.decode()
            msgspec.convert(text if column.kind is Kind.STRING else text.strip(), type_of(column), strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        return data[:200].decode(errors="replace"), f"{column.expected}: {error}"
    return None


def _wrong_size(column: Column, size: int) -> tuple[str, str] | None:
    least, most = column.min_length or 0, column.max_length
    if size < least or (most is not None and size > most):
        return f"{size} bytes", f"{least} bytes or more" if most is None else f"{least} to {most} bytes"
    return None


def _wrong_array(column: Column, head: bytes) -> tuple[str, str] | None:
    try:
        stream = io.BytesIO(head)
        version: Any = numpy.lib.format.read_magic(stream)
        read = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = read(stream)
    except (ValueError, KeyError, EOFError) as error:
        return str(error), "an array in the format of numpy"
    fits = len(shape) == len(column.shape) and all(
        want is None or have == want for have, want in zip(shape, column.shape, strict=True)
    )
    if column.shape and not fits:
        return f"shape {list(shape)} of {dtype}", f"shape {list(column.shape)}"
    wanted = column.items.kind if column.items is not None else None
    kinds = {Kind.INTEGER: "iu", Kind.NUMBER: "fiu", Kind.BOOLEAN: "b"}
    if wanted is not None and dtype.kind not in kinds.get(wanted, ""):
        return f"items of {dtype}", f"items of type {wanted}"
    return None
