"""Record kernels: validation and decoding of the records of a batch, in Python that mypyc compiles to C.

A few small functions over bytes and integers: every local number is an `i64`, and a check allocates nothing for a
valid record. A check takes about 15 ns a record compiled, about 2 us interpreted. All are resumable: they stop after a
given number of steps, so that the event loop can do other work in between.

Numbers are zigzag varints. A number with more bits than its type is rejected; Kafka drops the excess bits.
"""

from typing import Final, TypeAlias

from mypy_extensions import i64

SOUND: Final = 0
PAST_THE_END: Final = 1
BAD_NUMBER: Final = 2
BAD_LENGTH: Final = 3
BAD_FIELD: Final = 4
BAD_HEADER_COUNT: Final = 5
NAMELESS_HEADER: Final = 6
BYTES_LEFT: Final = 7
ENDLESS_LENGTH: Final = 8

PROBLEMS: Final = {
    PAST_THE_END: "reaches past the end of its batch",
    BAD_NUMBER: "has a variable-length number that is too long",
    BAD_LENGTH: "does not have the length that it claims",
    BAD_FIELD: "has a field that reaches past its end",
    BAD_HEADER_COUNT: "claims a number of headers that it cannot hold",
    NAMELESS_HEADER: "has a header without a name",
    BYTES_LEFT: "is the last one, and bytes follow it",
    ENDLESS_LENGTH: "has a length that is no number",
}

Headers: TypeAlias = list[tuple[bytes, bytes | None]]

NO_KEY: Final = 0
BAD_TIMESTAMP: Final = 1
"""Reasons to reject a well-formed record."""

MIN_BODY_BYTES: Final = 6
"""Attributes, two deltas, no key, no value, no headers: a byte each."""

NO_TIMESTAMP: Final = -1
_LAST_INT64: Final = 9223372036854775807
_FIRST_INT64: Final = -9223372036854775807 - 1


def read_int32(data: bytes, position: i64) -> i64:
    """Read a varint of at most 32 bits. Returns two numbers in one: 16 times the value, plus its size in bytes.

    Returns 0 if the varint has more than 32 bits.
    """
    byte: i64 = data[position]
    if byte < 0x80:
        return (((byte >> 1) ^ -(byte & 1)) << 4) + 1
    raw: i64 = byte & 0x7F
    byte = data[position + 1]
    if byte < 0x80:
        raw |= byte << 7
        return (((raw >> 1) ^ -(raw & 1)) << 4) + 2
    raw |= (byte & 0x7F) << 7
    byte = data[position + 2]
    if byte < 0x80:
        raw |= byte << 14
        return (((raw >> 1) ^ -(raw & 1)) << 4) + 3
    raw |= (byte & 0x7F) << 14
    byte = data[position + 3]
    if byte < 0x80:
        raw |= byte << 21
        return (((raw >> 1) ^ -(raw & 1)) << 4) + 4
    raw |= (byte & 0x7F) << 21
    byte = data[position + 4]
    if byte > 0x0F:
        return 0
    raw |= byte << 28
    return (((raw >> 1) ^ -(raw & 1)) << 4) + 5


def int64_size(data: bytes, position: i64) -> i64:
    """Size of the varint at `position` in bytes; 0 if it has more than 64 bits."""
    size: i64 = 1
    while data[position + size - 1] >= 0x80:
        size += 1
        if size > 10:
            return 0
    if size == 10 and data[position + 9] > 1:
        return 0
    return size


def read_int64(data: bytes, position: i64, size: i64) -> i64:
    """Read the varint of `size` bytes. No step exceeds 64 bits, because compiled arithmetic wraps around there."""
    low: i64 = 0
    shift: i64 = 0
    byte: i64 = 0
    while shift < 7 * size and shift < 63:
        byte = data[position]
        low |= (byte & 0x7F) << shift
        shift += 7
        position += 1
    half: i64 = low >> 1
    if size == 10 and data[position] == 1:
        half |= 1 << 62
    return half if low & 1 == 0 else -half - 1


