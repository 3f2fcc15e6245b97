"""The APIs of access control, through the wire protocol: answered as Kafka does without an authorizer."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import SecurityDisabled
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

VERSIONS = range(1, 4)


@pytest.mark.parametrize("version", VERSIONS)
def test_there_are_no_access_controls_to_describe(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        request = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)
        response = await client.ask(request, version, DescribeAclsResponse)
        assert (response.error_code, response.resources) == (SecurityDisabled.code, [])
        assert response.error_message

    with_broker(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_access_control_is_refused(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        wanted = AclCreation(
            resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
        )
        created = await client.ask(CreateAclsRequest(creations=[wanted, wanted]), version, CreateAclsResponse)
        assert [result.error_code for result in created.results] == [SecurityDisabled.code] * 2
        unwanted = DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
        deleted = await client.ask(DeleteAclsRequest(filters=[unwanted, unwanted]), version, DeleteAclsResponse)
        assert [(result.error_code, result.matching_acls) for result in deleted.filter_results] == [
            (SecurityDisabled.code, [])
        ] * 2

    with_broker(scenario)
