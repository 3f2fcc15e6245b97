package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const pollTime = 50 * time.Millisecond

// member is a consumer in a group; callbacks report what it has been assigned.
type member struct {
	client   *kgo.Client
	lock     sync.Mutex
	assigned map[int32]bool
}

type takenRecord [2]any

func (self *driver) join(wanted *command) error {
	joining := &member{assigned: map[int32]bool{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(self.bootstrap, ",")...),
		kgo.ConsumerGroup(wanted.Group),
		kgo.ConsumeTopics(wanted.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(joining.change(wanted.Topic, true)),
		kgo.OnPartitionsRevoked(joining.change(wanted.Topic, false)),
		kgo.OnPartitionsLost(joining.change(wanted.Topic, false)),
	}
	switch {
	case wanted.IsAssignedByBroker:
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	case wanted.Cooperative:
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	default:
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	if wanted.InstanceID != nil {
		options = append(options, kgo.InstanceID(*wanted.InstanceID))
	}
	client, err := newClient(options...)
	if err != nil {
		return err
	}
	joining.client = client
	self.members[wanted.Member] = joining
	return nil
}

func (self *member) change(topic string, has bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		self.lock.Lock()
		defer self.lock.Unlock()
		for _, partition := range changed[topic] {
			if has {
				self.assigned[partition] = true
			} else {
				delete(self.assigned, partition)
			}
		}
	}
}

func (self *member) assignment() []int32 {
	self.lock.Lock()
	defer self.lock.Unlock()
	return slices.AppendSeq([]int32{}, maps.Keys(self.assigned))
}

func (self *member) poll(ctx context.Context) ([]takenRecord, error) {
	moment, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	taken := []takenRecord{}
	fetches := self.client.PollFetches(moment)
	fetches.EachRecord(func(found *kgo.Record) { taken = append(taken, takenRecord{found.Partition, fromRecord(found)}) })
	if moment.Err() != nil {
		return taken, nil
	}
	return taken, fetches.Err()
}

func (self *driver) leave(wanted *command) error {
	self.members[wanted.Member].client.Close()
	delete(self.members, wanted.Member)
	return nil
}

// askCoordinator asks again where franz-go gives up: it retries these requests, but not the FindCoordinator before them,
// which may take a connection that died with its broker.
func askCoordinator(ctx context.Context, wanted *command, ask func(context.Context, *command) (any, error)) (any, error) {
	for {
		result, err := ask(ctx, wanted)
		if !kgo.IsRetryableBrokerErr(err) || ctx.Err() != nil {
			return result, err
		}
		time.Sleep(pollTime)
	}
}

func (self *driver) committedOffset(ctx context.Context, wanted *command) (any, error) {
	offsets, err := self.admin.FetchOffsets(ctx, wanted.Group)
	if err != nil {
		return nil, err
	}
	found, exists := offsets.Lookup(wanted.Topic, wanted.Partition)
	if !exists || found.At < 0 {
		return nil, nil
	}
	return found.At, found.Err
}

func (self *driver) commitOffset(ctx context.Context, wanted *command) error {
	offsets := kadm.Offsets{}
	offsets.AddOffset(wanted.Topic, wanted.Partition, wanted.Offset, -1)
	return self.admin.CommitAllOffsets(ctx, wanted.Group, offsets)
}

func (self *driver) describeGroup(ctx context.Context, wanted *command) (any, error) {
	request := kmsg.NewPtrConsumerGroupDescribeRequest()
	request.Groups = []string{wanted.Group}
	response, err := request.RequestWith(ctx, self.client)
	if err != nil {
		return nil, err
	}
	if found := response.Groups[0]; found.ErrorCode == 0 {
		return map[string]any{"state": found.State, "member_count": len(found.Members)}, nil
	}
	described, err := self.admin.DescribeGroups(ctx, wanted.Group)
	if err != nil {
		return nil, err
	}
	found := described[wanted.Group]
	return map[string]any{"state": found.State, "member_count": len(found.Members)}, found.Err
}

func (self *driver) deleteGroup(ctx context.Context, wanted *command) (any, error) {
	response, err := self.admin.DeleteGroup(ctx, wanted.Group)
	return nil, errors.Join(err, response.Err)
}
