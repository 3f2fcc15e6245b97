"""The options of Spark's own readers and writers of JSON and CSV, which pass over what they do not know in silence."""

from collections.abc import Iterator, Mapping

from tidelog.pipelines.definition.mistakes import nearest
from tidelog.pipelines.definition.model import Format, FormatKind

_BOTH = (
    "charset columnNameOfCorruptRecord compression dateFormat enableDateTimeParsingFallback encoding lineSep locale"
    " mode multiLine samplingRatio singleVariantColumn timeFormat timeZone timestampFormat timestampNTZFormat"
)
_JSON = (
    "allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros allowSingleQuotes"
    " allowUnquotedControlChars allowUnquotedFieldNames dropFieldIfAllNull ignoreNullFields inferTimestamp"
    " prefersDecimal pretty primitivesAsString sortKeys useUnsafeRow writeNonAsciiCharacterAsCodePoint"
)
_CSV = (
    "charToEscapeQuoteEscaping codec columnPruning comment delimiter emptyValue enforceSchema escape escapeQuotes"
    " extension header ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema inputBufferSize maxCharsPerColumn"
    " maxColumns nanValue negativeInf nullValue positiveInf preferDate quote quoteAll sep unescapedQuoteHandling"
)
_FILES = (
    "archivePathFilter basePath cleanSource discardCachedInputRatio fileNameOnly ignoreCorruptFiles"
    " ignoreInvalidPartitionPaths ignoreMissingFiles ignoredPathSegmentRegex latestFirst maxBytesPerTrigger"
    " maxCachedFiles maxFileAge maxFilesPerTrigger modifiedAfter modifiedBefore pathGlobFilter recursiveFileLookup"
    " sourceArchiveDir"
)
KNOWN: Mapping[FormatKind, tuple[str, ...]] = {
    FormatKind.JSON: tuple(f"{_BOTH} {_JSON}".split()),
    FormatKind.CSV: tuple(f"{_BOTH} {_CSV}".split()),
}
OF_FILES = tuple(_FILES.split())
SAID_BY_RECORDS = {
    "mode": "bad_records says what becomes of records that do not parse",
    "columnnameofcorruptrecord": "dead_letters keeps records that do not parse",
    "header": "a record of a topic has no line of names",
}
"""What has no effect on the records of a topic, and why."""


def doubts(format_: Format, *, is_of_topic: bool) -> Iterator[tuple[str, str]]:
    """Options that will probably do nothing, and a sentence about each. Other versions of Spark may know more."""
    if format_.kind not in KNOWN:
        return
    known = KNOWN[format_.kind] + (() if is_of_topic else OF_FILES)
    for name in format_.options:
        reason = SAID_BY_RECORDS.get(name.lower()) if is_of_topic else None
        if reason is not None:
            yield name, f"'{name}' has no effect: {reason}"
        elif name.lower() not in map(str.lower, known):
            yield name, f"Spark does not know '{name}' of {format_.kind.upper()}{nearest(name, known)}"
