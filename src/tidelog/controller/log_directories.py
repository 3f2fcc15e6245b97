"""Registered log directories of a broker, which show whether it lost one (KIP-858)."""

# Core: no clock, no I/O, no await.

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tidelog.cluster.znodes import LogDirectoryEpochs


@dataclass(frozen=True, slots=True)
class LogDirectories:
    present: Mapping[str, LogDirectoryEpochs] = field(default_factory=dict)
    """Registered now, by directory id."""
    missing: Sequence[LogDirectoryEpochs] = ()
    """Registered earlier, and not now: lost, removed or offline."""

    def replacements_since(self, epoch: int) -> AbstractSet[str]:
        """Directories that appeared later, if they may stand for one that the broker had in this broker epoch.

        A directory that was added while all those of that epoch are still there replaces none. The epoch may also be a
        later moment of the incarnation, if the partition state does not have the broker epochs of its members.
        """
        new = {each for each, epochs in self.present.items() if epochs.first > epoch}
        known = [each for epochs in (*self.present.values(), *self.missing) for each in epochs]
        registered = max((each for each in known if each <= epoch), default=epoch)
        is_one_missing = any(each.first <= epoch and registered <= each.last for each in self.missing)
        return new if is_one_missing or len(new) == len(self.present) else frozenset()

    def are_all_in(self, directory_ids: AbstractSet[str]) -> bool:
        return self.present.keys() == directory_ids
