// Writes a small record every few milliseconds with franz-go's defaults, and prints when each was sent and acknowledged.
//
// Arguments: bootstrap servers, topic, number of partitions, milliseconds between records. A line of output is the
// partition and two wall clock times in nanoseconds. It ends when its standard input does.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	partitions, _ := strconv.Atoi(os.Args[3])
	pause, _ := strconv.ParseFloat(os.Args[4], 64)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.DefaultProduceTopic(os.Args[2]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		panic(err)
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	value := []byte(strings.Repeat("x", 100))
	ticker := time.NewTicker(time.Duration(pause * float64(time.Millisecond)))
	for number := 0; ; number++ {
		record := &kgo.Record{Value: value, Partition: int32(number % partitions)}
		sent := time.Now().UnixNano()
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			if err == nil {
				fmt.Println(record.Partition, sent, time.Now().UnixNano())
			}
		})
		<-ticker.C
	}
}
