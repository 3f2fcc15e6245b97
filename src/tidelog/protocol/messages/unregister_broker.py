"""UnregisterBroker: remove a broker that will not return (KIP-631)."""

from tidelog.protocol.fields import int16, int32, string
from tidelog.protocol.structs import Request, Response


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    broker_id: int = int32()


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
