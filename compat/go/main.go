// Driver of franz-go: one JSON command per line in, one JSON answer per line out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	timeout         = 30 * time.Second
	largestRequest  = 10_000_000
	largestResponse = 100 << 20
)

type record struct {
	Offset      int64       `json:"offset"`
	TimestampMs *int64      `json:"timestamp_ms"`
	Key         []byte      `json:"key"`
	Value       []byte      `json:"value"`
	Headers     []headerRow `json:"headers"`
}

// headerRow is a name and a value, written as a JSON array of two.
type headerRow struct {
	Name  string
	Value []byte
}

func (row headerRow) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{row.Name, row.Value})
}

func (row *headerRow) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&row.Name, &row.Value})
}

type command struct {
	Do           string             `json:"do"`
	Topic        string             `json:"topic"`
	Partition    int32              `json:"partition"`
	Records      []record           `json:"records"`
	Compression  string             `json:"compression"`
	Acks         string             `json:"acks"`
	Idempotent   bool               `json:"idempotent"`
	Offset       int64              `json:"offset"`
	Count        int                `json:"count"`
	Isolation    string             `json:"isolation"`
	Rack         string             `json:"rack"`
	At           any                `json:"at"`
	Partitions   int32              `json:"partitions"`
	Configs      map[string]*string `json:"configs"`
	ValidateOnly bool               `json:"validate_only"`
	Total        int                `json:"total"`
	Kind         string             `json:"kind"`
	Name         string             `json:"name"`
	Changes      map[string]*string `json:"changes"`
	BeforeOffset int64              `json:"before_offset"`
	Limit        int32              `json:"limit"`
	Group        string             `json:"group"`
	Member       string             `json:"member"`
	InstanceID   *string            `json:"instance_id"`
	Cooperative  bool               `json:"cooperative"`

	IsAssignedByBroker bool   `json:"is_assigned_by_broker"`
	Writer             string `json:"writer"`
	TransactionalID    string `json:"transactional_id"`
}

type driver struct {
	bootstrap string
	producers map[string]*kgo.Client
	client    *kgo.Client
	admin     *kadm.Client
	members   map[string]*member
	writers   map[string]*kgo.Client
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acknowledgements = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func main() {
	client, err := newClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		panic(err)
	}
	self := &driver{os.Args[1], map[string]*kgo.Client{}, client, kadm.NewClient(client), map[string]*member{}, map[string]*kgo.Client{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<28)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var wanted command
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			panic(err)
		}
		result, err := self.perform(context.Background(), &wanted)
		if err := answers.Encode(answer(result, err)); err != nil {
			panic(err)
		}
	}
}

func answer(result any, err error) map[string]any {
	var known *kerr.Error
	switch {
	case err == nil:
		return map[string]any{"result": result}
	case errors.As(err, &known):
		return map[string]any{"code": known.Code, "message": err.Error()}
	default:
		return map[string]any{"fault": err.Error()}
	}
}

func (self *driver) perform(ctx context.Context, wanted *command) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch wanted.Do {
	case "produce":
		return self.produce(ctx, wanted)
	case "consume":
		return self.consume(ctx, wanted)
	case "list_offset":
		return self.listOffset(ctx, wanted)
	case "list_topics":
		topics, err := self.admin.ListTopics(ctx)
		return topics.Names(), err
	case "describe_topic":
		return self.describeTopic(ctx, wanted)
	case "create_topic":
		return nil, self.createTopic(ctx, wanted)
	case "delete_topic":
		response, err := self.admin.DeleteTopic(ctx, wanted.Topic)
		return nil, errors.Join(err, response.Err)
	case "create_partitions":
		responses, err := self.admin.UpdatePartitions(ctx, wanted.Total, wanted.Topic)
		return nil, errors.Join(err, responses.Error())
	case "describe_configs":
		return self.describeConfigs(ctx, wanted)
	case "alter_configs":
		return nil, self.alterConfigs(ctx, wanted)
	case "replace_configs":
		return nil, self.replaceConfigs(ctx, wanted)
	case "delete_records":
		return self.deleteRecords(ctx, wanted)
	case "describe_cluster":
		return self.describeCluster(ctx)
	case "log_dir_sizes":
		return self.logDirSizes(ctx)
	case "producer_ids":
		return self.producerIDs(ctx, wanted)
	case "page_of_topic_partitions":
		return self.pageOfTopicPartitions(ctx, wanted)
	case "join_group":
		return nil, self.join(wanted)
	case "member_poll":
		return self.members[wanted.Member].poll(ctx)
	case "member_assignment":
		return self.members[wanted.Member].assignment(), nil
	case "member_commit":
		return nil, self.members[wanted.Member].client.CommitUncommittedOffsets(ctx)
	case "member_close":
		return nil, self.leave(wanted)
	case "committed_offset":
		return askCoordinator(ctx, wanted, self.committedOffset)
	case "commit_offset":
		return nil, self.commitOffset(ctx, wanted)
	case "list_groups":
		groups, err := self.admin.ListGroups(ctx)
		return groups.Groups(), err
	case "describe_group":
		return askCoordinator(ctx, wanted, self.describeGroup)
	case "delete_group":
		return askCoordinator(ctx, wanted, self.deleteGroup)
	case "open_transactions":
		return nil, self.openTransactions(wanted)
	case "transaction_begin":
		return nil, self.writers[wanted.Writer].BeginTransaction()
	case "transaction_send":
		return nil, self.sendInTransaction(ctx, wanted)
	case "transaction_send_offset":
		return nil, self.sendOffset(ctx, wanted)
	case "transaction_commit":
		return nil, self.writers[wanted.Writer].EndTransaction(ctx, kgo.TryCommit)
	case "transaction_abort":
		return nil, self.writers[wanted.Writer].EndTransaction(ctx, kgo.TryAbort)
	case "transaction_close":
		self.writers[wanted.Writer].Close()
		delete(self.writers, wanted.Writer)
		return nil, nil
	default:
		return nil, fmt.Errorf("unknown command %q", wanted.Do)
	}
}

