"""A log reduced to what replication compares: one leader epoch per offset."""

from tidelog.replication.follower import Effect, FollowerState, PartitionFollower, TruncateFullyAndStartAt, TruncateTo
from tidelog.storage.leader_epochs import EpochEnd, LeaderEpochs


class ModelLog:
    """Records are their epochs; `records[0]` is the one at the log start."""

    def __init__(self, *epochs: int, log_start_offset: int = 0, high_watermark: int | None = None) -> None:
        self.records: list[int] = []
        self.log_start_offset = log_start_offset
        self.leader_epochs = LeaderEpochs()
        for epoch in epochs:
            self.append(epoch)
        self.high_watermark = log_start_offset if high_watermark is None else high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    @log_end_offset.setter
    def log_end_offset(self, offset: int) -> None:
        del self.records[offset - self.log_start_offset :]

    def on_controller_failover(self, epoch: int) -> None:
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def append(self, epoch: int) -> None:
        self.leader_epochs.assign(epoch, self.log_end_offset)
        self.records.append(epoch)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def perform(self, effect: Effect | None) -> None:
        match effect:
            case TruncateTo(offset):
                assert offset >= self.log_start_offset
                self.leader_epochs.truncate_from_end(offset)
                self.log_end_offset = offset
                self.high_watermark = min(self.high_watermark, offset)
            case TruncateFullyAndStartAt(offset):
                self.records.clear()
                self.leader_epochs.clear()
                self.log_start_offset = self.high_watermark = offset


def epoch_end(leader: ModelLog, epoch: int) -> EpochEnd:
    return leader.end_offset_for_epoch(epoch)


def reconcile(follower: PartitionFollower, leader: ModelLog) -> int:
    """Ask the leader as often as needed; how many questions that took."""
    log = follower.log
    assert isinstance(log, ModelLog)
    questions = 0
    while follower.state is FollowerState.TRUNCATING:
        epoch = follower.ask_epoch()
        if epoch is None:
            log.perform(follower.on_no_epochs())
        else:
            questions += 1
            assert questions < 100, "the questions do not end"
            log.perform(follower.on_epoch_end(0, epoch_end(leader, epoch)))
    return questions
