"""Admin client for client quotas: set, list and remove those of users, client ids and addresses."""

from collections.abc import Mapping

from tidelog.client.admin.admin import DEFAULT_TIMEOUT_S
from tidelog.client.network.retries import retried
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import raise_error
from tidelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tidelog.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from tidelog.quotas.entities import QuotaEntity, entity_of


class QuotaAdmin:
    """Retriable errors are retried until `timeout_s`; others are raised."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def describe(self) -> dict[QuotaEntity, dict[str, float]]:
        async def attempt() -> dict[QuotaEntity, dict[str, float]]:
            response = await self._cluster.ask_any(DescribeClientQuotasRequest(), DescribeClientQuotasResponse)
            raise_error(response.error_code, message=response.error_message)
            return {
                entity_of({part.entity_type: part.entity_name for part in entry.entity}): {
                    each.key: each.value for each in entry.values
                }
                for entry in response.entries or ()
            }

        return await retried(self._cluster.attempts("listing quotas", self._timeout_s), attempt)

    async def alter(self, entity: QuotaEntity, quotas: Mapping[str, float | None]) -> None:
        """Set quotas, or remove those that are None."""
        entry = EntryData(
            entity=[EntityData(kind, name) for kind, name in entity.parts.items()],
            ops=[OpData(key, value or 0.0, remove=value is None) for key, value in quotas.items()],
        )
        request = AlterClientQuotasRequest(entries=[entry])

        async def attempt() -> None:
            for result in (await self._cluster.ask_any(request, AlterClientQuotasResponse)).entries:
                raise_error(result.error_code, message=result.error_message)

        await retried(self._cluster.attempts("changing quotas", self._timeout_s), attempt)
