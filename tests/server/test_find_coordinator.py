import pytest

from tests.server.harness import Client, World, with_broker
from tidelog.errors import CoordinatorNotAvailable
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse


@pytest.mark.parametrize("version", range(7))
def test_no_coordinator_is_available_in_any_version(version: int) -> None:
    async def scenario(world: World, client: Client) -> None:
        request = FindCoordinatorRequest(key="group", coordinator_keys=["group", "other"])
        answer = await client.ask(request, version, FindCoordinatorResponse)
        if version < 4:
            assert answer.error_code == CoordinatorNotAvailable.code
        else:
            assert [found.key for found in answer.coordinators] == ["group", "other"]
            assert {found.error_code for found in answer.coordinators} == {CoordinatorNotAvailable.code}

    with_broker(scenario)