func (self *driver) producer(wanted *command) (*kgo.Client, error) {
	key := fmt.Sprint(wanted.Compression, wanted.Acks, wanted.Idempotent)
	if found, ok := self.producers[key]; ok {
		return found, nil
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(self.bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[wanted.Compression]),
		kgo.RequiredAcks(acknowledgements[wanted.Acks]),
		kgo.ProducerBatchMaxBytes(largestRequest),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	}
	if !wanted.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	made, err := newClient(options...)
	self.producers[key] = made
	return made, err
}

func (self *driver) produce(ctx context.Context, wanted *command) (any, error) {
	client, err := self.producer(wanted)
	if err != nil {
		return nil, err
	}
	records := make([]*kgo.Record, 0, len(wanted.Records))
	for _, each := range wanted.Records {
		records = append(records, toRecord(&each, wanted))
	}
	offsets := make([]*int64, 0, len(records))
	for _, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return nil, result.Err
		}
		if wanted.Acks == "0" {
			offsets = append(offsets, nil)
		} else {
			offsets = append(offsets, &result.Record.Offset)
		}
	}
	return offsets, nil
}

func toRecord(each *record, wanted *command) *kgo.Record {
	made := &kgo.Record{Topic: wanted.Topic, Partition: wanted.Partition, Key: each.Key, Value: each.Value}
	if each.TimestampMs != nil {
		made.Timestamp = time.UnixMilli(*each.TimestampMs)
	}
	for _, header := range each.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
	}
	return made
}

func fromRecord(found *kgo.Record) record {
	timestampMs := found.Timestamp.UnixMilli()
	made := record{found.Offset, &timestampMs, found.Key, found.Value, []headerRow{}}
	for _, header := range found.Headers {
		made.Headers = append(made.Headers, headerRow{header.Key, header.Value})
	}
	return made
}

func (self *driver) consume(ctx context.Context, wanted *command) (any, error) {
	isolation := kgo.ReadCommitted()
	if wanted.Isolation == "read_uncommitted" {
		isolation = kgo.ReadUncommitted()
	}
	start := map[int32]kgo.Offset{wanted.Partition: kgo.NewOffset().At(wanted.Offset)}
	client, err := newClient(
		kgo.SeedBrokers(strings.Split(self.bootstrap, ",")...),
		kgo.FetchIsolationLevel(isolation),
		kgo.Rack(wanted.Rack),
		kgo.BrokerMaxReadBytes(largestResponse),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{wanted.Topic: start}),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	taken := []record{}
	for len(taken) < wanted.Count && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(found *kgo.Record) { taken = append(taken, fromRecord(found)) })
	}
	return taken, nil
}

func (self *driver) listOffset(ctx context.Context, wanted *command) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	switch at := wanted.At.(type) {
	case float64:
		return self.offsetAtTimestamp(ctx, wanted, int64(at))
	case string:
		switch at {
		case "earliest":
			listed, err = self.admin.ListStartOffsets(ctx, wanted.Topic)
		case "latest":
			listed, err = self.admin.ListEndOffsets(ctx, wanted.Topic)
		default:
			listed, err = self.admin.ListMaxTimestampOffsets(ctx, wanted.Topic)
		}
	}
	if err = errors.Join(err, listed.Error()); err != nil {
		return nil, err
	}
	found, ok := listed.Lookup(wanted.Topic, wanted.Partition)
	if !ok || found.Offset < 0 {
		return nil, nil
	}
	return found.Offset, nil
}

// offsetAtTimestamp asks itself, for the admin client answers with the end offset where no record is that young.
func (self *driver) offsetAtTimestamp(ctx context.Context, wanted *command, timestampMs int64) (any, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = wanted.Topic
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition = wanted.Partition
	partition.Timestamp = timestampMs
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, self.client)
	if err != nil {
		return nil, err
	}
	found := response.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil || found.Offset < 0 {
		return nil, err
	}
	return found.Offset, nil
}

