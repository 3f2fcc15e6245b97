"""Texts of the kernels' error codes."""

from typing import Final

from tidelog.spark.records import kernels

WHY: Final = {
    kernels.BAD_NUMBER: "a variable-length number is truncated or has too many bits",
    kernels.BAD_RECORD_LENGTH: "a record claims a length that its batch cannot hold",
    kernels.BAD_FIELD_LENGTH: "a key, value or header reaches past the end of its record",
    kernels.BAD_HEADER_COUNT: "a record claims a number of headers that it cannot hold",
    kernels.NULL_HEADER_NAME: "a record header has no name",
    kernels.BAD_RECORD_END: "a record does not end where its length says",
    kernels.BAD_OFFSET: "an offset delta is outside of its batch or does not grow",
    kernels.BAD_TIMESTAMP: "a timestamp does not fit microseconds",
    kernels.BAD_RECORD_COUNT: "the batch claims a number of records that it cannot hold",
    kernels.BAD_BATCH_END: "bytes follow the last record of the batch",
    kernels.BAD_BOUNDS: "the batch exceeds the fetched bytes",
}