def add(number: i64, other: i64) -> i64:
    """Saturating sum of two 64-bit numbers."""
    if other > 0 and number > _LAST_INT64 - other:
        return _LAST_INT64
    if other < 0 and number < _FIRST_INT64 - other:
        return _FIRST_INT64
    return number + other


def subtract(number: i64, other: i64) -> i64:
    """Saturating difference of two 64-bit numbers."""
    if other < 0 and number > _LAST_INT64 + other:
        return _LAST_INT64
    if other > 0 and number < _FIRST_INT64 + other:
        return _FIRST_INT64
    return number - other


PLAIN_MAX_DELTA: Final = 8191
"""Largest number in a zigzag varint of two bytes."""


def plain_records(  # noqa: C901 - one loop without calls is what makes it fast
    data: bytes, start: i64, index: i64, stop: i64, needs_keys: bool
) -> tuple[i64, i64, i64]:
    """Skip plain records, from the one with this index to the one before `stop`.

    Returns the position and the index of the first record that is not plain, and the largest timestamp delta before it,
    -1 if there is none. A plain record has the offset of its place, a timestamp delta and lengths of at most two bytes,
    a key if needed, and no headers. Positions only increase, so a record that ends where its length says is valid.
    `RecordCheck` decides on all other records.
    """
    end: i64 = len(data)
    position: i64 = 0
    record_end: i64 = 0
    number: i64 = 0
    second: i64 = 0
    # Zigzag varints are compared as they are: a number that is not negative is encoded as twice its value, and -1 as 1.
    offset: i64 = 2 * index
    end_offset: i64 = 2 * stop
    no_key: i64 = -1 if needs_keys else 1
    delta: i64 = -1
    max_delta: i64 = -1
    try:
        while offset < end_offset:
            # Length. The next record starts there, so that the processor need not wait for the other fields.
            number = data[start]
            if number < 0x80:
                record_end = start + 1 + (number >> 1)
                position = start + 2
            else:
                second = data[start + 1]
                if second >= 0x80:
                    break
                record_end = start + 2 + (number >> 1) - 0x40 + (second << 6)
                position = start + 3
            if number & 1 != 0 or record_end > end:
                break
            # Attributes, which are skipped, and timestamp delta.
            number = data[position]
            position += 1
            if number >= 0x80:
                second = data[position]
                position += 1
                if second >= 0x80:
                    break
                number += (second << 7) - 0x80
            if number != delta:
                if number & 1 != 0:
                    break
                delta = number
            # Offset delta.
            number = data[position]
            position += 1
            if number >= 0x80:
                second = data[position]
                position += 1
                if second >= 0x80:
                    break
                number += (second << 7) - 0x80
            if number != offset:
                break
            # Key.
            number = data[position]
            position += 1
            if number != no_key:
                if number >= 0x80:
                    second = data[position]
                    position += 1
                    if second >= 0x80:
                        break
                    number += (second << 7) - 0x80
                if number & 1 != 0:
                    break
                position += number >> 1
            # Value.
            number = data[position]
            position += 1
            if number >= 0x80:
                second = data[position]
                position += 1
                if second >= 0x80:
                    break
                number += (second << 7) - 0x80
            if number & 1 == 0:
                position += number >> 1
            elif number != 1:
                break
            # Number of headers.
            if data[position] != 0 or position + 1 != record_end:
                break
            start = record_end
            offset += 2
            if delta > max_delta:
                max_delta = delta
    except IndexError:
        pass
    return start, offset >> 1, max_delta >> 1


def is_plain(data: bytes, start: i64, count: i64, max_delta: i64, needs_keys: bool) -> bool:
    """Whether `data` ends with exactly `count` plain records whose largest timestamp delta is the given one."""
    position, index, found = plain_records(data, start, 0, count, needs_keys)
    return index == count and found == max_delta and position == len(data)


