from tidelog.protocol.errors import MalformedMessage, UnencodableMessage, UnknownApi

__all__ = ["MalformedMessage", "UnencodableMessage", "UnknownApi"]
