"""One reading of a broker's metrics, through the parser of Prometheus' own library."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tidelog.server.broker import Broker

Labels = frozenset[tuple[str, str]]


def labelled(**labels: object) -> Labels:
    return frozenset((name, str(value)) for name, value in labels.items())


class Scrape:
    """Its samples by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples: dict[tuple[str, Labels], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self._samples, f"{key} is there twice"
                self._samples[key] = sample.value

    @classmethod
    def of(cls, broker: Broker) -> "Scrape":
        return cls(b"".join(broker.metrics.pieces()).decode())

    def __call__(self, name: str, **labels: object) -> float:
        return self._samples[name, labelled(**labels)]

    def all(self, name: str) -> Mapping[Labels, float]:
        return {labels: value for (found, labels), value in self._samples.items() if found == name}
