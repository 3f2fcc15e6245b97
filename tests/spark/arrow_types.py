"""The Arrow types in which strings and bytes may come."""

import pyarrow as pa

STRING_TYPES = (pa.string(), pa.large_string(), pa.string_view())
BINARY_TYPES = (*STRING_TYPES, pa.binary(), pa.large_binary(), pa.binary_view())
