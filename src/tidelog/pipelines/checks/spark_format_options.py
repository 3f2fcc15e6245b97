"""Options of Spark's JSON and CSV readers and writers. Checked here: Spark ignores unknown ones."""

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
NO_EFFECT_ON_TOPICS = {
    "mode": "use bad_records to choose what happens to records that do not parse",
    "columnnameofcorruptrecord": "use dead_letters to keep records that do not parse",
    "header": "a record of a topic has no header line",
}
"""Options without effect on the records of a topic, with the reason."""


def option_warnings(format_: Format, *, is_of_topic: bool) -> Iterator[tuple[str, str]]:
    """Options that are probably ignored, with a sentence each. Other versions of Spark may have more options."""
    if format_.kind not in KNOWN:
        return
    known = KNOWN[format_.kind] + (() if is_of_topic else OF_FILES)
    for name in format_.options:
        reason = NO_EFFECT_ON_TOPICS.get(name.lower()) if is_of_topic else None
        if reason is not None:
            yield name, f"'{name}' has no effect: {reason}"
        elif name.lower() not in map(str.lower, known):
            yield name, f"Spark has no {format_.kind.upper()} option '{name}'{nearest(name, known)}"
