"""ApiVersions (API key 18): lists the supported APIs, versions and features. Clients send it first."""

import re
from functools import cache

from tidelog.errors import NO_ERROR, InvalidRequest, UnsupportedVersion
from tidelog.protocol.apis import API_KEYS, API_VERSIONS_KEY
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.server.dispatch import RequestContext
from tidelog.server.features import FEATURES_EPOCH, finalized_features, supported_features

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_NAMES_FROM_VERSION = 3


def handle_api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.version >= SOFTWARE_NAMES_FROM_VERSION and not _is_well_named(request):
        return ApiVersionsResponse(error_code=InvalidRequest.code)
    return ApiVersionsResponse(
        error_code=NO_ERROR,
        api_keys=_all_advertised(),
        supported_features=supported_features(context.version),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=finalized_features(),
    )


def unsupported_version_response() -> ApiVersionsResponse:
    """KIP-511: returns the supported versions of ApiVersions itself."""
    return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[_advertised(API_VERSIONS_KEY)])


@cache
def _all_advertised() -> list[ApiVersion]:
    """The same for every connection."""
    return [_advertised(api_key) for api_key in sorted(API_KEYS)]


def _advertised(api_key: int) -> ApiVersion:
    advertised = API_KEYS[api_key].advertised
    return ApiVersion(api_key=api_key, min_version=advertised.first, max_version=advertised.last)


def _is_well_named(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(SOFTWARE_NAME.fullmatch(name) for name in names)
