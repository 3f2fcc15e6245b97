package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (self *driver) openTransactions(wanted *command) error {
	client, err := newClient(
		kgo.SeedBrokers(strings.Split(self.bootstrap, ",")...),
		kgo.TransactionalID(wanted.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	self.writers[wanted.Writer] = client
	return err
}

func (self *driver) sendInTransaction(ctx context.Context, wanted *command) error {
	records := make([]*kgo.Record, len(wanted.Records))
	for index, each := range wanted.Records {
		records[index] = toRecord(&each, wanted)
	}
	return self.writers[wanted.Writer].ProduceSync(ctx, records...).FirstErr()
}

// sendOffset does what franz-go's sessions do for members of groups, for somebody who is in none.
func (self *driver) sendOffset(ctx context.Context, wanted *command) error {
	writer := self.writers[wanted.Writer]
	id, epoch, err := writer.ProducerID(ctx)
	if err != nil {
		return err
	}
	adding := kmsg.NewPtrAddOffsetsToTxnRequest()
	adding.TransactionalID, adding.ProducerID, adding.ProducerEpoch = wanted.TransactionalID, id, epoch
	adding.Group = wanted.Group
	added, err := adding.RequestWith(ctx, writer)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return err
	}
	return self.commitInTransaction(ctx, wanted, id, epoch)
}

func (self *driver) commitInTransaction(ctx context.Context, wanted *command, id int64, epoch int16) error {
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Partition, partition.Offset = wanted.Partition, wanted.Offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = wanted.Topic
	topic.Partitions = append(topic.Partitions, partition)
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, request.ProducerID, request.ProducerEpoch = wanted.TransactionalID, id, epoch
	request.Group = wanted.Group
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, self.writers[wanted.Writer])
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
}