func (self *driver) describeTopic(ctx context.Context, wanted *command) (any, error) {
	topics, err := self.admin.ListTopics(ctx, wanted.Topic)
	if err = errors.Join(err, topics.Error()); err != nil {
		return nil, err
	}
	found := []map[string]any{}
	for _, partition := range topics[wanted.Topic].Partitions.Sorted() {
		found = append(found, map[string]any{
			"partition":        partition.Partition,
			"leader":           partition.Leader,
			"replicas":         partition.Replicas,
			"in_sync_replicas": partition.ISR,
		})
	}
	return found, nil
}

func (self *driver) createTopic(ctx context.Context, wanted *command) error {
	create := self.admin.CreateTopics
	if wanted.ValidateOnly {
		create = self.admin.ValidateCreateTopics
	}
	responses, err := create(ctx, wanted.Partitions, -1, wanted.Configs, wanted.Topic)
	return errors.Join(err, responses.Error())
}

func (self *driver) describeConfigs(ctx context.Context, wanted *command) (any, error) {
	var resources kadm.ResourceConfigs
	var err error
	if wanted.Kind == "broker" {
		id, _ := strconv.Atoi(wanted.Name)
		resources, err = self.admin.DescribeBrokerConfigs(ctx, int32(id))
	} else {
		resources, err = self.admin.DescribeTopicConfigs(ctx, wanted.Name)
	}
	if err != nil {
		return nil, err
	}
	found := map[string]*string{}
	for _, config := range resources[0].Configs {
		found[config.Key] = config.Value
	}
	return found, resources[0].Err
}

func (self *driver) alterConfigs(ctx context.Context, wanted *command) error {
	changes := []kadm.AlterConfig{}
	for key, value := range wanted.Changes {
		operation := kadm.SetConfig
		if value == nil {
			operation = kadm.DeleteConfig
		}
		changes = append(changes, kadm.AlterConfig{Op: operation, Name: key, Value: value})
	}
	responses, err := self.admin.AlterTopicConfigs(ctx, changes, wanted.Topic)
	return errors.Join(err, altered(responses))
}

func (self *driver) replaceConfigs(ctx context.Context, wanted *command) error {
	changes := []kadm.AlterConfig{}
	for key, value := range wanted.Configs {
		changes = append(changes, kadm.AlterConfig{Name: key, Value: value})
	}
	responses, err := self.admin.AlterTopicConfigsState(ctx, changes, wanted.Topic)
	return errors.Join(err, altered(responses))
}

func altered(responses kadm.AlterConfigsResponses) error {
	for _, response := range responses {
		if response.Err != nil {
			return response.Err
		}
	}
	return nil
}

func (self *driver) deleteRecords(ctx context.Context, wanted *command) (any, error) {
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: wanted.Topic, Partition: wanted.Partition, At: wanted.BeforeOffset})
	responses, err := self.admin.DeleteRecords(ctx, offsets)
	if err = errors.Join(err, responses.Error()); err != nil {
		return nil, err
	}
	found, _ := responses.Lookup(wanted.Topic, wanted.Partition)
	return found.LowWatermark, nil
}

func (self *driver) describeCluster(ctx context.Context) (any, error) {
	response, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, self.client)
	if err != nil {
		return nil, err
	}
	brokers := map[string]string{}
	for _, broker := range response.Brokers {
		brokers[strconv.Itoa(int(broker.NodeID))] = fmt.Sprintf("%s:%d", broker.Host, broker.Port)
	}
	found := map[string]any{"cluster_id": response.ClusterID, "controller": response.ControllerID, "brokers": brokers}
	return found, kerr.ErrorForCode(response.ErrorCode)
}

func (self *driver) logDirSizes(ctx context.Context) (any, error) {
	described, err := self.admin.DescribeAllLogDirs(ctx, nil)
	sizes := [][]any{}
	described.Each(func(directory kadm.DescribedLogDir) {
		err = errors.Join(err, directory.Err)
		directory.Topics.Each(func(partition kadm.DescribedLogDirPartition) {
			sizes = append(sizes, []any{partition.Topic, partition.Partition, partition.Size})
		})
	})
	return sizes, err
}

func (self *driver) producerIDs(ctx context.Context, wanted *command) (any, error) {
	set := kadm.TopicsSet{}
	set.Add(wanted.Topic, wanted.Partition)
	described, err := self.admin.DescribeProducers(ctx, set)
	found := map[string]int32{}
	described.EachProducer(func(producer kadm.DescribedProducer) {
		found[strconv.FormatInt(producer.ProducerID, 10)] = producer.LastSequence
	})
	return found, err
}

func (self *driver) pageOfTopicPartitions(ctx context.Context, wanted *command) (any, error) {
	request := kmsg.NewPtrDescribeTopicPartitionsRequest()
	request.ResponsePartitionLimit = wanted.Limit
	topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
	topic.Topic = wanted.Topic
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, self.client)
	if err != nil {
		return nil, err
	}
	partitions := []int32{}
	for _, partition := range response.Topics[0].Partitions {
		partitions = append(partitions, partition.Partition)
	}
	var next *int32
	if response.NextCursor != nil {
		next = &response.NextCursor.Partition
	}
	return map[string]any{"partitions": partitions, "next": next}, kerr.ErrorForCode(response.Topics[0].ErrorCode)
}
