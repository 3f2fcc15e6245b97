"""Feature levels that ApiVersions reports: supported by this broker and finalized in the cluster (KIP-584)."""

from functools import cache
from typing import NamedTuple

from tidelog.protocol.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey


class Feature(NamedTuple):
    name: str
    min_level: int
    max_level: int
    level: int | None
    """The finalized level of the cluster; None for a feature that clients use without finalization."""


FEATURES = (
    Feature("group.version", 0, 1, 1),
    # From level 2 on each transaction has its own producer epoch, and Produce adds partitions to it (KIP-890).
    Feature("transaction.version", 0, 2, 2),
    # Not in Kafka: many producers write one transaction, which a single record commits.
    Feature("tidelog.transaction.groups", 1, 1, None),
)
FEATURES_EPOCH = 0
"""Features never change while brokers run. Clients read a negative epoch as "unknown"."""

LEVEL_ZERO_FROM_VERSION = 4
"""Older clients refuse a feature that starts at level 0 (KIP-1022)."""


@cache
def supported_features(api_version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(feature.name, feature.min_level, feature.max_level)
        for feature in FEATURES
        if feature.min_level > 0 or api_version >= LEVEL_ZERO_FROM_VERSION
    ]


@cache
def finalized_features() -> list[FinalizedFeatureKey]:
    return [
        FinalizedFeatureKey(feature.name, max_version_level=feature.level, min_version_level=feature.level)
        for feature in FEATURES
        if feature.level is not None
    ]