class RecordCheck:
    """Check of all records of one batch: structure, keys, timestamps and number.

    `data` contains all records or a first piece of them. In a piece, `needs_more` is set at an incomplete record, and
    `feed` passes the next piece, from that record on. Records that are well-formed but rejected are counted by kind,
    and the first of them are listed.
    """

    def __init__(
        self,
        data: bytes,
        start: i64,
        count: i64,
        base_timestamp: i64,
        earliest: i64,
        latest: i64,
        needs_keys: bool,
        most_listed: i64,
    ) -> None:
        self.data = data
        self.position = start
        self.is_last_piece = True
        self.needs_more = False
        self.count = count
        self.base_timestamp = base_timestamp
        self.earliest = earliest
        """Timestamps from here to `latest`, and NO_TIMESTAMP, are valid."""
        self.latest = latest
        self.needs_keys = needs_keys
        self.most_listed = most_listed
        self.index: i64 = 0
        self.is_consecutive = True
        """Whether the offset delta of every record is its index."""
        self.problem: i64 = SOUND
        self.keyless: i64 = 0
        self.mistimed: i64 = 0
        self.listed: list[int] = []
        """Twice the index of a rejected record, plus the reason: NO_KEY or BAD_TIMESTAMP."""
        self._record_end: i64 = 0
        self._headers_left: i64 = 0
        # Limits of the timestamp delta instead of the timestamp: the two comparisons for each record cannot overflow.
        self._max_delta: i64 = _FIRST_INT64
        self._unset_delta: i64 = subtract(NO_TIMESTAMP, base_timestamp)
        self._lowest_delta: i64 = subtract(earliest, base_timestamp)
        self._highest_delta: i64 = subtract(latest, base_timestamp)
        if base_timestamp < 0 and earliest > _LAST_INT64 + base_timestamp:
            self._highest_delta = _FIRST_INT64  # no delta reaches `earliest`: all are rejected
        if base_timestamp > 0 and latest < _FIRST_INT64 + base_timestamp:
            self._lowest_delta = _LAST_INT64  # no delta reaches down to `latest`

    @property
    def max_timestamp(self) -> i64:
        """Largest timestamp of the accepted records; NO_TIMESTAMP if all are earlier."""
        return max(add(self.base_timestamp, self._max_delta), NO_TIMESTAMP)

    def feed(self, data: bytes, is_last_piece: bool) -> None:
        """Continue with the piece that starts at `position` of the previous one."""
        self.data = data
        self.position = 0
        self.is_last_piece = is_last_piece
        self.needs_more = False

    def confirms(self, max_timestamp: i64) -> bool:
        """For a complete check: nothing to reject or rewrite, and this is the largest timestamp."""
        return (
            self.problem == SOUND
            and self.is_consecutive
            and self.keyless == 0
            and self.mistimed == 0
            and self.max_timestamp == max_timestamp
        )

    def advance(self, budget: i64) -> bool:  # noqa: C901 - one loop without calls is what makes it fast
        """Check up to `budget` records and headers. True if all were checked, or a record cannot be read."""
        data = self.data
        is_last_piece = self.is_last_piece
        start: i64 = 0
        end: i64 = len(data)
        position: i64 = self.position
        index: i64 = self.index
        count: i64 = self.count
        lowest_delta: i64 = self._lowest_delta
        highest_delta: i64 = self._highest_delta
        unset_delta: i64 = self._unset_delta
        max_delta: i64 = self._max_delta
        needs_keys = self.needs_keys
        problem: i64 = SOUND
        number: i64 = 0
        second: i64 = 0
        record_end: i64 = 0
        delta: i64 = 0
        stop: i64 = 0
        is_keyless = False
        if self._headers_left > 0:
            budget = self._advance_headers(budget)
            if self._headers_left > 0 or self.problem != SOUND:
                return self.problem != SOUND
            position = self.position
            index = self.index
        elif budget > 0 and lowest_delta <= 0 and highest_delta >= PLAIN_MAX_DELTA:
            position, stop, delta = plain_records(data, position, index, min(count, index + budget), needs_keys)
            budget -= stop - index
            index = stop
            if delta > max_delta and delta >= 0:
                max_delta = delta
        try:
            while index < count and budget > 0:
                budget -= 1
                # Length.
                start = position
                number = data[position]
                if number < 0x80:
                    number = (number >> 1) ^ -(number & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        number = number & 0x7F | second << 7
                        number = (number >> 1) ^ -(number & 1)
                        position += 2
                    else:
                        number = read_int32(data, position)
                        if number == 0:
                            problem = ENDLESS_LENGTH
                            break
                        position += number & 15
                        number >>= 4
                record_end = position + number
                if number < MIN_BODY_BYTES:
                    problem = BAD_LENGTH
                    break
                if record_end > end:
                    problem = PAST_THE_END
                    break
                # Attributes, which are skipped, and timestamp delta.
                position += 1
                number = data[position]
                if number < 0x80:
                    delta = (number >> 1) ^ -(number & 1)
                    position += 1
                elif data[position + 1] < 0x80:
                    number = number & 0x7F | i64(data[position + 1]) << 7
                    delta = (number >> 1) ^ -(number & 1)
                    position += 2
                else:
                    number = int64_size(data, position)
                    if number == 0:
                        problem = BAD_NUMBER
                        break
                    delta = read_int64(data, position, number)
                    position += number
                # Offset delta.
                number = data[position]
                if number < 0x80:
                    number = (number >> 1) ^ -(number & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        number = number & 0x7F | second << 7
                        number = (number >> 1) ^ -(number & 1)
                        position += 2
                    else:
                        number = read_int32(data, position)
                        if number == 0:
                            problem = BAD_NUMBER
                            break
                        position += number & 15
                        number >>= 4
                if number != index:
                    self.is_consecutive = False
                # Key.
                number = data[position]
                if number < 0x80:
                    number = (number >> 1) ^ -(number & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        number = number & 0x7F | second << 7
                        number = (number >> 1) ^ -(number & 1)
                        position += 2
                    else:
                        number = read_int32(data, position)
                        if number == 0:
                            problem = BAD_NUMBER
                            break
                        position += number & 15
                        number >>= 4
                is_keyless = number < 0
                if number > 0:
                    position += number
                    if position >= record_end:
                        problem = BAD_FIELD
                        break
                # Value.
                number = data[position]
                if number < 0x80:
                    number = (number >> 1) ^ -(number & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        number = number & 0x7F | second << 7
                        number = (number >> 1) ^ -(number & 1)
                        position += 2
                    else:
                        number = read_int32(data, position)
                        if number == 0:
                            problem = BAD_NUMBER
                            break
                        position += number & 15
                        number >>= 4
                if number > 0:
                    position += number
                    if position >= record_end:
                        problem = BAD_FIELD
                        break
                if delta > max_delta:
                    max_delta = delta
                if (delta < lowest_delta or delta > highest_delta) and delta != unset_delta:
                    self._reject(index, NO_KEY if is_keyless and needs_keys else BAD_TIMESTAMP)
                elif is_keyless and needs_keys:
                    self._reject(index, NO_KEY)
                # Number of headers, and headers.
                number = data[position]
                if number == 0:
                    position += 1
                    index += 1
                    if position != record_end:
                        problem = BAD_LENGTH
                        break
                    continue
                self.position = position
                self.index = index
                self._record_end = record_end
                budget = self._begin_headers(budget)
                position = self.position
                index = self.index
                if self._headers_left > 0 or self.problem != SOUND:
                    problem = self.problem
                    break
        except IndexError:
            problem = PAST_THE_END
        if problem == PAST_THE_END and not is_last_piece:
            problem = SOUND
            position = start
            self.needs_more = True
        elif problem == SOUND and index == count and (position != end or not is_last_piece):
            problem = BYTES_LEFT
        self.position = position
        self.index = index
        self._max_delta = max_delta
        self.problem = problem
        return problem != SOUND or index == count

    def _reject(self, index: i64, why: i64) -> None:
        if why == NO_KEY:
            self.keyless += 1
        else:
            self.mistimed += 1
        if len(self.listed) < self.most_listed:
            self.listed.append(2 * index + why)

    def _begin_headers(self, budget: i64) -> i64:
        number: i64 = read_int32(self.data, self.position)
        if number == 0:
            self.problem = BAD_NUMBER
            return budget
        self.position += number & 15
        number >>= 4
        if number < 0 or 2 * number > self._record_end - self.position:
            self.problem = BAD_HEADER_COUNT
            return budget
        self._headers_left = number
        return self._advance_headers(budget)

    def _advance_headers(self, budget: i64) -> i64:
        """Check the rest of the headers, the last part of a record. Returns the rest of the budget."""
        data = self.data
        position: i64 = self.position
        left: i64 = self._headers_left
        number: i64 = 0
        try:
            while left > 0 and budget > 0:
                budget -= 1
                number = read_int32(data, position)
                if number == 0:
                    self.problem = BAD_NUMBER
                    break
                position += number & 15
                number >>= 4
                if number < 0:
                    self.problem = NAMELESS_HEADER
                    break
                position += number
                number = read_int32(data, position)
                if number == 0:
                    self.problem = BAD_NUMBER
                    break
                position += number & 15
                number >>= 4
                if number > 0:
                    position += number
                if position > self._record_end:
                    self.problem = BAD_FIELD
                    break
                left -= 1
        except IndexError:
            self.problem = BAD_FIELD  # not PAST_THE_END: the data has the whole record
        self.position = position
        self._headers_left = left
        if left == 0 and self.problem == SOUND:
            self.index += 1
            if position != self._record_end:
                self.problem = BAD_LENGTH
        return budget


def raw_slice(data: bytes, position: i64, most: i64) -> list[tuple[int, int, int, int, int, bytes | None, int]]:
    """Parse up to `most` records from `position` on. Raises ValueError at a malformed record.

    Returns for each its start, end, timestamp delta, offset delta, the position of the offset delta, its key, and the
    position of its value. Values and headers are not parsed.
    """
    found: list[tuple[int, int, int, int, int, bytes | None, int]] = []
    end: i64 = len(data)
    start: i64 = 0
    record_end: i64 = 0
    number: i64 = 0
    size: i64 = 0
    delta: i64 = 0
    offset_delta: i64 = 0
    offset_position: i64 = 0
    key: bytes | None = None
    try:
        while most > 0:
            most -= 1
            start = position
            number = read_int32(data, position)
            position += number & 15
            record_end = position + (number >> 4)
            if number == 0 or number >> 4 < MIN_BODY_BYTES or record_end > end:
                raise ValueError(f"the record at byte {start} claims a length of {number >> 4} bytes")
            position += 1
            size = int64_size(data, position)
            if size == 0:
                raise ValueError(f"the record at byte {start} {PROBLEMS[BAD_NUMBER]}")
            delta = read_int64(data, position, size)
            offset_position = position + size
            number = read_int32(data, offset_position)
            size = read_int32(data, offset_position + (number & 15))
            if number == 0 or size == 0:
                raise ValueError(f"the record at byte {start} {PROBLEMS[BAD_NUMBER]}")
            offset_delta = number >> 4
            position = offset_position + (number & 15) + (size & 15)
            number = size >> 4
            if number < 0:
                key = None
            elif position + number >= record_end:
                raise ValueError(f"the record at byte {start} {PROBLEMS[BAD_FIELD]}")
            else:
                key = data[position : position + number]
                position += number
            found.append((start, record_end, delta, offset_delta, offset_position, key, position))
            position = record_end
    except IndexError:
        raise ValueError(f"the record at byte {start} {PROBLEMS[PAST_THE_END]}") from None
    return found


def find_timestamp(
    data: bytes, position: i64, most: i64, min_delta: i64, min_offset_delta: i64
) -> tuple[i64, i64, i64]:
    """Look for the first record with at least these deltas of timestamp and offset, in up to `most` records.

    Returns the position behind the last record that was looked at, its timestamp delta, and its offset delta: -1 if
    none was found. Raises ValueError at a malformed record. Only what precedes the key is parsed.
    """
    end: i64 = len(data)
    start: i64 = 0
    record_end: i64 = 0
    number: i64 = 0
    size: i64 = 0
    delta: i64 = 0
    try:
        while most > 0:
            most -= 1
            start = position
            number = read_int32(data, position)
            position += number & 15
            record_end = position + (number >> 4)
            if number == 0 or number >> 4 < MIN_BODY_BYTES or record_end > end:
                raise ValueError(f"the record at byte {start} claims a length of {number >> 4} bytes")
            position += 1
            size = int64_size(data, position)
            number = read_int32(data, position + size)
            if size == 0 or number == 0:
                raise ValueError(f"the record at byte {start} {PROBLEMS[BAD_NUMBER]}")
            delta = read_int64(data, position, size)
            if delta >= min_delta and number >> 4 >= min_offset_delta:
                return record_end, delta, number >> 4
            position = record_end
    except IndexError:
        raise ValueError(f"the record at byte {start} {PROBLEMS[PAST_THE_END]}") from None
    return position, 0, -1


def decoded_columns(
    data: bytes, position: i64, most: i64, base_offset: i64, last_offset_delta: i64, base_timestamp: i64
) -> tuple[i64, list[int], list[int], list[bytes | None], list[bytes | None], list[Headers | None] | None]:
    """Decode up to `most` records from `position` on: a list for each field, cheaper than a tuple for each record.

    Returns the position behind them, offsets, timestamps, keys, values, and headers: None if no record has any. Raises
    ValueError at the first malformed record; to get the records before it, decode one record at a time.
    """
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers | None] = []
    has_headers = False
    start: i64 = position
    record_end: i64 = 0
    number: i64 = 0
    size: i64 = 0
    if last_offset_delta < 0 or base_offset > _LAST_INT64 - last_offset_delta:
        raise ValueError(f"a batch from offset {base_offset} has the last offset delta {last_offset_delta}")
    try:
        while most > 0:
            most -= 1
            start = position
            number = read_int32(data, position)
            position += number & 15
            record_end = position + (number >> 4)
            if number == 0 or number >> 4 < MIN_BODY_BYTES or record_end > len(data):
                raise ValueError(f"the record at byte {start} claims a length of {number >> 4} bytes")
            position += 1
            size = int64_size(data, position)
            number = read_int32(data, position + size)
            if size == 0 or number == 0:
                raise ValueError(f"the record at byte {start} {PROBLEMS[BAD_NUMBER]}")
            timestamps.append(_timestamp(base_timestamp, read_int64(data, position, size), start))
            position += size + (number & 15)
            number >>= 4
            if number < 0 or number > last_offset_delta:
                raise ValueError(f"the record at byte {start} has offset delta {number}, outside of its batch")
            offsets.append(base_offset + number)
            position = _read_field(data, position, record_end, keys)
            position = _read_field(data, position, record_end, values)
            if data[position] == 0:
                position += 1
                headers.append(None)
            else:
                position = _read_headers(data, position, record_end, headers)
                has_headers = True
            if position != record_end:
                raise ValueError(f"the record at byte {start} {PROBLEMS[BAD_LENGTH]}")
    except IndexError:
        raise ValueError(f"the record at byte {start} {PROBLEMS[PAST_THE_END]}") from None
    return position, offsets, timestamps, keys, values, headers if has_headers else None


def plain_parts(
    records: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    base_offset: i64,
    base_timestamp: i64,
    varints: list[bytes],
) -> list[bytes] | None:
    """Parts of the encoded records, to be joined: offset, timestamp, key, value and headers of each go in.

    `varints` are the encodings of 0, 1, 2 and so on. None if a record has headers, an offset or timestamp before the
    base, or a number beyond `varints`.
    """
    parts: list[bytes] = []
    limit: i64 = len(varints)
    length: i64 = 0
    delta: i64 = 0
    offset_delta: i64 = 0
    for offset, timestamp, key, value, headers in records:
        if headers or offset < base_offset or timestamp < base_timestamp:
            return None
        delta = subtract(timestamp, base_timestamp)
        offset_delta = subtract(offset, base_offset)
        # Attributes and the number of headers are a byte each, and so is the length of a field that is null.
        length = 2 + size_of(delta) + size_of(offset_delta)
        length += 1 if key is None else len(key) + size_of(len(key))
        length += 1 if value is None else len(value) + size_of(len(value))
        if length >= limit or delta >= limit or offset_delta >= limit:
            return None
        parts.append(varints[length])
        parts.append(b"\0")
        parts.append(varints[delta])
        parts.append(varints[offset_delta])
        if key is None:
            parts.append(b"\1")
        else:
            parts.append(varints[len(key)])
            parts.append(key)
        if value is None:
            parts.append(b"\1\0")
        else:
            parts.append(varints[len(value)])
            parts.append(value)
            parts.append(b"\0")
    return parts


def size_of(number: i64) -> i64:
    """Size of the varint of a number from 0 to 8191; 3 for larger ones, which have at least that."""
    if number < 64:
        return 1
    return 2 if number < 8192 else 3


def _timestamp(base_timestamp: i64, delta: i64, start: i64) -> i64:
    if delta > 0 and base_timestamp > _LAST_INT64 - delta:
        raise ValueError(f"the record at byte {start} has a timestamp of more than 64 bits")
    if delta < 0 and base_timestamp < _FIRST_INT64 - delta:
        raise ValueError(f"the record at byte {start} has a timestamp of more than 64 bits")
    return base_timestamp + delta


def _read_field(data: bytes, position: i64, record_end: i64, fields: list[bytes | None]) -> i64:
    """Append a key or value, None for a negative length. Returns the position after it."""
    number: i64 = read_int32(data, position)
    position += number & 15
    if number == 0 or position + (number >> 4) >= record_end:
        raise ValueError(f"the field before byte {position} {PROBLEMS[BAD_FIELD]}")
    number >>= 4
    if number < 0:
        fields.append(None)
        return position
    fields.append(data[position : position + number])
    return position + number


def _read_headers(data: bytes, position: i64, record_end: i64, column: list[Headers | None]) -> i64:
    """Append the headers of one record. Returns the position after them."""
    headers: Headers = []
    number: i64 = read_int32(data, position)
    position += number & 15
    count: i64 = number >> 4
    if number <= 0 or 2 * count > record_end - position:
        raise ValueError(f"the record before byte {position} {PROBLEMS[BAD_HEADER_COUNT]}")
    name = b""
    while count > 0:
        count -= 1
        number = read_int32(data, position)
        position += number & 15
        number >>= 4
        if number < 0:
            raise ValueError(f"the header at byte {position} has no name")
        name = data[position : position + number]
        position += number
        number = read_int32(data, position)
        position += number & 15
        number >>= 4
        if position > record_end or (number > 0 and position + number > record_end):
            raise ValueError(f"the header at byte {position} {PROBLEMS[BAD_FIELD]}")
        if number < 0:
            headers.append((name, None))
        else:
            headers.append((name, data[position : position + number]))
            position += number
    column.append(headers)
    return position
