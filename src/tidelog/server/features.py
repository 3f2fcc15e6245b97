"""What the cluster can do beyond its APIs, as clients are told by ApiVersions (KIP-584)."""

from typing import NamedTuple

from tidelog.protocol.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey


class Feature(NamedTuple):
    name: str
    min_level: int
    max_level: int
    level: int | None
    """In effect in the whole cluster; None for what every client may simply use."""


FEATURES = (
    Feature("group.version", 0, 1, 1),
    # From level 2 on every transaction has a producer epoch of its own, and Produce adds partitions to it (KIP-890).
    Feature("transaction.version", 0, 2, 2),
    # Ours: many producers write one transaction, which a single record decides.
    Feature("tidelog.transaction.groups", 1, 1, None),
)
FEATURES_EPOCH = 0
"""They never change while brokers run. Clients take a negative epoch for not knowing."""

LEVEL_ZERO_FROM_VERSION = 4
"""Older clients refuse a feature that starts at level 0 (KIP-1022)."""


def supported_features(api_version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(feature.name, feature.min_level, feature.max_level)
        for feature in FEATURES
        if feature.min_level > 0 or api_version >= LEVEL_ZERO_FROM_VERSION
    ]


def finalized_features() -> list[FinalizedFeatureKey]:
    return [
        FinalizedFeatureKey(feature.name, max_version_level=feature.level, min_version_level=feature.level)
        for feature in FEATURES
        if feature.level is not None
    ]
